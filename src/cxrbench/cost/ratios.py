"""Cost ratios of Trainium over a GPU: published ones, and what they become at other prices.

Run times never change here, so a ranking can turn only through prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cxrbench.cost.prices import BASES, UNDATED
from cxrbench.study.config import Pricing
from cxrbench.study.errors import UserError
from cxrbench.study.platform_names import GPU, TRAINIUM

PREPRINT_DATE = "2025-12-23"  # the day of the preprint: the newest price up to then is taken
# Which instances to compare beside the study's own pair; the preprint's ratio is of trn1 against g5.
_PAIRS = (
    ("trn1.2xlarge", "g5.2xlarge"),
    ("trn1.32xlarge", "p4d.24xlarge"),
    ("trn1.32xlarge", "p5.48xlarge"),
    ("trn2.48xlarge", "p5en.48xlarge"),
)
_PREPRINT_PAIR = ("trn1.2xlarge", "g5.")  # the smallest trn1: the abstract does not name sizes


@dataclass(frozen=True)
class Ratio:
    """Cost on Trainium over cost on the GPU for the same work, as a range, and where it is from."""

    low: float
    high: float
    kind: str  # measured, proxy, projected or published
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise UserError(f"cost ratio {self.low} to {self.high}: write low and high, both zero or more")


# 30 to 50 % more work per dollar is a cost of 1/1.5 to 1/1.3, not of 0.5 to 0.7.
PUBLISHED = {
    "transformer": Ratio(
        1 / 1.5, 1 / 1.3, "published",
        "AWS's 30 to 50 % better price-performance of Trainium2, as quoted by CloudRoute, Trainium vs GPU",
    ),
    "cnn": Ratio(
        3.0, 5.0, "published",
        "Fisher, medRxiv 2025.12.23.25342933, abstract: trn1 against g5 for CNN training",
    ),
}  # fmt: skip
PREPRINT = PUBLISHED["cnn"]


def study_pair(pricing: Pricing) -> tuple[str, str] | None:
    """Return the study's Trainium and GPU instance; None when it names only one of them."""
    trainium, gpu = pricing.instances.get(TRAINIUM[0]), pricing.instances.get(GPU)
    return (trainium, gpu) if trainium and gpu else None


def pair_prices(prices: pd.DataFrame, pair: tuple[str, str], home: str) -> pd.DataFrame:
    """Return the prices of both instances of ``pair`` at every date of each region and basis that has both.

    Columns: region, basis, ``date`` (empty: undated), ``as_of`` (of both prices, in words), ``usd`` and
    ``usd_other`` per hour, ``price_ratio``. Region ``home`` comes first; bases in order, dates upwards.
    """
    some = prices[prices["instance"].isin(pair)]
    some = some.assign(shown=some["as_of"].replace("", UNDATED))

    def newest_of_both(column: str) -> pd.DataFrame:
        wide = some.pivot(index=["region", "basis", "as_of"], columns="instance", values=column)
        return wide.reindex(columns=list(pair)).groupby(level=["region", "basis"]).ffill().dropna()

    usd, dates = newest_of_both("usd_per_hour"), newest_of_both("shown")
    rows = usd.index.to_frame(index=False, name=["region", "basis", "date"])
    rows["as_of"] = [" and ".join(dict.fromkeys(both)) for both in dates.to_numpy()]
    rows["usd"], rows["usd_other"] = usd.to_numpy(float).T
    rows["price_ratio"] = rows["usd"] / rows["usd_other"]
    place = {home: ""} | {basis: str(number) for number, basis in enumerate(BASES)}
    in_order = rows.sort_values(["region", "basis"], key=lambda names: names.replace(place), kind="stable")
    return in_order.reset_index(drop=True)


