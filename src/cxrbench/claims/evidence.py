"""Where a claim's inputs come from: its own text, another source, the price table, our result tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.cost.prices import UNDATED, price, read_prices
from cxrbench.errors import UserError, nearest

OWN, EVIDENCE = "the text itself", "our evidence"
METRIC_KEYS = ("dataset", "architecture", "platform", "seed", "split", "label", "metric")
PARITY_KEYS = ("dataset", "architecture", "platforms", "label", "metric")
COST_KEYS = ("dataset", "architecture", "platform", "seed", "status", "kind", "instance", "region", "basis")
_CELL_KEYS = METRIC_KEYS[:4]
_TRAINED = ("ok", "diverged")  # it compiled, loaded and took its steps
_AGGREGATES: dict[str, Callable[[pd.Series], float]] = {
    "mean": pd.Series.mean,
    "min": pd.Series.min,
    "max": pd.Series.max,
}


class NotHere(Exception):
    """An input that this machine has no evidence for; its text says which cell or price is missing."""


@dataclass(frozen=True)
class Context:
    """What claims are tested against: prices, and metrics.csv (one row per cell, label and metric), cost.csv,
    cells.csv and parity.csv where they exist."""

    prices: pd.DataFrame
    metrics: pd.DataFrame | None = None
    cost: pd.DataFrame | None = None
    cells: pd.DataFrame | None = None
    parity: pd.DataFrame | None = None


def read_context(prices: Path | str, tables: Path | str) -> Context:
    """Prices, and the result tables below the folder ``tables`` that have been made."""

    def table(name: str) -> pd.DataFrame | None:
        path = Path(tables) / name
        try:
            return pd.read_csv(path) if path.exists() else None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not a readable table ({error}); delete it and run again") from None

    metrics = table("metrics.csv")
    if metrics is not None:
        from cxrbench.metrics.evaluate import headline  # it loads scipy: not for a ledger without scores

        metrics = headline(metrics)
    others = (table(name) for name in ("cost.csv", "cells.csv", "parity.csv"))
    return Context(read_prices(prices), metrics, *others)


@dataclass(frozen=True)
class Value:
    """An input's value when the claim was made and today (equal if it has no date), and its origin."""

    then: float | tuple[float, float]
    now: float | tuple[float, float]
    origin: str
    shown: str


def own_value(value: float | tuple[float, float]) -> Value:
    """A number that the claim's own text states."""
    return Value(value, value, OWN, show(value))


def cited_value(entry: Mapping[str, Any], _: Context) -> Value:
    """``{value: 190, from: where, now: 0}``: a number from another source; ``now`` if it has changed."""
    then = number_or_range(entry["value"])
    now = number_or_range(entry.get("now", entry["value"]))
    return Value(then, now, entry["from"], f"{show(then)} ({entry['from']})")


def price_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{price: {instance, region, basis}, as_of: date}``: USD per hour then, and the newest price now."""
    key = _keys(entry["price"], ("instance", "region", "basis"), required=True)
    if key["instance"] not in set(context.prices["instance"]):
        price(context.prices, **key)  # a misspelt instance is an error, with the nearest names
    as_of = str(entry["as_of"]) if entry.get("as_of") else None
    try:
        then = price(context.prices, **key, as_of=as_of)
        now = price(context.prices, **key)
    except UserError as error:
        raise NotHere(str(error).split(": add a row")[0]) from None
    shown = f"{then['usd_per_hour']:g} USD/h ({' '.join(key.values())}, {then['as_of'] or UNDATED})"
    return Value(float(then["usd_per_hour"]), float(now["usd_per_hour"]), "prices.csv", shown)


def metric_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{metric: {dataset, ..., metric: auroc}}``: from metrics.csv, the mean over seeds by default."""
    wanted = _keys(entry["metric"], METRIC_KEYS)
    return _looked_up(context, context.metrics, wanted, "value", entry, "metrics.csv")


def parity_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{parity: {dataset, architecture, platforms: [cpu, cuda], label: macro, metric: auroc}}``: how far
    apart two platforms are, as the sizes in the 90 % interval of parity.csv; never the bare difference.

    NotHere where there is no interval, or it lies neither inside the declared margin nor outside it.
    """
    wanted = _keys(entry["parity"], PARITY_KEYS, required=True)
    pair = _listed(wanted.pop("platforms"))
    if len(set(pair)) != 2:
        raise UserError(f"platforms {pair}: name the two that are compared, as in [cpu, cuda]")
    for platform in pair:
        if missing := _no_such_cell(context.cells, wanted | {"platform": platform}):
            raise NotHere(missing)
    both = {"kind": "platforms", "platform_a": pair, "platform_b": pair}
    row = _rows(context, context.parity, wanted | both, "parity.csv").iloc[0]
    name = _cells(wanted | both)
    if pd.isna(row["ci90_low"]):
        raise NotHere(f"{name}: {row['verdict']}: {row['reason']}")
    ends = sorted((abs(row["ci90_low"]), abs(row["ci90_high"])))
    low, high = (0.0 if row["ci90_low"] < 0 < row["ci90_high"] else float(ends[0])), float(ends[1])
    shown = f"{low:.4g} to {high:.4g} (size of the difference, 90 % interval, {name})"
    if low < row["margin"] < high:
        raise NotHere(f"{shown} lies neither inside the margin of {row['margin']:g} nor outside it")
    return Value((low, high), (low, high), EVIDENCE, shown)


def cost_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{cost: {dataset, ...}, column: usd_total}``: from cost.csv, the mean over seeds by default."""
    wanted = _keys(entry["cost"], COST_KEYS)
    return _looked_up(context, context.cost, wanted, entry.get("column", "usd_total"), entry, "cost.csv")


