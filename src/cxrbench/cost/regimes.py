"""The same run times at other prices: by basis and by date, and the sentence that says what changes.

Run times never change here, so a regime can turn a ranking only through prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cxrbench.cost.cells import charge, charge_failures, priced_as
from cxrbench.cost.comparable import comparable
from cxrbench.cost.prices import BASES, UNDATED, newest, price
from cxrbench.errors import UserError
from cxrbench.platform_names import ACCELERATED


@dataclass(frozen=True)
class Regime:
    """A price basis, and the date up to which prices are taken (ISO, or undated; none: the newest)."""

    basis: str
    as_of: str | None = None

    def __str__(self) -> str:
        if self.as_of is None:
            return self.basis
        return f"{self.basis}, {UNDATED}" if self.as_of == UNDATED else f"{self.basis} up to {self.as_of}"


def available(prices: pd.DataFrame, instances: Iterable[str], region: str) -> list[Regime]:
    """Every basis and date at which the table prices one of ``instances`` in ``region``: bases in order,
    each from its oldest date to its newest."""
    here = prices[prices["instance"].isin(list(instances)) & (prices["region"] == region)]
    dates = {basis: sorted(set(rows["as_of"])) for basis, rows in here.groupby("basis")}
    return [Regime(basis, date or UNDATED) for basis in BASES for date in dates.get(basis, [])]


def of_pair(
    prices: pd.DataFrame, pair: tuple[str, str], first: str
) -> Iterator[tuple[str, Regime, pd.Series, pd.Series]]:
    """Every region, basis and date that prices both instances of ``pair``, with the two rows; the region
    ``first`` before the others, and dates at which neither price was renewed once."""
    some, seen = prices[prices["instance"].isin(pair)], set()
    regions = [region for region, rows in some.groupby("region") if set(pair) <= set(rows["instance"])]
    for region in sorted(regions, key=lambda name: (name != first, name)):
        for regime in available(some, pair, region):
            rows = newest(some, regime.as_of, region, [regime.basis], pair).set_index("instance")
            if set(pair) <= set(rows.index):
                here, there = rows.loc[pair[0]], rows.loc[pair[1]]
                known = (region, regime.basis, here["as_of"], there["as_of"])
                if known not in seen:
                    seen.add(known)
                    yield region, regime, here, there


def dates_of(*rows: pd.Series) -> str:
    """The dates of price rows, each once: ``2025-04-28 and undated``."""
    return " and ".join(dict.fromkeys(row["as_of"] or UNDATED for row in rows))


def regimes(
    hours: pd.DataFrame,
    prices: pd.DataFrame,
    instances: Mapping[Any, str],
    wanted: Iterable[Regime],
    region: str = "us-east-1",
    basis: str = "on_demand",
) -> pd.DataFrame:
    """Cost rows of every cell of ``hours`` under every regime, with a column ``regime`` in front.

    A cell is the same machine in all of them, the one that :func:`~cxrbench.cost.cells.priced_as` finds in
    ``region`` and ``basis``, or SageMaker's of it (ml.*) where the cell ran on that and the regime prices it:
    a regime can then turn a ranking only through prices. A cell without a price under a regime (or without an
    instance) has no row there: nothing is filled in.
    """
    hours = hours.assign(priced_as=priced_as(hours, prices, instances, region, basis))
    tables = []
    for regime in wanted:
        rows = newest(
            prices, regime.as_of, region, [regime.basis], {*hours["priced_as"], *hours["host_instance"]}
        )
        at = rows.set_index("instance", drop=False)
        own = hours["host_instance"]
        same = own.isin(at.index) & (own.str.removeprefix("ml.") == hours["priced_as"])
        at_regime = own.where(same, hours["priced_as"])
        here = at_regime.isin(at.index)
        if here.any():
            costs = charge_failures(charge(hours[here].drop(columns="priced_as"), at.loc[at_regime[here]]))
            tables.append(costs.assign(regime=str(regime)))
    if not tables:
        raise UserError(f"no price in {region} under any of these regimes; add rows to prices.csv")
    table = pd.concat(tables, ignore_index=True)
    return table[["regime", *(c for c in table.columns if c != "regime")]]


def rankings(table: pd.DataFrame) -> list[str]:
    """One sentence per dataset and architecture with two platforms or more: does the ranking turn?

    Platforms are ranked by mean USD per usable model, over seeds, from cheapest to dearest, on
    :func:`~cxrbench.cost.comparable.comparable` runs; a sentence says what still differs between them. Only
    regimes that price every platform are compared: a missing price is not a cheap one. Where there are
    other platforms too, a second sentence ranks two or more accelerators alone: they have prices in
    regimes in which an instance without one has none.
    """
    sentences = []
    for (dataset, architecture), group in table.groupby(["dataset", "architecture"], sort=True):
        accelerated = group["platform"].isin(ACCELERATED)
        ranked = {"": group}
        if not accelerated.all():
            ranked[", accelerators alone"] = group[accelerated]
        for whose, some in ranked.items():
            runs, differs = _chosen(some)
            if orders := _orders(runs):
                note = f" ({differs})" if differs else ""
                sentences.append(f"{dataset}/{architecture}{whose}: {_turning(orders)}{note}")
    return sentences


def _chosen(group: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of ``group`` whose runs compare its platforms, in all regimes, and what still differs."""
    chosen, differs = comparable(group.drop_duplicates(["cell", "origin"]))
    runs = set(zip(chosen["cell"], chosen["origin"], strict=True))
    here = [run in runs for run in zip(group["cell"], group["origin"], strict=True)]
    return group.loc[pd.Series(here, group.index, dtype=bool)], differs


