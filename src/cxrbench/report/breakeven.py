"""Break-even and decisions as tables: published runs at each date's prices, and our own cells."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.breakeven import PUBLISHED, Ratio, break_even_runs, decide
from cxrbench.cost.cases import CASES, PORTING_USD, PREPRINT, PREPRINT_DATE, SCENARIOS, Case
from cxrbench.cost.comparable import comparable
from cxrbench.cost.prices import NoPrice
from cxrbench.cost.regimes import Regime, Repriced, dates_of, of_pair, reprice

BREAK_EVEN_COLUMNS = [
    *("case", "kind", "here", "there", "region", "basis", "as_of", "usd_here", "usd_there", "saving"),
    *("porting", "runs", "source", "note", "usd_here_sd", "usd_there_sd"),
]
DECISION_COLUMNS = [
    *("architecture", "kind", "ratio_low", "ratio_high", "spend", "porting", "ongoing", "months", "capacity"),
    *(
        "region",
        "basis",
        "as_of",
        "saved_low",
        "saved_high",
        "net_low",
        "net_high",
        "break_even_from",
        "break_even_to",
    ),
    *("verdict", "leans", "source"),
]
_TRAINIUM = ("neuron", "torchneuron")


def break_even_table(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Runs until a port pays: published cases and networks of ``costs`` at every region, basis and date that
    prices both sides.

    ``costs`` are rows of cost.csv. Infinite ``runs``: there is no saving. NaN: a side was not run or has
    no price, and ``note`` says which. ``usd_*_sd`` is over seeds; none for published runs.
    """
    rows = [row for case in CASES for row in _published(case, prices, pricing)]
    for (dataset, architecture), some in costs.groupby(["dataset", "architecture"], sort=True):
        rows += _own(f"{dataset} {architecture}", some, prices, pricing)
    return pd.DataFrame(rows, columns=BREAK_EVEN_COLUMNS)


def _published(case: Case, prices: pd.DataFrame, pricing: Pricing) -> list[dict[str, Any]]:
    """A row per region, basis and date; SageMaker's instances (ml.*) have prices of their own."""
    rows = []
    for prefix in ("", "ml."):
        pair = (f"{prefix}{case.here.instance}", f"{prefix}{case.there.instance}")
        for region, regime, here, there in of_pair(prices, pair, pricing.region):
            usd = (case.here.hours * here["usd_per_hour"], case.there.hours * there["usd_per_hour"])
            rows.append(
                {
                    "case": case.name, "kind": "published", "here": pair[0], "there": pair[1],
                    "region": region, "basis": regime.basis, "as_of": dates_of(here, there),
                    "source": case.source, **_runs(usd, "published hours times listed prices"),
                }
            )  # fmt: skip
    return rows


def _runs(usd: tuple[float, float], note: str) -> dict[str, Any]:
    here, there = usd
    runs = break_even_runs(PORTING_USD, here, there)
    return {
        "usd_here": here, "usd_there": there, "saving": here - there, "porting": PORTING_USD, "runs": runs,
        "note": note if math.isfinite(runs) else "never: no saving",
    }  # fmt: skip