def at_prices(ratio: Ratio, rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` of :func:`pair_prices` with what ``ratio`` is at each price, run times unchanged.

    New columns: ``ratio_low``, ``ratio_high``; ``time_low``, ``time_high``, the ratio of run times; and
    ``then``, the date of the prices in ``ratio``: on demand in the same region on the preprint's day, or the
    newest where the table has none so old. NaN in regions without.
    """
    demand = rows[rows["basis"] == "on_demand"]
    old = demand[demand["date"] <= PREPRINT_DATE]
    stated = pd.concat([demand, old]).drop_duplicates("region", keep="last").set_index("region")
    then = rows["region"].map(stated["price_ratio"])
    times = {"time_low": ratio.low / then, "time_high": ratio.high / then}
    return rows.assign(
        **times,
        ratio_low=times["time_low"] * rows["price_ratio"],
        ratio_high=times["time_high"] * rows["price_ratio"],
        then=rows["region"].map(stated["as_of"]),
    )


def ratio_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return price ratios of Trainium and GPU instances in every region, basis and at every date that prices
    both, and what the preprint's 3 to 5 times becomes there."""
    own = study_pair(pricing)
    pairs = dict.fromkeys([*([own] if own else []), *_PAIRS])
    return pd.concat([_ratios(prices, pair, pricing.region) for pair in pairs], ignore_index=True)


def _ratios(prices: pd.DataFrame, pair: tuple[str, str], home: str) -> pd.DataFrame:
    rows = at_prices(PREPRINT, pair_prices(prices, pair, home))
    if not (pair[0].startswith(_PREPRINT_PAIR[0]) and pair[1].startswith(_PREPRINT_PAIR[1])):
        rows[["ratio_low", "ratio_high"]] = np.nan
    low, high = rows["ratio_low"], rows["ratio_high"]
    turns = [_turns(*ends) for ends in zip(low, high, strict=True)]
    stated = {"published_low": PREPRINT.low, "published_high": PREPRINT.high}
    columns = {
        "instance": pair[0], "baseline": pair[1], "kind": "published", "region": rows["region"],
        "basis": rows["basis"], "as_of": rows["as_of"], "usd_instance": rows["usd"],
        "usd_baseline": rows["usd_other"], "price_ratio": rows["price_ratio"],
        **{name: low.where(low.isna(), value) for name, value in stated.items()},
        "ratio_low": low, "ratio_high": high, "ranking": turns,
    }  # fmt: skip
    return pd.DataFrame(columns)


def turning_sentences(prices: pd.DataFrame, pricing: Pricing) -> tuple[str, str]:
    """Return a sentence on the preprint's ratio at the newest spot prices and when it turns, and another on
    its range over all prices of the study's pair, with those where the ranking may turn."""
    pair = study_pair(pricing)
    if pair is None:
        return "The study names no instance for both platforms: its price ratio is not defined.", ""
    rows = at_prices(PREPRINT, pair_prices(prices, pair, pricing.region)).dropna()
    spot = rows[(rows["region"] == pricing.region) & (rows["basis"] == "spot")]
    if spot.empty:
        return f"There is no spot price of both {pair[0]} and {pair[1]} in {pricing.region}.", ""
    turning = rows[rows["ratio_low"] < 1]
    at = ", ".join(f"{row.region} {_words(row.basis)} ({row.as_of})" for row in turning.itertuples())
    count = {0: "none", 1: "one"}.get(len(turning), str(len(turning)))
    return (
        _turning_sentence(pair, spot.iloc[-1]),
        f"Over the {len(rows)} prices that the table has of both, {rows['ratio_low'].min():.2f} to "
        f"{rows['ratio_high'].max():.2f} times; with run times unchanged, {pair[0]} could be cheaper than "
        f"{pair[1]} at {count} of them{f': {at}' if at else ''}.",
    )


def _turning_sentence(pair: tuple[str, str], at: pd.Series) -> str:
    instance, baseline = pair
    return (
        f"{instance} at {PREPRINT.low:g} to {PREPRINT.high:g} times the cost of {baseline} (published; "
        f"priced on demand, {at['region']}, {at['then']}) means {at['time_low']:.2f} to "
        f"{at['time_high']:.2f} times its hours; the same hours priced {_words(at['basis'])}, "
        f"{at['region']}, {at['as_of']} cost {at['ratio_low']:.2f} to {at['ratio_high']:.2f} times as much: "
        f"the ranking {_turns(at['ratio_low'], at['ratio_high'])}. It turns where an hour of {instance} "
        f"costs less than {1 / at['time_high']:.2f} to {1 / at['time_low']:.2f} of an hour of {baseline}."
    )


def _turns(low: float, high: float) -> str:
    """Return whether a published ranking turns at cost ratios ``low`` to ``high``; empty: unknown."""
    if np.isnan(low):
        return ""
    return "turns" if high < 1 else "may turn" if low < 1 else "does not turn"


def _words(name: str) -> str:
    return name.replace("_", " ")
