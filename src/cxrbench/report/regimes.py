"""The same cells, and the published cost ratio, under every price basis and date of the table."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.cases import PREPRINT, PREPRINT_DATE
from cxrbench.cost.cells import priced_as
from cxrbench.cost.prices import KEY, UNDATED, newest
from cxrbench.cost.regimes import Regime, Repriced, available, rankings, regimes, reprice
from cxrbench.errors import UserError
from cxrbench.report.breakeven import study_pair

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
    rows = []
    for pair in dict.fromkeys([*([own] if own else []), *_PAIRS]):
        some = prices[prices["instance"].isin(pair)]
        both = some.groupby("region")["instance"].nunique() == 2
        for region in sorted(both[both].index, key=lambda name: (name != pricing.region, name)):
            here = some[some["region"] == region]
            for regime in available(here, pair, region):
                if (row := _ratio(here, pair, region, regime)) is not None:
                    rows.append(row)
    table = pd.DataFrame(rows, columns=RATIO_COLUMNS)
    return table.drop_duplicates(["instance", "baseline", "region", "basis", "as_of"], ignore_index=True)


def _ratio(
    prices: pd.DataFrame, pair: tuple[str, str], region: str, regime: Regime
) -> tuple[Any, ...] | None:
    """One row of :func:`ratio_table`; none when one of the pair has no price at ``regime``."""
    rows = newest(prices, regime.as_of, region, [regime.basis], pair).set_index("instance")
    if len(rows) < 2:
        return None
    here, there = rows.loc[pair[0]], rows.loc[pair[1]]
    dates = " and ".join(dict.fromkeys(one["as_of"] or UNDATED for one in (here, there)))
    ratio = here["usd_per_hour"] / there["usd_per_hour"]
    row = (
        *pair,
        "published",
        region,
        regime.basis,
        dates,
        here["usd_per_hour"],
        there["usd_per_hour"],
        ratio,
    )
    compared = pair[0].startswith(_PREPRINT[0]) and pair[1].startswith(_PREPRINT[1])
    told = preprint_at(prices, pair, regime, region) if compared else None
    if told is None:
        return (*row, None, None, None, None, "")
    return (*row, PREPRINT.low, PREPRINT.high, *told.ratio, told.turns)


def preprint_at(prices: pd.DataFrame, pair: tuple[str, str], regime: Regime, region: str) -> Repriced | None:
    """The preprint's cost ratio at ``regime``, taken to be on demand at the prices of its day, or the newest
    where the table has none so old; none where a price is missing."""
    for then in (Regime("on_demand", PREPRINT_DATE), Regime("on_demand")):
        try:
            return reprice((PREPRINT.low, PREPRINT.high), prices, *pair, then, regime, region)
        except UserError:
            continue
    return None


def turning_sentences(prices: pd.DataFrame, pricing: Pricing, ratios: pd.DataFrame) -> tuple[str, str]:
    """What the preprint's ratio becomes at the newest spot prices and when it turns; and the range of it over
    all regimes of the same pair in ``ratios``, with those where the ranking may turn."""
    pair = study_pair(pricing)
    if pair is None:
        return "The study names no instance for both platforms: its price ratio is not defined.", ""
    spot = [one for one in available(prices, pair, pricing.region) if one.basis == "spot"]
    told = preprint_at(prices, pair, spot[-1], pricing.region) if spot else None
    if told is None:
        return f"There is no spot price of both {pair[0]} and {pair[1]} in {pricing.region}.", ""
    own = ratios[(ratios["instance"] == pair[0]) & (ratios["baseline"] == pair[1])]
    own = own[own["ratio_low"].notna()]
    turning = own[own["ranking"] != "does not turn"]
    where = ", ".join(f"{row.region} {row.basis} ({row.as_of})" for row in turning.itertuples()) or "none"
    return (
        told.sentence,
        f"Over the {len(own)} regimes that price both, {own['ratio_low'].min():.2f} to "
        f"{own['ratio_high'].max():.2f} times; regimes in which the ranking turns or may turn: {where}.",
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
