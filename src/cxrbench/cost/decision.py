"""Port to Trainium or stay: the arithmetic of the sources' decision tables, which take five numbers.

These (the chapter's decision framework, CloudExpat's checklist, CloudRoute's scenarios) sort by spend,
architecture, porting budget, horizon and capacity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cxrbench.cost.breakeven import CHAPTER, PORTING_USD, amount
from cxrbench.cost.cells import cost_table, pricing_of
from cxrbench.cost.comparable import both_sides, comparable
from cxrbench.cost.prices import read_prices
from cxrbench.cost.ratios import PREPRINT, PUBLISHED, Ratio, at_prices, pair_prices, study_pair
from cxrbench.study.config import Pricing
from cxrbench.study.errors import UserError, nearest

_WEEK_USD = 10_000.0  # per engineer-week: the dearer end of the chapter's budget
_EXPAT = "CloudExpat, AWS Trainium vs NVIDIA H100"


class Scenario(NamedTuple):
    """Four of the five numbers as a source's decision table draws its line, and where it leans.

    No source states what a second platform goes on costing: ``ongoing`` is zero, an assumption.
    """

    spend: float  # USD per month
    porting: float  # USD
    months: float
    capacity: float
    leans: str
    source: str
    ongoing: float = 0.0  # USD per month


SCENARIOS = (
    Scenario(50_000, PORTING_USD, 12, 1.0, "GPU", f"{CHAPTER}; horizon assumed"),
    Scenario(200_000, PORTING_USD, 12, 1.0, "Trainium", f"{CHAPTER}; horizon assumed"),
    Scenario(30_000, 4 * _WEEK_USD, 12, 1.0, "GPU", f"{_EXPAT}; a week at the chapter's rate"),
    Scenario(100_000, 8 * _WEEK_USD, 24, 1.0, "Trainium", f"{_EXPAT}; a week at the chapter's rate"),
    Scenario(100_000, 8 * _WEEK_USD, 24, 0.5, "Trainium", f"{_EXPAT}; half the capacity, assumed"),
)


@dataclass(frozen=True)
class Decision:
    """The answer to :func:`decide`. Ranges run from the worst to the best end of the cost ratio."""

    verdict: str  # port, stay, depends
    ratio: Ratio
    saving_per_month: tuple[float, float]
    net_over_horizon: tuple[float, float]
    months_to_break_even: tuple[float, float]
    arithmetic: tuple[str, ...]


_VERDICTS = {
    "port": "port: it pays at both ends of the range",
    "stay": "stay: it pays at neither end of the range",
    "depends": "depends: it pays at one end of the range only; measure the cost ratio on this network first",
}


def decide(
    ratio: Ratio, spend: float, porting: float, horizon: float, capacity: float, ongoing: float = 0.0
) -> Decision:
    """Return whether to port, from the cost ratio and the other numbers of the sources' decision tables.

    ``spend``: USD per month paid for GPU training now. ``porting``: USD. ``horizon``: months that the model
    will be trained. ``capacity``: share (0 to 1) of that work for which Trainium capacity can be had.
    ``ongoing``: USD per month of engineering that the second platform needs as long as it is used.
    """
    amounts = {"spend": spend, "porting budget": porting, "horizon": horizon, "ongoing engineering": ongoing}
    for name, value in amounts.items():
        amount(name, value)
    if not 0 <= capacity <= 1:
        raise UserError(f"capacity is {capacity}: it is the share of the work, between 0 and 1")
    worst, best = (spend * capacity * (1 - end) - ongoing for end in (ratio.high, ratio.low))
    net = (worst * horizon - porting, best * horizon - porting)
    slow, fast = (math.inf if usd <= 0 else porting / usd for usd in (worst, best))
    verdict = "port" if net[0] > 0 else "stay" if net[1] <= 0 else "depends"
    lines = (
        f"cost ratio {ratio.low:.2f} to {ratio.high:.2f} ({ratio.kind}: {ratio.source})",
        f"ongoing engineering of a second platform: {ongoing:,.0f} USD per month"
        + ("" if ongoing else ", an assumption"),
        f"saved per month = spend x capacity x (1 - ratio) - ongoing = {spend:,.0f} x {capacity:g} x (1 - "
        f"{ratio.high:.2f} to {ratio.low:.2f}) - {ongoing:,.0f} = {worst:,.0f} to {best:,.0f} USD",
        f"net over {horizon:g} months = saved x months - porting = {net[0]:,.0f} to {net[1]:,.0f} USD",
        f"months to break even = porting / saved = {months(slow)} to {months(fast)}",
        _VERDICTS[verdict],
    )
    return Decision(verdict, ratio, (worst, best), net, (slow, fast), lines)


def months(value: float) -> str:
    """Return months as text, or the word for infinitely many."""
    return "never" if math.isinf(value) else f"{value:.1f}"


def decision_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return the sources' decision tables answered with arithmetic: scenario by published cost ratio.

    The preprint's ratio stands as stated, and at every price of the study's pair that changes it.
    """
    not_stated = dict.fromkeys(("region", "basis", "as_of"), "not stated")
    ratios = [(name, PUBLISHED[name], not_stated) for name in ("transformer", "cnn")]
    if pair := study_pair(pricing):
        rows = at_prices(PREPRINT, pair_prices(prices, pair, pricing.region)).dropna()
        for row in rows[~np.isclose(rows["ratio_low"], PREPRINT.low, rtol=1e-9)].to_dict("records"):
            where = {key: row[key] for key in not_stated}
            name = f"cnn at {row['basis'].replace('_', ' ')} prices"
            ratios.append((name, _unchanged_times(row, " against ".join(pair)), where))
    return pd.DataFrame([_row(*ratio, case) for ratio in ratios for case in SCENARIOS])


