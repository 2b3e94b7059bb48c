"""Whether a port to Trainium pays: runs to break even, the sources' decision tables."""

import itertools
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.cost.costs import both_sides, cost_table, pricing_of
from cxrbench.cost.devices import DEVICES
from cxrbench.cost.prices import read_prices, regions
from cxrbench.cost.ratios import (
    PREPRINT_RATIO,
    PUBLISHED_RATIOS,
    UNKNOWN_RATIO,
    Ratio,
    notes,
    pair_prices,
    preprint_at,
    study_pair,
)
from cxrbench.study.config import Pricing

_CHAPTER = "Training Silicon: Trn1 (Trainium) Architecture"
_BLOG, _EXPAT = "AWS blog, Trainium and Amazon SageMaker", "CloudExpat, AWS Trainium vs NVIDIA H100"
PORTING_USD = 20_000.0  # the chapter's 2 to 4 engineer-weeks, section 6.3.19
WEEK_USD = 10_000.0  # per engineer-week: the dearer end of the chapter's budget
_BREAK_EVEN_COLUMNS = [
    "case", "kind", "here", "there", "region", "basis", "as_of", "usd_here", "usd_there", "saving",
    "porting", "runs", "source", "note", "usd_here_sd", "usd_there_sd",
]  # fmt: skip


class _Case(NamedTuple):
    """A run on a GPU (``here``) and on Trainium (``there``), with its instance-hours on each."""

    case: str
    here: str
    there: str
    hours: tuple[float, float]
    source: str
    kind: str = "projected"  # nobody published what a port of it saves at these prices
    note: str = "published hours times listed prices"
    hours_sd: tuple[float, float] = (math.nan, math.nan)  # over seeds


_P4D, _GPU_HOURS = ("p4d.24xlarge", "trn1.32xlarge"), 8 * 24 * 30
_EQUAL = "as many tokens at the published speeds, times listed prices"
CASES = (
    _Case("30B model, run times as printed", *_P4D, (_GPU_HOURS, 16 * 24 * 18), _CHAPTER),
    _Case("30B model, equal tokens", *_P4D, (_GPU_HOURS, 16 * 24 * 30 * 42 / 48), _CHAPTER, note=_EQUAL),
    _Case("fine-tuning", *_P4D, (6553 / 3600, 6033 / 3600), _BLOG),
)