def _own(name: str, costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> list[dict[str, Any]]:
    """What our own cells of a network say of CUDA against Trainium: comparable runs, at every price."""
    usable = costs[costs["status"] == "ok"]
    there = next((p for p in _TRAINIUM if p in set(usable["platform"])), _TRAINIUM[0])
    missing = [p for p in ("cuda", there) if p not in set(usable["platform"])]
    row = {"case": name, "source": "this paper's cells"}
    if missing:
        run = costs[costs["platform"].isin(("cuda", there))]
        return [
            row | {
                "kind": " and ".join(dict.fromkeys(run["kind"])) or "not run",
                "here": _instance("cuda", run, pricing), "there": _instance(there, run, pricing),
                "region": pricing.region, "basis": pricing.basis, "as_of": "",
                "porting": PORTING_USD, "note": f"not run: {', '.join(missing)}",
            }
        ]  # fmt: skip
    runs, differs = comparable(usable[usable["platform"].isin(("cuda", there))])
    ends = [runs[runs["platform"] == platform].iloc[0] for platform in ("cuda", there)]
    row |= {
        "kind": " and ".join(dict.fromkeys(end["kind"] for end in ends)),
        "here": ends[0]["instance"], "there": ends[1]["instance"],
    }  # fmt: skip
    done = "mean over seeds, failed attempts charged" + (f"; {differs}" if differs else "")
    rows = []
    for region, regime, *at in of_pair(prices, (row["here"], row["there"]), pricing.region):
        rates = [price["usd_per_hour"] / end["usd_per_hour"] for price, end in zip(at, ends, strict=True)]
        usd = (rates[0] * ends[0]["cost_to_usable"], rates[1] * ends[1]["cost_to_usable"])
        sd = [rate * end["usd_sd"] for rate, end in zip(rates, ends, strict=True)]
        where = {"region": region, "basis": regime.basis, "as_of": dates_of(*at)}
        rows.append(row | where | _runs(usd, done) | {"usd_here_sd": sd[0], "usd_there_sd": sd[1]})
    return rows


def _instance(platform: str, costs: pd.DataFrame, pricing: Pricing) -> str:
    """What the rows of ``platform`` in ``costs`` are priced as; the study's choice where there are none."""
    found = dict.fromkeys(costs.loc[costs["platform"] == platform, "instance"])
    return " and ".join(found) or pricing.instances.get(platform, "")


def ratios(prices: pd.DataFrame, pricing: Pricing) -> list[tuple[str, Ratio, str, str, str]]:
    """Published cost ratios: name, ratio, and region, basis and date of the prices in it.

    The preprint's stands as stated, and at every region, basis and date of the study's pair whose prices
    change it.
    """
    stated = ("not stated", "not stated", "not stated")
    found = [("transformer", PUBLISHED["transformer"], *stated), ("cnn", PREPRINT, *stated)]
    pair = study_pair(pricing)
    for region, regime, here, there in of_pair(prices, pair, pricing.region) if pair else ():
        told = preprint_at(prices, pair, regime, region) if pair else None
        if told is not None and not math.isclose(told.ratio[0], PREPRINT.low):
            source = f"{PREPRINT.source}; run times unchanged, {' against '.join(pair or ())}"
            name = f"cnn at {regime.basis.replace('_', ' ')} prices"
            ratio = Ratio(*told.ratio, PREPRINT.kind, source)
            found.append((name, ratio, region, regime.basis, dates_of(here, there)))
    return found


def preprint_at(prices: pd.DataFrame, pair: tuple[str, str], regime: Regime, region: str) -> Repriced | None:
    """The preprint's cost ratio at ``regime``, taken to be on demand at the prices of its day, or the newest
    where the table has none so old; none where a price is missing."""
    for then in (Regime("on_demand", PREPRINT_DATE), Regime("on_demand")):
        try:
            return reprice((PREPRINT.low, PREPRINT.high), prices, *pair, then, regime, region)
        except NoPrice:
            continue
    return None


def study_pair(pricing: Pricing) -> tuple[str, str] | None:
    """The study's Trainium and CUDA instance; none when it names only one of them."""
    there, here = pricing.instances.get("neuron"), pricing.instances.get("cuda")
    return (there, here) if there and here else None


def decision_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """The sources' decision tables answered with arithmetic: scenario by published cost ratio."""
    rows = []
    for name, ratio, region, basis, as_of in ratios(prices, pricing):
        for case in SCENARIOS:
            told = decide(case.spend, ratio, case.porting, case.months, case.capacity, case.ongoing)
            rows.append(
                (
                    name, ratio.kind, ratio.low, ratio.high, case.spend, case.porting, case.ongoing,
                    case.months, case.capacity, region, basis, as_of, *told.saving_per_month,
                    *told.net_over_horizon, *sorted(told.months_to_break_even), told.verdict, case.leans,
                    f"{ratio.source}; {case.source}",
                )
            )  # fmt: skip
    return pd.DataFrame(rows, columns=DECISION_COLUMNS)


def months(value: float) -> str:
    """Months, or the word for infinitely many."""
    return "never" if math.isinf(value) else f"{value:.1f}"