def _row(name: str, ratio: Ratio, where: dict[str, str], case: Scenario) -> dict[str, Any]:
    answer = decide(ratio, case.spend, case.porting, case.months, case.capacity, case.ongoing)
    slow, fast = answer.months_to_break_even
    return {
        "architecture": name, "kind": ratio.kind, "ratio_low": ratio.low, "ratio_high": ratio.high,
        "spend": case.spend, "porting": case.porting, "ongoing": case.ongoing, "months": case.months,
        "capacity": case.capacity, **where,
        "saved_low": answer.saving_per_month[0], "saved_high": answer.saving_per_month[1],
        "net_low": answer.net_over_horizon[0], "net_high": answer.net_over_horizon[1],
        "break_even_from": fast, "break_even_to": slow, "verdict": answer.verdict, "leans": case.leans,
        "source": f"{ratio.source}; {case.source}",
    }  # fmt: skip


def _unchanged_times(row: dict[str, Any], prices: str) -> Ratio:
    """Return the preprint's ratio at a row of :func:`~cxrbench.cost.ratios.at_prices`."""
    source = f"{PREPRINT.source}; run times unchanged, {prices}"
    return Ratio(row["ratio_low"], row["ratio_high"], PREPRINT.kind, source)


def ratio_for(architecture: str, basis: str | None, records: Path, study: Path, prices: Path) -> Ratio:
    """Return the cost ratio for ``architecture``.

    A name with a slash: that of the recorded cells of that data set and network, priced as ``basis``.
    Otherwise a published one, the preprint's put at ``basis``. UserError when neither exists.
    """
    if "/" in architecture:
        costs = cost_table([records], prices, pricing_of(study, basis=basis))
        return ratio_of_cells(costs, *architecture.split("/", 1))
    if architecture not in PUBLISHED:
        raise UserError(
            f"architecture '{architecture}': no published cost ratio{nearest(architecture, PUBLISHED)} "
            f"(known: {', '.join(PUBLISHED)}); give your own ratio, low and high"
        )
    ratio = PUBLISHED[architecture]
    return ratio if basis is None else _at_basis(ratio, architecture, basis, study, prices)


def _at_basis(ratio: Ratio, architecture: str, basis: str, study: Path, prices: Path) -> Ratio:
    pricing = pricing_of(study, basis=basis)
    pair = study_pair(pricing)
    if ratio is not PREPRINT or pair is None:
        raise UserError(
            f"the published ratio of '{architecture}' names no instances: it cannot be put at other prices; "
            "leave --basis out or give --ratio"
        )
    rows = at_prices(ratio, pair_prices(read_prices(prices), pair, pricing.region)).dropna()
    rows = rows[(rows["region"] == pricing.region) & (rows["basis"] == basis)]
    named = f"{' against '.join(pair)} in {pricing.region} at {basis}"
    if rows.empty:
        raise UserError(f"no prices of {named}: add rows to prices.csv or leave --basis out")
    return _unchanged_times(rows.iloc[-1].to_dict(), named)


def ratio_of_cells(costs: pd.DataFrame, dataset: str, architecture: str) -> Ratio:
    """Return the cost ratio of Trainium over the GPU from cost rows: lowest to highest over seeds.

    Only :func:`~cxrbench.cost.comparable.comparable` runs; what still differs stands in the source.
    """
    here = costs[(costs["dataset"] == dataset) & (costs["architecture"] == architecture)]
    usable, (gpu, trainium), missing = both_sides(here)
    if missing:
        raise UserError(
            f"no usable cell {dataset}/{architecture}/{missing[-1]}: not run yet, so its cost ratio is not "
            "known; record one or give the ratio yourself"
        )
    runs, differs = comparable(usable)
    usd = runs.groupby("platform")["usd_total"].agg(["min", "max"])
    return Ratio(
        usd.loc[trainium, "min"] / usd.loc[gpu, "max"],
        usd.loc[trainium, "max"] / usd.loc[gpu, "min"],
        "measured" if set(runs["kind"]) == {"measured"} else "proxy",
        f"cells {dataset}/{architecture}" + (f"; {differs}" if differs else ""),
    )
