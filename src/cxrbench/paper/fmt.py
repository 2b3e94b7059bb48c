"""How the paper writes values, and how a table of texts is made from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any, Protocol, TypeVar

import pandas as pd

UNDEFINED = "undefined"
Row = dict[str, str]  # head of a column: text
Table = tuple[pd.DataFrame, str]  # texts, and the preamble of the LaTeX tabular
Columns = dict[str, str | Callable[[Any], str]]  # see `row`


class CsvFiles(Protocol):
    """What a build has made, as :class:`cxrbench.paper.results.Results` reads it."""

    def csv(self, name: str) -> pd.DataFrame:
        """Return a table by its name."""


Read = TypeVar("Read", bound=CsvFiles)


def table(preamble: str) -> Callable[[Callable[[Read], Iterable[Row]]], Callable[[Read], Table]]:
    """Decorate a function that returns or yields the rows of a table with ``preamble``."""

    def decorate(rows: Callable[[Read], Iterable[Row]]) -> Callable[[Read], Table]:
        def made(read: Read) -> Table:
            return pd.DataFrame(list(rows(read))), preamble

        return made

    return decorate


def csv_table(name: str, preamble: str, columns: Columns) -> Callable[[CsvFiles], Table]:
    """Return the function that writes a CSV of the graph as a table."""
    return table(preamble)(lambda read: rows(read.csv(name), columns))


def rows(values: pd.DataFrame, columns: Columns) -> list[Row]:
    """Return the texts of every row of ``values``."""
    return [row(value, columns) for value in values.itertuples()]


def row(value: Any, columns: Columns) -> Row:
    """Return the texts of a row of itertuples: of a column a function of the row that returns the text, or a
    format such as ``{low:.2f} h``, empty where a value in it is missing."""
    return {head: of(value) if callable(of) else _filled(of, value) for head, of in columns.items()}


def _filled(form: str, value: Any) -> str:
    names = [name for _, name, _, _ in Formatter().parse(form) if name]
    return "" if any(pd.isna(getattr(value, name)) for name in names) else form.format_map(value._asdict())


def number(value: float, form: str = ".3f", missing: str = UNDEFINED) -> str:
    """Return ``value`` in ``form``, or the word for a missing one."""
    return missing if pd.isna(value) else format(value, form)


def span(low: float, high: float, form: str, missing: str = "") -> str:
    """Return ``low to high`` in the format ``form``, each end once."""
    return missing if pd.isna(low) or pd.isna(high) else ends(form.format(low), form.format(high))


def ends(*limits: str) -> str:
    """Return ``a to b``, or the only text where both are alike."""
    return " to ".join(dict.fromkeys(limits))


def counted(count: float) -> str:
    """Return a count with separators; unknown where it is missing or zero, as ChestMNIST's patients are."""
    return f"{int(count):,}" if pd.notna(count) and count else "unknown"


def words(name: Any) -> str:
    """Return a name with spaces; empty for none."""
    return "" if pd.isna(name) else str(name).replace("_", " ")


def listed(values: pd.Series) -> str:
    """Return the different values in order, joined."""
    return ", ".join(dict.fromkeys(values.dropna().astype(str)))
