"""Captions and sentences: plain text with ``{key}`` for values and ``{tab:name}`` for items, per output."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cxrbench.paper import formats
from cxrbench.paper.formats import Columns, Range, kinds_of, row
from cxrbench.paper.items import figures, tables

NOT_RUN = "not run"
_PLACE = re.compile(r"\{([^{}]+)\}")
_ITEM = re.compile("(tab|fig|sec):(.*)")
_MARK = "\u00a4"  # of a place while the rest becomes LaTeX


@dataclass(frozen=True)
class Value:
    """A number, or several in a shape of :mod:`cxrbench.paper.formats`, and its kind."""

    value: Any
    kind: str

    def __str__(self) -> str:
        return formats.text(self.value, self.kind)


Values = Mapping[str, int | str | Value]  # counts, texts with `code`, and other numbers
Filled = dict[str, int | str | Value]  # while they are gathered


def keyed(rows: pd.DataFrame, key: str, columns: Columns) -> Values:
    """Return the values of every row by ``key``, a format of the row, and the name of the column."""
    kinds = kinds_of(columns)
    return {
        f"{key.format_map(of._asdict())}/{name}": Value(value, kinds[name])
        for of in rows.itertuples()
        for name, value in row(of, columns).items()
    }


def range_or(values: pd.Series, kind: str, word: str) -> str | Value:
    """Return the smallest to the largest value, or the word for none."""
    return word if values.isna().all() else Value(Range(values.min(), values.max()), kind)


def count_of(values: Values, key: str) -> int:
    """Return a count; zero where there is none."""
    count = values.get(key, 0)
    assert isinstance(count, int), f"{key} is no count"
    return count


def keys_of(template: str) -> set[str]:
    """Return the keys of the values that a sentence names."""
    return {key for key in _PLACE.findall(template) if not _ITEM.match(key)}


def as_text(template: str, values: Values) -> str:
    """Return a sentence with its values, and titles for the items that it names."""

    def shown(place: re.Match[str]) -> str:
        if not (item := _ITEM.match(place[1])):
            return str(values.get(place[1], NOT_RUN))
        named = {"tab": tables(), "fig": figures()}.get(item[1], {}).get(item[2])
        return f"\u201c{named.title}\u201d" if named else "the paper"

    return formats.plain(_PLACE.sub(shown, template))


def as_latex(template: str) -> str:
    r"""Return a sentence as LaTeX, which puts in the values by ``\val``."""
    sentence = formats.latex(" ".join(_PLACE.sub(_MARK, template).split()))
    for key in _PLACE.findall(template):
        command = "autoref" if _ITEM.match(key) else "val"
        sentence = sentence.replace(_MARK, rf"\{command}{{{key}}}", 1)
    return sentence
