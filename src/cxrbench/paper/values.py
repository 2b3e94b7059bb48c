"""Every value that a document names, by its entry in values.toml, and values.json, which documents take them
from."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import write_text
from cxrbench.paper.entries import FILE, ValueLine, entry_of
from cxrbench.paper.formats import KINDS, Range, Value, Values, WithInterval, listed, missing, text
from cxrbench.paper.results import Results
from cxrbench.study.platforms import ACCELERATED

VALUES_FILE = "values.json"


def values_of(read: Results, keys: Iterable[str]) -> Values:
    """The values of ``keys`` that the results define; what nobody ran, and what has no entry, is left out."""
    framed = cache(lambda name: _frame(read, name))
    names: dict[str, Any] = {"accelerated": [*ACCELERATED], "inf": math.inf}
    defined = {}
    for key in keys:
        if (entry := entry_of(key)) and (value := _value_of(read, entry, key, framed, names)) is not None:
            defined[key] = value
    return defined


def _value_of(
    read: Results, entry: ValueLine, key: str, framed: Callable[[str], pd.DataFrame], names: Mapping[str, Any]
) -> int | str | Value | None:
    parts = entry.parts_of(key) or {}
    if entry.setting:
        return _of_kind(attrgetter(entry.setting)(read), entry.kind)
    if entry.constant:
        module, _, name = entry.constant.partition(":")
        return _of_kind(attrgetter(name)(import_module(f"cxrbench.{module}")), entry.kind)
    if entry.function:
        return _of_kind(_function(entry.function)(read, **parts), entry.kind)
    rows = framed(entry.table)
    if entry.rows and len(rows):
        findings = {"findings": read.findings()} if "@findings" in entry.rows else {}
        rows = rows[_evaluated(rows, entry.rows, key, {**names, **findings, **parts})]
    if entry.take == "count":
        return len(rows)
    if rows.empty:
        return entry.empty if entry.empty is None or not entry.kind else Value(entry.empty, entry.kind)
    return _of_kind(_taken(rows, entry, key, entry.column.format_map(parts)), entry.kind)


def _evaluated(rows: pd.DataFrame, expression: str, key: str, names: Mapping[str, Any]) -> pd.Series:
    """An expression of the columns of ``rows``, and of ``names`` with an @."""
    named = dict.fromkeys(name for name in re.findall(r"\w+", expression) if name in rows)
    try:  # of these columns alone: pandas looks at each that there is, for seconds in all
        return rows[[*named]].eval(expression, engine="python", local_dict=dict(names))
    except (NameError, SyntaxError) as error:
        raise UserError(f"{FILE}: '{key}' cannot be read: {error}; mend '{expression}' there") from None


def _frame(read: Results, name: str) -> pd.DataFrame:
    """A table of the graph, or what module:function makes of the results."""
    if ":" in name:
        return _function(name)(read)  # type: ignore[no-any-return]
    return getattr(read, name) if hasattr(read, name) else read.table(name)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), function)  # type: ignore[no-any-return]


def _taken(rows: pd.DataFrame, entry: ValueLine, key: str, column: str) -> Any:
    """The one value that an entry takes from the chosen rows."""
    if not column:
        return _function(entry.take)(rows)
    values = rows[column] if column in rows else _evaluated(rows, column, key, {})
    if entry.none is not None and values.isna().any():  # which is the most, so it must not be left out
        return f"{text(values.min(), entry.kind)} or more" if values.notna().any() else entry.none
    match entry.take:
        case "only" if len(rows) == 1 or values.nunique(dropna=False) == 1:
            return values.iloc[0]
        case "only":
            raise UserError(f"{FILE}: '{key}' has {len(rows)} rows of different values; say which it takes")
        case "first":
            return values.iloc[0]
        case "range":
            return Range(values.min(), values.max(), two=len(values) == 2)
        case "listed":
            return listed(values)
        case "joined":
            return "; ".join(values.unique())
        case "interval":
            name = column if f"{column}_low" in rows else "ci"
            return WithInterval(*rows[[column, f"{name}_low", f"{name}_high"]].iloc[0])
        case _ if ":" in entry.take:
            return _function(entry.take)(values)
        case _:
            return values.agg(entry.take)


def _of_kind(value: Any, kind: str) -> int | str | Value | None:
    """A value of a kind; without one a count or a text. None where there is none."""
    if missing(value) and not (kind and KINDS[kind].none):
        return None
    if kind:
        return Value(value, kind)
    return value if isinstance(value, str) else int(value)


def write_values(values: Values, folder: Path) -> None:
    """Write values.json into ``folder``, key by key: a count as a number, anything else as it is printed."""
    shown = {key: value if isinstance(value, int) else str(value) for key, value in values.items()}
    write_text(folder / VALUES_FILE, json.dumps(shown, indent=0, ensure_ascii=False, sort_keys=True) + "\n")
