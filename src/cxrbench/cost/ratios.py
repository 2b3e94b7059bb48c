"""Cost ratios of Trainium over a GPU: published ones, and the preprint's at other prices, same run times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.cost.devices import SUPPORTED
from cxrbench.cost.prices import BASES, NoPrice, by_the_hour, dates, newest, price, regions
from cxrbench.study.config import Pricing
from cxrbench.study.platforms import GPU, TRAINIUM

_PREPRINT_DATE = "2025-12-23"  # the newest price up to the day of the preprint is taken
# Compared beside the study's own pair.
_PAIRS = (
    ("trn1.2xlarge", "g5.2xlarge"),
    ("trn1.32xlarge", "p4d.24xlarge"),
    ("trn1.32xlarge", "p5.48xlarge"),
    ("trn2.48xlarge", "p5en.48xlarge"),
)
_PREPRINT_PAIR = ("trn1.2xlarge", "g5.")  # the smallest trn1: the abstract does not name sizes
_RATIO_COLUMNS = [
    "instance", "baseline", "kind", "region", "basis", "as_of", "usd_instance", "usd_baseline",
    "price_ratio", "published_low", "published_high", "ratio_low", "ratio_high", "ranking", "source",
    "source_other",
]  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """Cost on Trainium over cost on the GPU for the same work, as a range, and where it is from."""

    low: float
    high: float
    kind: str  # measured, proxy, given, projected, published or unknown
    source: str
    hardware: str = ""  # the accelerator that it is of, as data/prices.csv names it; empty: not stated
    own: bool = False  # from a measurement of the user's: no other ratio decides for a port
    instance: str = ""  # the Trainium instance that it is of; empty: not named
    mixed: str = ""  # what differs between the two prices that it divides, such as "two regions"
    two_prices: bool = False  # its ends are one measurement at two prices

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise UserError(
                f"cost ratio {self.low} to {self.high}: write the low end first, both zero or more"
            )


# 30 to 50 % more work per dollar is a cost of 1/1.5 to 1/1.3, not of 0.5 to 0.7.
PUBLISHED_RATIOS = {
    "transformer": Ratio(
        1 / 1.5, 1 / 1.3, "published",
        "AWS's 30 to 50 % better price-performance of Trainium2, as quoted by CloudRoute, Trainium vs GPU",
        "Trainium2",
    ),
    "cnn": Ratio(
        3.0, 5.0, "published",
        "Fisher, medRxiv 2025.12.23.25342933, abstract: trn1 against g5 for CNN training",
        "Trainium",
    ),
}  # fmt: skip
PREPRINT_RATIO = PUBLISHED_RATIOS["cnn"]
# Of networks that no published ratio names: it may be anything.
UNKNOWN_RATIO = Ratio(
    0.0, np.inf, "unknown",
    "the preprint's is of CNNs that its abstract does not list; --ratio or --speeds gives yours",
)  # fmt: skip


def study_pair(pricing: Pricing) -> tuple[str, str] | None:
    """The study's Trainium and GPU instance; None when it names only one of them."""
    trainium, gpu = pricing.instances.get(TRAINIUM[0]), pricing.instances.get(GPU)
    return (trainium, gpu) if trainium and gpu else None


def pair_prices(prices: pd.DataFrame, pair: tuple[str, str], home: str) -> pd.DataFrame:
    """The prices of both instances of ``pair`` at every date of each region and basis that has both.

    ``date`` is empty for undated, ``as_of`` names both prices, ``assumed`` is what one source does not state;
    a price and where it is from stand in ``usd`` and ``source``, those of the second instance in ``*_other``.
    Region ``home`` comes first, dates go up.
    """
    rows = prices[prices["instance"].isin(pair)]
    rows = rows.assign(shown=dates(rows))
    values = ["usd_per_hour", "shown", "source", "assumed"]
    wide = rows.pivot(index=["region", "basis", "as_of"], columns="instance", values=values)
    wide = wide.groupby(level=["region", "basis"]).ffill()
    both = wide.reindex(columns=pd.MultiIndex.from_product([values, pair])).dropna()
    rows = both.index.to_frame(index=False, name=["region", "basis", "date"])
    rows["as_of"] = [" and ".join(dict.fromkeys(dates)) for dates in both["shown"].to_numpy()]
    rows["usd"], rows["usd_other"] = both["usd_per_hour"].to_numpy(float).T
    rows["source"], rows["source_other"] = both["source"].to_numpy(object).T
    rows["assumed"] = both["assumed"].max(axis=1).to_numpy(object)
    rows["price_ratio"] = rows["usd"] / rows["usd_other"]
    place = {home: ""} | {basis: str(number) for number, basis in enumerate(BASES)}
    in_order = rows.sort_values(["region", "basis"], key=lambda names: names.replace(place), kind="stable")
    return in_order.reset_index(drop=True)


