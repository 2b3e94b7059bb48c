"""Where a claim's inputs come from: its own text, another source, the price table, our result tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.cost.prices import BASES, KEY, REGIONS, UNDATED, price, read_prices
from cxrbench.study.errors import UserError, nearest, suggestion


class Basis(StrEnum):
    """What a claim is held against, from the nearest to the text to the farthest from it."""

    OWN = "own arithmetic"
    DOCUMENT = "a document"  # a statement compared with what a document says: nothing is computed
    SOURCE = "another source"
    PRICES = "prices"
    EVIDENCE = "our evidence"


METRIC_KEYS = ("dataset", "architecture", "platform", "seed", "split", "label", "metric")
PARITY_KEYS = ("dataset", "architecture", "platforms", "label", "metric")
COST_KEYS = ("dataset", "architecture", "platform", "seed", "status", "kind", "instance", "region", "basis")
_CELL_KEYS = METRIC_KEYS[:4]
_METRIC_REQUIRED = tuple(key for key in METRIC_KEYS if key != "seed")  # a mean over metrics means nothing
_PARITY_COLUMNS = ("ci90_low", "ci90_high", "margin", "verdict", "reason")
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
        from cxrbench.analysis.evaluate import headline  # it loads scipy: not for a ledger without scores

        _need(metrics, str(Path(tables) / "metrics.csv"), ("metric", "ci_method"))
        metrics = headline(metrics)
    others = (table(name) for name in ("cost.csv", "cells.csv", "parity.csv"))
    return Context(read_prices(prices), metrics, *others)


@dataclass(frozen=True)
class Value:
    """An input's value when the claim was made and today (equal if it has no date), and what it rests on."""

    then: float | tuple[float, float]
    now: float | tuple[float, float]
    basis: Basis
    shown: str


def own_value(value: float | tuple[float, float]) -> Value:
    """A number that the claim's own text states."""
    return Value(value, value, Basis.OWN, show(value))


def cited_value(entry: Mapping[str, Any], _: Context) -> Value:
    """``{value: 190, from: where, now: 0}``: a number or yes or no from elsewhere; ``now`` if it changed."""
    then, now = (answer_or_number(entry.get(key, entry["value"])) for key in ("value", "now"))
    return Value(then, now, Basis.SOURCE, f"{show(then, isinstance(entry['value'], bool))} ({entry['from']})")


def price_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{price: {instance, region, basis}, as_of: date}``: USD per hour then, and the newest price now.

    With ``history: yes`` the claim is about that day, and no newer price touches it.
    """
    key = {name: str(value) for name, value in _keys(entry["price"], KEY, required=KEY).items()}
    for column, known in (("region", REGIONS), ("basis", BASES)):
        if key[column] not in known:
            raise UserError(f"unknown {column} '{key[column]}'{suggestion(key[column], known)}")
    if key["instance"] not in set(context.prices["instance"]):
        price(context.prices, **key)  # a misspelt instance is an error, with the nearest names
    rows = _filtered(context.prices, key)
    as_of = str(entry["as_of"]) if entry.get("as_of") else None
    if rows.empty:
        raise NotHere(f"no price for {key['instance']} in {key['region']} with basis '{key['basis']}'")
    if as_of and rows["as_of"].min() > ("" if as_of == UNDATED else as_of):
        raise NotHere(f"no price of {' '.join(key.values())} up to {as_of}")
    then = price(context.prices, **key, as_of=as_of)
    now = then if entry.get("history") else price(context.prices, **key)
    shown = f"{then['usd_per_hour']:g} USD/h ({' '.join(key.values())}, {then['as_of'] or UNDATED})"
    return Value(float(then["usd_per_hour"]), float(now["usd_per_hour"]), Basis.PRICES, shown)


def metric_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{metric: {dataset, ..., metric: auroc}, column: ci_low}``: from metrics.csv, the mean over seeds by
    default; ``column`` is the value itself unless it names an end of the interval."""
    wanted = _keys(entry["metric"], METRIC_KEYS, required=_METRIC_REQUIRED)
    return _looked_up(context, context.metrics, wanted, entry.get("column", "value"), entry, "metrics.csv")


def parity_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{parity: {dataset, architecture, platforms: [cpu, cuda], label: macro, metric: auroc}}``: how far
    apart two platforms are, as the sizes in the 90 % interval of parity.csv; never the bare difference.

    NotHere where there is no interval, or it lies neither inside the declared margin nor outside it.
    """
    wanted = _keys(entry["parity"], PARITY_KEYS, required=PARITY_KEYS)
    pair = _listed(wanted.pop("platforms"))
    if len(set(pair)) != 2:
        raise UserError(f"platforms {pair}: name the two that are compared, as in [cpu, cuda]")
    for platform in pair:
        if missing := _no_such_cell(context.cells, wanted | {"platform": platform}):
            raise NotHere(missing)
    both = {"kind": "platforms", "platform_a": pair, "platform_b": pair}
    row = _rows(context, context.parity, wanted | both, "parity.csv", _PARITY_COLUMNS).iloc[0]
    name = _cells(wanted | both)
    if pd.isna(row["ci90_low"]):
        raise NotHere(f"{name}: {row['verdict']}: {row['reason']}")
    ends = sorted((abs(row["ci90_low"]), abs(row["ci90_high"])))
    low, high = (0.0 if row["ci90_low"] < 0 < row["ci90_high"] else float(ends[0])), float(ends[1])
    shown = f"{low:.4g} to {high:.4g} (size of the difference, 90 % interval, {name})"
    if low < row["margin"] < high:
        raise NotHere(f"{shown} lies neither inside the margin of {row['margin']:g} nor outside it")
    return Value((low, high), (low, high), Basis.EVIDENCE, shown)


def cost_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{cost: {dataset, ...}, column: usd_total}``: from cost.csv, the mean over seeds by default.

    Only the runs that stand for their group count, so no mean is over several machines.
    """
    wanted = _keys(entry["cost"], COST_KEYS) | {"headline": True}
    return _looked_up(context, context.cost, wanted, entry.get("column", "usd_total"), entry, "cost.csv")


