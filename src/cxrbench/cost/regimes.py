"""The same run times at other prices: by basis and by date, and the sentence that says what changes.

Run times never change here, so a regime can turn a ranking only through prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cxrbench.cost.cells import charge, charge_failures, priced_as
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

    Platforms are ranked by mean USD per usable model, over seeds, from cheapest to dearest. Only
    regimes that price every platform are compared: a missing price is not a cheap one. Where there are
    other platforms too, a second sentence ranks two or more accelerators alone: they have prices in
    regimes in which an instance without one has none.
    """
    sentences = []
    for (dataset, architecture), group in table.groupby(["dataset", "architecture"], sort=True):
        usd = group.pivot_table(index="regime", columns="platform", values="cost_to_usable", sort=False)
        accelerators = usd[[platform for platform in usd if platform in ACCELERATED]]
        ranked = {"": usd.dropna()}
        if accelerators.shape[1] < usd.shape[1]:
            ranked[", accelerators alone"] = accelerators.dropna()
        for whose, priced in ranked.items():
            if priced.shape[1] > 1 and len(priced):
                orders = {str(regime): _order(row, group) for regime, row in priced.iterrows()}
                sentences.append(f"{dataset}/{architecture}{whose}: {_turning(orders)}")
    return sentences


def _order(row: pd.Series, group: pd.DataFrame) -> str:
    names = group.groupby("platform")["instance"].agg(lambda some: ", ".join(dict.fromkeys(some)))
    return " < ".join(f"{platform} ({names[platform]})" for platform in row.sort_values(kind="stable").index)


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
    dates = " and ".join(dict.fromkeys(row["as_of"] or UNDATED for row in rows))
    return rows[0]["usd_per_hour"] / rows[1]["usd_per_hour"], f"{regime.basis}, {region}, {dates}"