def thresholds(prices: pd.DataFrame, gpu: str, pricing: Pricing) -> pd.DataFrame:
    """A row for each Trainium instance that AWS supports for training: how many times the images/s of
    ``gpu`` it must reach to cost the same (``price_ratio``).

    The two prices are the newest of one region and basis where the table has such a pair, else of one basis,
    else of any two; ``mixed`` says what differs, empty for nothing. ``*_gpu`` are of the GPU's price.
    Capacity blocks are left out, and spot prices of the GPU that are no lower than its price on demand.
    """
    rows = newest(by_the_hour(prices), pricing.as_of)
    home = rows[(rows["region"] == pricing.region) & (rows["basis"] == "on_demand")]
    demand = home.set_index("instance")["usd_per_hour"].get(gpu, np.inf)
    rows = rows[(rows["instance"] != gpu) | (rows["basis"] != "spot") | (rows["usd_per_hour"] < demand)]
    pairs = rows[rows["accelerator"].isin(SUPPORTED)].merge(
        rows[rows["instance"] == gpu], how="cross", suffixes=("", "_gpu")
    )
    differ = {name: pairs[name] != pairs[f"{name}_gpu"] for name in ("basis", "region")}
    away = [(pairs[f"{name}_gpu"] != getattr(pricing, name)).rename(f"far_{name}") for name in differ]
    order = pd.concat([*(flag.rename(f"two_{name}") for name, flag in differ.items()), *away], axis=1)
    mixed = [_mixed(row) for row in pairs.to_dict("records")]
    pairs = pairs.assign(price_ratio=pairs["usd_per_hour"] / pairs["usd_per_hour_gpu"], mixed=mixed)
    pairs = pairs.join(order).sort_values([*order, "usd_per_hour", "usd_per_hour_gpu"], kind="stable")
    best = pairs.drop_duplicates("instance").sort_values("usd_per_hour", kind="stable")
    return best.drop(columns=[*order]).reset_index(drop=True)


def cheapest_block(prices: pd.DataFrame, gpu: str, pricing: Pricing, instance: str) -> pd.DataFrame:
    """The cheapest capacity block of a Trainium ``instance`` over that of ``gpu``, a row as of
    :func:`thresholds`; a GPU that has none is taken at the study's region and basis. No row where a price is
    missing."""
    blocks = newest(prices, pricing.as_of, basis="capacity_block").sort_values("usd_per_hour", kind="stable")
    block, own = (blocks[blocks["instance"] == name].head(1) for name in (instance, gpu))
    try:
        quote = price(prices, gpu, pricing.region, pricing.basis, pricing.as_of) if own.empty else own.iloc[0]
    except NoPrice:
        return block.head(0)
    of_gpu = {f"{name}_gpu": quote[name] for name in ("usd_per_hour", "basis", "region", "as_of")}
    block = block.assign(price_ratio=block["usd_per_hour"] / quote["usd_per_hour"], **of_gpu)
    return block.assign(mixed=[_mixed(row) for row in block.to_dict("records")])


def _mixed(row: Mapping[Any, Any]) -> str:
    """What the two prices of a row of :func:`thresholds` differ in, in words."""
    words = {"basis": "bases", "region": "regions"}
    return " and ".join(f"two {word}" for name, word in words.items() if row[name] != row[f"{name}_gpu"])


def two_prices(row: Mapping[Any, Any]) -> str:
    """The two prices behind a row of :func:`thresholds` with basis, region and date, and what differs."""
    chip, gpu = (f"{row[f'usd_per_hour{side}']:.3g} USD/h ({where(row, side)})" for side in ("", "_gpu"))
    prices = f"{chip} over {gpu}"
    return f"{prices}; the prices are of {row['mixed']}" if row["mixed"] else prices


def where(row: Mapping[Any, Any], side: str = "") -> str:
    """Basis, region and date of a price of a row of :func:`thresholds`; ``side``: ``_gpu`` for the GPU's."""
    basis = row[f"basis{side}"].replace("_", " ")
    return f"{basis}, {row[f'region{side}']}, {row[f'as_of{side}']}"


def supported_on(needed: pd.DataFrame, instance: str) -> pd.DataFrame:
    """The row of :func:`thresholds` (``needed``) that is of ``instance``.

    UserError where there is none: AWS supports no training on it, or a price is missing.
    """
    rows = needed[needed["instance"] == instance]
    if rows.empty:
        raise UserError(
            f"--trainium: no price of a pair with {instance} that AWS supports for training (known: "
            f"{', '.join(needed['instance']) or 'none'}); name another, or leave --trainium out"
        )
    return rows