def share_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{share: {dataset, ...}, of: [compile_failed]}``: share of those cells with one of the statuses, among
    them and those that trained: a cell that crashed or timed out shows neither. NotHere where all did."""
    wanted = _keys(entry["share"], COST_KEYS)
    rows, of = _rows(context, context.cost, wanted, "cost.csv"), _listed(entry["of"])
    judged = rows[rows["status"].isin([*of, *_TRAINED])]
    if judged.empty:
        raise NotHere(
            f"{_cells(wanted)}: {', '.join(sorted(set(rows['status'])))}; neither ok nor {' or '.join(of)}"
        )
    share = float(judged["status"].isin(of).mean())
    return Value(share, share, EVIDENCE, f"{share:g} of {len(judged)} cells")


def count_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{cells: {platform: [neuron]}}``: how many cells have a record; zero is an answer."""
    if context.cost is None:
        raise NotHere("cost.csv has not been made yet")
    rows = _filtered(context.cost, _keys(entry["cells"], COST_KEYS))
    count = float(rows["cell"].nunique())
    return Value(count, count, EVIDENCE, f"{count:g} cells")


KINDS: dict[str, Callable[[Mapping[str, Any], Context], Value]] = {
    "value": cited_value,
    "price": price_value,
    "metric": metric_value,
    "parity": parity_value,
    "cost": cost_value,
    "share": share_value,
    "cells": count_value,
}
OPTIONS = {
    "value": {"from", "now"},
    "price": {"as_of"},
    "metric": {"aggregate"},
    "parity": set(),
    "cost": {"aggregate", "column"},
    "share": {"of"},
    "cells": set(),
}


def _looked_up(
    context: Context,
    table: pd.DataFrame | None,
    wanted: dict[str, Any],
    column: str,
    entry: Mapping[str, Any],
    name: str,
) -> Value:
    rows = _rows(context, table, wanted, name)
    if column not in rows:
        raise UserError(f"{name} has no column '{column}'{nearest(column, rows.columns)}")
    how = entry.get("aggregate", "mean")
    if how not in _AGGREGATES:
        raise UserError(f"unknown aggregate '{how}'{nearest(how, _AGGREGATES)}; use {', '.join(_AGGREGATES)}")
    values = rows[column].dropna()
    if values.empty:
        raise NotHere(f"{_cells(wanted)}: {name} has no {column} for it")
    value = float(_AGGREGATES[how](values))
    return Value(value, value, EVIDENCE, f"{value:.4g} ({how} of {len(values)}, {_cells(wanted)})")


def _rows(context: Context, table: pd.DataFrame | None, wanted: dict[str, Any], name: str) -> pd.DataFrame:
    if table is None:
        raise NotHere(f"{_cells(wanted)}: {name} has not been made yet")
    rows = _filtered(table, wanted)
    if rows.empty:
        raise NotHere(
            _no_such_cell(context.cells, wanted) or f"{_cells(wanted)}: not run yet, no row in {name}"
        )
    return rows


def _no_such_cell(cells: pd.DataFrame | None, wanted: Mapping[str, Any]) -> str | None:
    """That the study has no cell like this, with the nearest names; None when it has, or is not known."""
    named = {key: value for key, value in wanted.items() if key in _CELL_KEYS}
    if cells is None or not _filtered(cells, named).empty:
        return None
    hints = [
        nearest(str(one), cells[key].astype(str).unique())
        for key, value in named.items()
        for one in _listed(value)
        if one not in set(cells[key])
    ]
    return f"{_cells(wanted)}: the study has no such cell{''.join(hints)}"


def _filtered(table: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    keep = pd.Series(True, index=table.index)
    for column, value in wanted.items():
        keep &= table[column].isin(_listed(value))
    return table[keep]


def _cells(wanted: Mapping[str, Any]) -> str:
    """The cell pattern that a look-up names, and the instances if it names any, for messages."""
    named = {"platform": wanted.get("platform_a", "*")} | dict(wanted)  # two of them in a look-up of parity
    parts = ["+".join(map(str, _listed(named.get(key, "*")))) for key in METRIC_KEYS[:3]]
    on = f" on {' or '.join(map(str, _listed(named['instance'])))}" if "instance" in named else ""
    return "/".join([*parts, f"seed{named.get('seed', '*')}"]) + on


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _keys(given: Any, known: tuple[str, ...], required: bool = False) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise UserError(f"write a mapping with {', '.join(known)}")
    for key in given:
        if key not in known:
            raise UserError(f"unknown key '{key}'{nearest(str(key), known)} (known: {', '.join(known)})")
    if required and (missing := [key for key in known if key not in given]):
        raise UserError(f"key '{missing[0]}' is missing")
    return dict(given)


def number_or_range(value: Any) -> float | tuple[float, float]:
    """A YAML number as a float, or two as a sorted range; UserError for anything else."""
    if isinstance(value, list) and len(value) == 2 and all(_is_number(one) for one in value):
        low, high = sorted(float(one) for one in value)
        return low, high
    if _is_number(value):
        return float(value)
    raise UserError(f"'{value}' is neither a number nor a range of two")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def show(value: float | tuple[float, float]) -> str:
    """A number or a range for people: six digits, thousands apart, equal ends once."""
    ends = value if isinstance(value, tuple) else (value,)
    texts = [f"{end:,.6g}" if abs(end) < 1e6 else f"{end:,.0f}" for end in ends]
    return " to ".join(dict.fromkeys(texts))