def _orders(runs: pd.DataFrame) -> dict[str, str]:
    """Regime -> platforms from cheapest to dearest, where two or more are compared and all have a price."""
    usd = runs.groupby(["regime", "platform"])["cost_to_usable"].mean().dropna().to_dict()
    names = {platform: _listed(some["instance"]) for platform, some in runs.groupby("platform")}
    orders = {}
    for regime in dict.fromkeys(runs["regime"]):
        priced = [platform for platform in names if (regime, platform) in usd]
        if len(priced) == len(names) > 1:
            cheapest = sorted(names, key=lambda platform: usd[regime, platform])
            orders[regime] = " < ".join(f"{platform} ({names[platform]})" for platform in cheapest)
    return orders


def _listed(values: pd.Series) -> str:
    """Different values in order, joined."""
    return ", ".join(dict.fromkeys(values))


def _turning(orders: dict[str, str]) -> str:
    by_order: dict[str, list[str]] = {}
    for regime, order in orders.items():
        by_order.setdefault(order, []).append(regime)
    said = "; ".join(f"{order} under {', '.join(under)}" for order, under in by_order.items())
    if len(orders) == 1:
        return f"only one regime prices every platform: {said}"
    return f"the ranking turns: {said}" if len(by_order) > 1 else f"the ranking is the same: {said}"


@dataclass(frozen=True)
class Repriced:
    """A published cost ratio at other prices, its run times unchanged."""

    time_ratio: tuple[float, float]
    ratio: tuple[float, float]
    price_ratio: float
    turns: str  # turns, may turn, does not turn
    sentence: str


def reprice(
    published: tuple[float, float],
    prices: pd.DataFrame,
    instance: str,
    baseline: str,
    published_at: Regime,
    asked: Regime,
    region: str = "us-east-1",
) -> Repriced:
    """What a published range of cost ratios ``instance``/``baseline`` becomes under another regime."""
    then, then_at = _price_ratio(prices, instance, baseline, region, published_at)
    now, now_at = _price_ratio(prices, instance, baseline, region, asked)
    low, high = sorted(published)
    times = (low / then, high / then)
    ratio = (times[0] * now, times[1] * now)
    turned = "turns" if ratio[1] < 1 else "may turn" if ratio[0] < 1 else "does not turn"
    sentence = (
        f"{instance} at {low:g} to {high:g} times the cost of {baseline} (published; priced {then_at}) "
        f"means {times[0]:.2f} to {times[1]:.2f} times its hours; the same hours priced {now_at} cost "
        f"{ratio[0]:.2f} to {ratio[1]:.2f} times as much: the ranking {turned}. It turns where an hour of "
        f"{instance} costs less than {1 / times[1]:.2f} to {1 / times[0]:.2f} of an hour of {baseline}."
    )
    return Repriced(times, ratio, now, turned, sentence)


def _price_ratio(
    prices: pd.DataFrame, instance: str, baseline: str, region: str, regime: Regime
) -> tuple[float, str]:
    rows = [price(prices, name, region, regime.basis, regime.as_of) for name in (instance, baseline)]
    return rows[0]["usd_per_hour"] / rows[1][
        "usd_per_hour"
    ], f"{regime.basis.replace('_', ' ')}, {region}, {dates_of(*rows)}"