def ratio_given(low: float, high: float, needed: pd.DataFrame, instance: str | None) -> Ratio:
    """The user's own cost ratio; ``instance``, where it is named, is the first of ``needed``."""
    if np.isinf(high):
        raise UserError(f"--ratio: {high} is no cost ratio; give two finite numbers")
    if not instance:
        return Ratio(low, high, "given", "your own ratio; --trainium names its instance", own=True)
    row = needed.iloc[0]
    source = f"your own ratio of {instance} over {row['instance_gpu']}"
    return Ratio(low, high, "given", source, row["accelerator"], own=True, instance=instance)


def ratio_of_speeds(gpu: float, trainium: float, needed: pd.DataFrame, block: pd.DataFrame) -> Ratio:
    """The cost ratio of two measured speeds, in images/s of whole instances: at the two prices of the first
    row of :func:`thresholds` (``needed``), and of :func:`cheapest_block` where there is one."""
    for speed in (gpu, trainium):
        if not 0 < speed < np.inf:
            raise UserError(f"--speeds: {speed:g} is not a valid speed; give images per second, above zero")
    if needed.empty:
        raise UserError(
            "no price of a pair of the GPU with a Trainium instance that AWS supports for training (known: "
            "none); name another --gpu, or give --ratio LOW HIGH"
        )
    rows = [needed.iloc[0].to_dict(), *block.to_dict("records")]
    row, ratios = rows[0], [float(pair["price_ratio"]) * gpu / trainium for pair in rows]
    prices = "; or ".join(
        f"{two_prices(pair)}: {ratio:.2f}" for pair, ratio in zip(rows, ratios, strict=True)
    )
    source = (
        f"your {gpu:g} images/s on {row['instance_gpu']} and {trainium:g} on {row['instance']}, at {prices}"
    )
    named = {"hardware": row["accelerator"], "instance": row["instance"], "mixed": row["mixed"]}
    at_two = len(rows) > 1
    return Ratio(min(ratios), max(ratios), "given", source, own=True, two_prices=at_two, **named)


def preprint_at(prices: pd.DataFrame, pair: tuple[str, str], home: str) -> pd.DataFrame:
    """Rows of :func:`pair_prices` with the preprint's ratio at those prices, run times unchanged.

    ``time_*`` is the ratio of run times, ``then`` the date of the prices taken for the stated one: on demand
    in the same region, the newest up to :data:`_PREPRINT_DATE`, else the newest. NaN in regions without.
    """
    rows = pair_prices(prices, pair, home)
    demand = rows[rows["basis"] == "on_demand"]
    stated = pd.concat([demand, demand[demand["date"] <= _PREPRINT_DATE]])
    stated = stated.drop_duplicates("region", keep="last").set_index("region")
    then = rows["region"].map(stated["price_ratio"])
    for end in ("low", "high"):
        rows[f"time_{end}"] = getattr(PREPRINT_RATIO, end) / then
        rows[f"ratio_{end}"] = rows[f"time_{end}"] * rows["price_ratio"]
    turns = [rows["ratio_low"].isna(), rows["ratio_high"] < 1, rows["ratio_low"] < 1]
    rows["ranking"] = np.select(turns, ["", "turns", "may turn"], "does not turn")
    return rows.assign(then=rows["region"].map(stated["as_of"]))


def ratio_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Price ratios of Trainium and GPU instances in every region, basis and at every date that prices
    both, and what the preprint's 3 to 5 times becomes there.

    ``kind`` is that of the preprint's ratio there; published where a row has no more than prices.
    """
    tables = []
    for pair in _pairs(pricing):
        rows = preprint_at(prices, pair, pricing.region).assign(instance=pair[0], baseline=pair[1])
        if not all(name.startswith(start) for name, start in zip(pair, _PREPRINT_PAIR, strict=True)):
            rows = rows.assign(ratio_low=np.nan, ratio_high=np.nan, ranking="")
        tables.append(rows)
    table = pd.concat(tables, ignore_index=True)
    table["region"] = regions(table)
    table["kind"] = np.where(table["ratio_low"].isna(), "published", "projected")
    for end in ("low", "high"):
        table[f"published_{end}"] = np.where(table["ratio_low"].isna(), np.nan, getattr(PREPRINT_RATIO, end))
    return table.rename(columns={"usd": "usd_instance", "usd_other": "usd_baseline"})[_RATIO_COLUMNS]


def _pairs(pricing: Pricing) -> list[tuple[str, str]]:
    return [*dict.fromkeys(filter(None, [study_pair(pricing), *_PAIRS]))]


def notes(prices: pd.DataFrame, pair: tuple[str, str], region: str, basis: str) -> str:
    """The notes on the prices of both instances in brackets, or an empty text."""
    same = (prices["region"] == region) & (prices["basis"] == basis) & prices["instance"].isin(pair)
    distinct = [note for note in prices.loc[same, "note"].unique() if note]
    return f" ({'; '.join(distinct)})" if distinct else ""
