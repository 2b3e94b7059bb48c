"""Break-even and decisions as tables: published runs at each date's prices, and our own cells."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.breakeven import PUBLISHED, Ratio, break_even_runs, decide, repriced_ratio
from cxrbench.cost.cases import CASES, PORTING_USD, PREPRINT, PREPRINT_DATE, PRICE_DATES, SCENARIOS, Case
from cxrbench.cost.prices import UNDATED, price
from cxrbench.cost.regimes import Regime, available
from cxrbench.errors import UserError

BREAK_EVEN_COLUMNS = [
    *("case", "kind", "here", "there", "region", "basis", "as_of", "usd_here", "usd_there", "saving"),
    *("porting", "runs", "source", "note"),
]
DECISION_COLUMNS = [
    *("architecture", "kind", "ratio_low", "ratio_high", "spend", "porting", "months", "capacity", "region"),
    *("basis", "as_of", "saved_low", "saved_high", "net_low", "net_high", "break_even_from", "break_even_to"),
    *("verdict", "leans", "source"),
]
_TRAINIUM = ("neuron", "torchneuron")


def break_even_table(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Runs until a port pays, one row per published case and date and per network of ``costs``.

    ``costs`` are rows of cost.csv. Infinite ``runs``: there is no saving. NaN: a side was not run or has
    no price, and ``note`` says which.
    """
    rows = [_published(case, as_of, prices, pricing.region) for case in CASES for as_of in PRICE_DATES]
    rows += _own(costs, pricing)
    return pd.DataFrame(rows, columns=BREAK_EVEN_COLUMNS).drop_duplicates(
        ["case", "as_of"], ignore_index=True
    )


def _published(case: Case, as_of: str | None, prices: pd.DataFrame, region: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case": case.name, "kind": "published", "here": case.here.instance, "there": case.there.instance,
        "region": region, "basis": case.here.basis, "as_of": as_of or "", "porting": PORTING_USD,
        "source": case.source, "note": "published hours times listed prices",
    }  # fmt: skip
    sides = (case.here, case.there)
    try:
        found = [price(prices, side.instance, region, side.basis, as_of) for side in sides]
    except UserError as error:
        return row | {"note": str(error)}
    usd = [side.hours * one["usd_per_hour"] for side, one in zip(sides, found, strict=True)]
    dates = dict.fromkeys(one["as_of"] or UNDATED for one in found)
    row |= {"as_of": " and ".join(dates)} | _runs(*usd)
    return row if math.isfinite(row["runs"]) else row | {"note": "never: no saving"}


def _runs(here: float, there: float) -> dict[str, float]:
    runs = break_even_runs(PORTING_USD, here, there)
    return {"usd_here": here, "usd_there": there, "saving": here - there, "runs": runs}


def _own(costs: pd.DataFrame, pricing: Pricing) -> list[dict[str, Any]]:
    """One row per data set and network: what our own cells say of CUDA against Trainium."""
    rows = []
    for (dataset, architecture), some in costs.groupby(["dataset", "architecture"], sort=True):
        usable = some[some["status"] == "ok"].groupby("platform")["cost_to_usable"].mean()
        there = next((p for p in _TRAINIUM if p in usable.index), _TRAINIUM[0])
        missing = [p for p in ("cuda", there) if p not in usable.index]
        pair = some[some["platform"].isin(("cuda", there))]
        kinds, dates = (" and ".join(dict.fromkeys(pair[column])) for column in ("kind", "as_of"))
        done = "mean over seeds, failed attempts charged"
        row = {
            "case": f"{dataset} {architecture}", "kind": kinds or "not run",
            "here": _instance("cuda", pair, pricing), "there": _instance(there, pair, pricing),
            "region": pricing.region,
            "basis": pricing.basis, "as_of": dates,
            "porting": PORTING_USD, "source": "this paper's cells",
            "note": f"not run: {', '.join(missing)}" if missing else done,
        }  # fmt: skip
        rows.append(row if missing else row | _runs(usable["cuda"], usable[there]))
    return rows


def _instance(platform: str, costs: pd.DataFrame, pricing: Pricing) -> str:
    """What the rows of ``platform`` in ``costs`` are priced as; the study's choice where there are none."""
    found = dict.fromkeys(costs.loc[costs["platform"] == platform, "instance"])
    return " and ".join(found) or pricing.instances.get(platform, "")


def ratios(prices: pd.DataFrame, pricing: Pricing) -> dict[str, tuple[Ratio, str, str]]:
    """Published cost ratios by architecture, each with the basis and the date of the prices in it."""
    found = {
        "transformer": (PUBLISHED["transformer"], "not stated", "not stated"),
        "cnn": (PREPRINT, "not stated", "not stated"),
    }
    pair = study_pair(pricing)
    if pair and (spot := [one for one in available(prices, pair, pricing.region) if one.basis == "spot"]):
        asked = spot[-1]
        then = Regime("on_demand", PREPRINT_DATE)
        try:
            ratio = repriced_ratio(PREPRINT, prices, pair, then, asked, pricing.region)
        except UserError:  # one of the pair has no price there
            return found
        found["cnn at spot prices"] = (ratio, "spot", asked.as_of or UNDATED)
    return found


def study_pair(pricing: Pricing) -> tuple[str, str] | None:
    """The study's Trainium and CUDA instance; none when it names only one of them."""
    there, here = pricing.instances.get("neuron"), pricing.instances.get("cuda")
    return (there, here) if there and here else None


def decision_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """The sources' decision tables answered with arithmetic: scenario by published cost ratio."""
    rows = []
    for name, (ratio, basis, as_of) in ratios(prices, pricing).items():
        for one in SCENARIOS:
            told = decide(one.spend, ratio, one.porting, one.months, one.capacity)
            rows.append(
                (
                    name, ratio.kind, ratio.low, ratio.high, one.spend, one.porting, one.months, one.capacity,
                    pricing.region if basis == "spot" else "not stated", basis, as_of, *told.saving_per_month,
                    *told.net_over_horizon, *sorted(told.months_to_break_even), told.verdict, one.leans,
                    f"{ratio.source}; {one.source}",
                )
            )  # fmt: skip
    return pd.DataFrame(rows, columns=DECISION_COLUMNS)


def months(value: float) -> str:
    """Months, or the word for infinitely many."""
    return "never" if math.isinf(value) else f"{value:.1f}"