def break_even_table(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """The runs until a port pays at every price, for runs that others published and for the networks
    of cost.csv.

    Infinite ``runs``: there is no saving. NaN: a side was not run or has no price, and ``note`` names it.
    """
    parts = []
    for case in CASES:
        on_sagemaker = case._replace(here=f"ml.{case.here}", there=f"ml.{case.there}")
        parts += [_at_every_price(published, prices, pricing) for published in (case, on_sagemaker)]
    for network, runs in costs.groupby(["dataset", "architecture"]):
        parts.append(_own(" ".join(network), runs, prices, pricing))
    return pd.concat(parts, ignore_index=True).reindex(columns=_BREAK_EVEN_COLUMNS)


def _at_every_price(case: _Case, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    priced = pair_prices(prices, (case.here, case.there), pricing.region)
    rates = priced[["usd", "usd_other"]].set_axis(["usd_here", "usd_there"], axis=1)
    where = priced.assign(region=regions(priced))[["region", "basis", "as_of"]]
    rows = pd.concat([where, rates * case.hours], axis=1)
    runs = [break_even_runs(PORTING_USD, *usd) for usd in rows[rates.columns].to_numpy()]
    return rows.assign(
        **{name: getattr(case, name) for name in ("case", "kind", "here", "there", "source")},
        saving=rows["usd_here"] - rows["usd_there"],
        porting=PORTING_USD,
        runs=runs,
        note=np.where(np.isfinite(runs), case.note, "never: no saving"),
        **(rates * case.hours_sd).add_suffix("_sd"),
    )


def _own(name: str, costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """The costs of comparable runs of a network on both sides at every price; a single row with the
    reason where it did not run on both."""
    sides, differs, missing = both_sides(costs)
    runs, source = pd.concat(sides.values()), "this paper's cells"
    kind = " and ".join(runs["kind"].unique()) or "not run"
    if missing:
        ran = {name: " and ".join(rows["instance"].unique()) for name, rows in sides.items()}
        here, there = (instances or pricing.instances.get(name, "") for name, instances in ran.items())
        note = f"not run: {', '.join(missing)}"
        row = _Case(name, here, there, (math.nan, math.nan), source, kind, note)._asdict()
        where = {"region": pricing.region, "basis": pricing.basis, "as_of": "", "porting": PORTING_USD}
        return pd.DataFrame([row | where])
    ends = pd.DataFrame([rows.iloc[0] for rows in sides.values()])
    mean, sd = (tuple(ends[usd] / ends["usd_per_hour"]) for usd in ("cost_to_usable", "usd_sd"))
    note = "; ".join(filter(None, ["mean over seeds, failed attempts charged", differs]))
    here, there = ends["instance"]
    return _at_every_price(_Case(name, here, there, mean, source, kind, note, sd), prices, pricing)


def break_even_runs(porting: float, usd_here: float, usd_there: float) -> float:
    """The runs after which ``porting`` USD are earned back; infinite when a run there saves nothing.

    ``usd_here`` and ``usd_there`` are USD per run before and after the port.
    """
    saving = _amount("cost per run here", usd_here) - _amount("cost per run there", usd_there)
    runs = _amount("porting cost", porting) / saving if saving > 0 else math.inf
    return math.inf if math.isinf(runs) else float(math.ceil(round(runs, 6)))  # 0.3 - 0.2 is less than 0.1


def _amount(name: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{name} is {value}: it must be a finite number, zero or more")
    return value


class Numbers(NamedTuple):
    """What a decision rests on, beside the cost ratio."""

    spend: float  # USD per month on GPU training
    porting: float  # USD, all of it on the first day
    ongoing: float  # USD per month for engineering of the second platform
    months: float
    capacity: float  # share (0 to 1) of the work for which Trainium is available


_AMOUNTS = ("spend", "porting budget", "ongoing engineering", "horizon")  # of Numbers, in messages


class _Scenario(NamedTuple):
    """A case at the thresholds of a source's decision table, and what the source says there."""

    numbers: Numbers  # no source states an ongoing cost: zero is an assumption
    leans: str
    source: str


# The chapter's decision framework: a pilot from 50,000 to 200,000 USD, Trainium above. CloudExpat's checklist
# has nine factors and asks for five: of these the cases have spend, weeks of a port, and horizon.
_GPU = "GPU (two factors of nine)"  # spend and horizon: four weeks begin its other column
_TRAINIUM = "Trainium (three factors of nine)"
_HORIZON, _WEEK = f"{_CHAPTER}; horizon assumed", f"{_EXPAT}; a week at the chapter's rate"
_SCENARIOS = (
    _Scenario(Numbers(50_000, PORTING_USD, 0.0, 12, 1.0), "pilot", _HORIZON),
    _Scenario(Numbers(200_000, PORTING_USD, 0.0, 12, 1.0), "pilot or Trainium", _HORIZON),
    _Scenario(Numbers(30_000, 4 * WEEK_USD, 0.0, 12, 1.0), _GPU, _WEEK),
    _Scenario(Numbers(100_000, 8 * WEEK_USD, 0.0, 24, 1.0), _TRAINIUM, _WEEK),
    _Scenario(
        Numbers(100_000, 8 * WEEK_USD, 0.0, 24, 0.5), _TRAINIUM, f"{_EXPAT}; half the capacity, assumed"
    ),
)


class Decision(NamedTuple):
    """What a port saves in USD per month, net in USD over the horizon, and months until it breaks even."""

    saved_low: float
    saved_high: float
    net_low: float
    net_high: float
    break_even_from: float
    break_even_to: float
    pays: Literal["at both ends", "at one end", "at neither end"]  # of the ratio's range
    verdict: Literal["port", "stay", "depends", "not shown"]


def decide(ratio: Ratio, given: Numbers) -> Decision:
    """Whether to port, from the cost ratio and the other numbers of the sources' decision tables.

    Staying needs no proof. A port does: from a ratio that is not the user's own it is "not shown". There is
    none to hardware that AWS no longer supports for training.
    """
    for name, value in zip(_AMOUNTS, given[:4], strict=True):
        _amount(name, value)
    if not given.months:
        raise UserError(f"horizon is {given.months:g}: give the months of training, more than zero")
    if not 0 <= given.capacity <= 1:
        raise UserError(f"capacity is {given.capacity}; give the share of the work, between 0 and 1")
    worst, best = (
        given.spend * given.capacity * (1 - end) - given.ongoing for end in (ratio.high, ratio.low)
    )
    low, high = (saved * given.months - given.porting for saved in (worst, best))
    worst, best, low, high = (amount + 0.0 for amount in (worst, best, low, high))  # no -0 in print
    slow, fast = (math.inf if saved <= 0 else given.porting / saved for saved in (worst, best))
    if high <= 0:
        return Decision(worst, best, low, high, fast, slow, "at neither end", "stay")
    pays: Any = "at both ends" if low > 0 else "at one end"
    verdict: Any = "not shown" if not ratio.own else "port" if low > 0 else "depends"
    if ratio.own and ratio.hardware in DEVICES and DEVICES[ratio.hardware].training != "yes":
        verdict = "stay"
    return Decision(worst, best, low, high, fast, slow, pays, verdict)


def decision_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Whether to port in every scenario at each published cost ratio, by arithmetic.

    The preprint's ratio stands as stated, and at every price of the study's pair that changes it. All rows
    are projected: only ratios without a region are published.
    """
    not_stated = dict.fromkeys(("region", "basis", "as_of"), "not stated")
    ratios = [(name, ratio, not_stated) for name, ratio in PUBLISHED_RATIOS.items()]
    if pair := study_pair(pricing):
        rows = preprint_at(prices, pair, pricing.region).dropna()
        for row in rows[~np.isclose(rows["ratio_low"], PREPRINT_RATIO.low, rtol=1e-9)].to_dict("records"):
            name = f"cnn at {row['basis'].replace('_', ' ')} prices"
            where = {key: row[key] for key in not_stated}
            ratios.append((name, _unchanged_times(row, " against ".join(pair)), where))
    return pd.DataFrame(
        {"architecture": name, "kind": "projected", "ratio_low": ratio.low, "ratio_high": ratio.high}
        | case.numbers._asdict()
        | where
        | decide(ratio, case.numbers)._asdict()
        | {"leans": case.leans, "source": f"{ratio.source}; {case.source}"}
        for (name, ratio, where), case in itertools.product(ratios, _SCENARIOS)
    )


def _unchanged_times(row: dict, prices: str) -> Ratio:
    """The preprint's ratio at a row of :func:`~cxrbench.cost.ratios.preprint_at`."""
    source = f"{PREPRINT_RATIO.source}; run times unchanged, {prices}"
    return Ratio(row["ratio_low"], row["ratio_high"], "projected", source, PREPRINT_RATIO.hardware)


def ratio_for(architecture: str, basis: str | None, records: Path, study: Path, prices: Path) -> Ratio:
    """The cost ratio published for ``cnn`` or ``transformer``, the preprint's repriced at ``basis`` if
    given; for ``dataset/network``, the ratio of its recorded cells; for another kind the unknown one."""
    pricing = pricing_of(study, basis=basis)
    if "/" in architecture:
        costs = cost_table([records], prices, pricing)
        return ratio_of_cells(costs, read_prices(prices), *architecture.split("/", 1))
    ratio, pair = PUBLISHED_RATIOS.get(architecture, UNKNOWN_RATIO), study_pair(pricing)
    if basis is None:
        return ratio
    if ratio is not PREPRINT_RATIO or pair is None:
        raise UserError(
            f"the published ratio of '{architecture}' names no instances: it cannot be put at other prices; "
            "leave --basis out or give --ratio"
        )
    table = read_prices(prices)
    rows = preprint_at(table, pair, pricing.region).dropna()
    rows = rows[(rows["region"] == pricing.region) & (rows["basis"] == basis)]
    named = f"{' against '.join(pair)} in {pricing.region} at {basis}"
    if rows.empty:
        raise UserError(f"no prices of {named}: add rows to prices.csv or leave --basis out")
    row = rows.iloc[-1].to_dict()
    return _unchanged_times(row, f"{named}, {row['as_of']}{notes(table, pair, pricing.region, basis)}")


def ratio_of_cells(costs: pd.DataFrame, prices: pd.DataFrame, dataset: str, architecture: str) -> Ratio:
    """The cost ratio of Trainium over the GPU from cost rows: lowest to highest over seeds.

    Only :func:`~cxrbench.cost.costs.comparable` runs; what still differs stands in the source.
    """
    cell_costs = costs[(costs["dataset"] == dataset) & (costs["architecture"] == architecture)]
    sides, differs, missing = both_sides(cell_costs)
    if missing:
        raise UserError(
            f"no usable cell {dataset}/{architecture}/{missing[-1]}: not run yet, so its cost ratio is not "
            "known; record one or give --ratio LOW HIGH"
        )
    gpu, trainium = (runs["usd_total"] for runs in sides.values())
    (ran_on,) = list(sides.values())[1]["instance"].unique()[:1]
    chip = prices.loc[prices["instance"] == ran_on, "accelerator"].iloc[0]
    measured = (pd.concat(sides.values())["kind"] == "measured").all()
    source = "; ".join(filter(None, [f"cells {dataset}/{architecture}", differs]))
    low, high = trainium.min() / gpu.max(), trainium.max() / gpu.min()
    kind = "measured" if measured else "proxy"
    return Ratio(low, high, kind, source, chip, own=True, instance=ran_on)