def share_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{share: {dataset, ...}, of: [compile_failed]}``: share of those cells with one of the statuses, among
    them and those that trained: a cell that crashed or timed out shows neither. NotHere where all did."""
    wanted = _keys(entry["share"], COST_KEYS)
    rows, of = _rows(context, context.cost, wanted, "cost.csv", ("status",)), _listed(entry["of"])
    adopted = rows.sort_values("origin", kind="stable").drop_duplicates("cell")  # fresh before recorded
    judged = adopted[adopted["status"].isin([*of, *_TRAINED])]
    if judged.empty:
        raise NotHere(
            f"{_cells(wanted)}: {', '.join(sorted(set(rows['status'])))}; neither ok nor {' or '.join(of)}"
        )
    share = float(judged["status"].isin(of).mean())
    return Value(share, share, Basis.EVIDENCE, f"{share:g} of {len(judged)} cells")


def count_value(entry: Mapping[str, Any], context: Context) -> Value:
    """``{cells: {platform: [neuron]}}``: how many cells have a record; zero is an answer."""
    if context.cost is None:
        raise NotHere("cost.csv has not been made yet")
    wanted = _keys(entry["cells"], COST_KEYS)
    _need(context.cost, "cost.csv", ("cell", *wanted))
    rows = _filtered(context.cost, wanted)
    count = float(rows["cell"].nunique())
    return Value(count, count, Basis.EVIDENCE, f"{count:g} cells")


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
    "price": {"as_of", "history"},
    "metric": {"aggregate", "column"},
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
    rows = _rows(context, table, wanted, name, (column,))
    if not pd.api.types.is_numeric_dtype(rows[column]):
        raise UserError(f"column '{column}' of {name} has texts where a claim needs numbers; name another")
    how = entry.get("aggregate", "mean")
    if how not in _AGGREGATES:
        raise UserError(f"unknown aggregate '{how}'{nearest(how, _AGGREGATES)}; use {', '.join(_AGGREGATES)}")
    values = rows[column].dropna()
    if values.empty:
        raise NotHere(f"{_cells(wanted)}: {name} has no {column} for it")
    value = float(_AGGREGATES[how](values))
    return Value(value, value, Basis.EVIDENCE, f"{value:.4g} ({how} of {len(values)}, {_cells(wanted)})")


def _rows(
    context: Context,
    table: pd.DataFrame | None,
    wanted: dict[str, Any],
    name: str,
    columns: Iterable[str] = (),
) -> pd.DataFrame:
    """The rows of a result table that ``wanted`` names; UserError when it lacks a column of these."""
    if table is None:
        raise NotHere(f"{_cells(wanted)}: {name} has not been made yet")
    _need(table, name, wanted)
    rows = _filtered(table, wanted)
    if rows.empty:
        raise NotHere(
            _no_such_cell(context.cells, wanted) or f"{_cells(wanted)}: not run yet, no row in {name}"
        )
    _need(table, name, columns)
    return rows


def _need(table: pd.DataFrame, name: str, columns: Iterable[str]) -> None:
    """UserError naming the first of ``columns`` that ``table`` lacks."""
    for column in columns:
        if column not in table:
            raise UserError(
                f"{name} has no column '{column}'{nearest(column, table.columns)}; correct the claim, or "
                "delete the table and run again"
            )


def _no_such_cell(cells: pd.DataFrame | None, wanted: Mapping[str, Any]) -> str | None:
    """That the study has no cell like this, with the nearest names; None when it has, or is not known."""
    named = {key: value for key, value in wanted.items() if key in _CELL_KEYS}
    if cells is None or not _filtered(cells, named).empty:
        return None
    hints = [
        nearest(str(name), cells[key].astype(str).unique())
        for key, value in named.items()
        for name in _listed(value)
        if name not in set(cells[key])
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


def _keys(given: Any, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise UserError(f"write a mapping with {', '.join(known)}")
    for key in given:
        if key not in known:
            raise UserError(f"unknown key '{key}'{nearest(str(key), known)} (known: {', '.join(known)})")
    if missing := [key for key in required if key not in given]:
        raise UserError(f"key '{missing[0]}' is missing")
    return dict(given)


def number_or_range(value: Any) -> float | tuple[float, float]:
    """A YAML number as a float, or two as a sorted range; ValueError for anything else."""
    if isinstance(value, list) and len(value) == 2 and all(_is_number(end) for end in value):
        low, high = sorted(float(end) for end in value)
        return low, high
    if _is_number(value):
        return float(value)
    raise ValueError(f"'{value}' is neither a number nor a range of two")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def answer_or_number(value: Any) -> float | tuple[float, float]:
    """``yes`` and ``no`` of a claim that is true or not, as 1 and 0; or a number."""
    return float(value) if isinstance(value, bool) else number_or_range(value)


def show(value: float | tuple[float, float], yes_no: bool = False) -> str:
    """A number or a range for people: six digits, thousands apart, equal ends once; yes or no as words."""
    ends = value if isinstance(value, tuple) else (value,)
    if yes_no:
        texts = ["yes" if end else "no" for end in ends]
    else:
        texts = [f"{end:,.6g}" if abs(end) < 1e6 else f"{end:,.0f}" for end in ends]
    return " to ".join(dict.fromkeys(texts))
