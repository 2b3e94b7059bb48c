"""The same cells, and the published cost ratio, under every price basis and date of the table."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.cases import PREPRINT
from cxrbench.cost.cells import priced_as
from cxrbench.cost.prices import KEY
from cxrbench.cost.regimes import Regime, available, dates_of, of_pair, rankings, regimes
from cxrbench.errors import UserError
from cxrbench.report.breakeven import preprint_at, study_pair

RATIO_COLUMNS = [
    *(
        "instance",
        "baseline",
        "kind",
        "region",
        "basis",
        "as_of",
        "usd_instance",
        "usd_baseline",
        "price_ratio",
    ),
    *("published_low", "published_high", "ratio_low", "ratio_high", "ranking"),
]
# Which instances to compare beside the study's own pair; the preprint's ratio is of trn1 against g5.
_PAIRS = (
    ("trn1.2xlarge", "g5.2xlarge"),
    ("trn1.32xlarge", "p4d.24xlarge"),
    ("trn1.32xlarge", "p5.48xlarge"),
    ("trn2.48xlarge", "p5en.48xlarge"),
)
_PREPRINT = ("trn1.2xlarge", "g5.")  # the smallest trn1: the abstract does not name sizes


def regime_table(hours: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Cost rows of every cell of ``hours`` under every basis and date that prices the study's instances, or
    those that the cells ran on.

    Columns: ``regime``, then those of cost.csv; hours never change. No rows when there are no cells.
    """
    if hours.empty:
        return pd.DataFrame(columns=["regime"])
    where = (pricing.region, pricing.basis)
    chosen = priced_as(hours, prices, pricing.instances, *where)
    named = {*pricing.instances.values(), *chosen.dropna(), *hours["host_instance"]}
    wanted = available(prices, named, pricing.region)
    try:
        return regimes(hours, prices, pricing.instances, wanted, *where)
    except UserError:  # cells of platforms without an instance or a price
        return pd.DataFrame(columns=["regime"])


def ranking_sentences(table: pd.DataFrame) -> list[str]:
    """Per network with cells on two platforms or more, whether the ranking turns; said when there is none."""
    said = rankings(table) if len(table) else []
    return said or ["no network has usable cells on two platforms: no ranking of our own cells yet"]


def ratio_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Price ratios of Trainium and GPU instances in every region, basis and at every date that prices both,
    and what the preprint's 3 to 5 times becomes there with its run times unchanged."""
    own = study_pair(pricing)
    pairs = dict.fromkeys([*([own] if own else []), *_PAIRS])
    rows = [_ratio(prices, pair, *found) for pair in pairs for found in of_pair(prices, pair, pricing.region)]
    return pd.DataFrame(rows, columns=RATIO_COLUMNS)


def _ratio(
    prices: pd.DataFrame,
    pair: tuple[str, str],
    region: str,
    regime: Regime,
    here: pd.Series,
    there: pd.Series,
) -> tuple[Any, ...]:
    """One row of :func:`ratio_table`."""
    usd, base = here["usd_per_hour"], there["usd_per_hour"]
    row = (*pair, "published", region, regime.basis, dates_of(here, there), usd, base, usd / base)
    compared = pair[0].startswith(_PREPRINT[0]) and pair[1].startswith(_PREPRINT[1])
    told = preprint_at(prices, pair, regime, region) if compared else None
    if told is None:
        return (*row, None, None, None, None, "")
    return (*row, PREPRINT.low, PREPRINT.high, *told.ratio, told.turns)


def turning_sentences(prices: pd.DataFrame, pricing: Pricing, ratios: pd.DataFrame) -> tuple[str, str]:
    """What the preprint's ratio becomes at the newest spot prices and when it turns; and the range of it over
    all regimes of the same pair in ``ratios``, with those where the ranking may turn."""
    pair = study_pair(pricing)
    if pair is None:
        return "The study names no instance for both platforms: its price ratio is not defined.", ""
    spot = [regime for regime in available(prices, pair, pricing.region) if regime.basis == "spot"]
    told = preprint_at(prices, pair, spot[-1], pricing.region) if spot else None
    if told is None:
        return f"There is no spot price of both {pair[0]} and {pair[1]} in {pricing.region}.", ""
    own = ratios[(ratios["instance"] == pair[0]) & (ratios["baseline"] == pair[1])]
    own = own[own["ratio_low"].notna()]
    turning = own[own["ranking"] != "does not turn"]
    at = ", ".join(
        f"{row.region} {row.basis.replace('_', ' ')} ({row.as_of})" for row in turning.itertuples()
    )
    count = {0: "none", 1: "one"}.get(len(turning), str(len(turning)))
    return (
        told.sentence,
        f"Over the {len(own)} prices that the table has of both, {own['ratio_low'].min():.2f} to "
        f"{own['ratio_high'].max():.2f} times; with run times unchanged, {pair[0]} could be cheaper than "
        f"{pair[1]} at {count} of them{f': {at}' if at else ''}.",
    )


def price_table(prices: pd.DataFrame, region: str) -> pd.DataFrame:
    """All rows of the price table in ``region``, cheapest instance first, for the table of prices."""
    rows = prices[prices["region"] == region]
    cheapest = rows.groupby("instance")["usd_per_hour"].max()
    order = rows.assign(order=rows["instance"].map(cheapest))
    return (
        order.sort_values(["order", *KEY, "as_of"], kind="stable")
        .drop(columns="order")
        .reset_index(drop=True)
    )
