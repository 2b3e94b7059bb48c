"""How the paper writes values, and how texts are made from the rows of a table."""

import math
from collections.abc import Callable, Iterable, Sequence
from string import Formatter
from typing import Any

import pandas as pd

UNDEFINED = "undefined"
Row = dict[str, str]  # head of a column: text
Table = tuple[pd.DataFrame, str]  # texts, and the side of each column: l, c or r
Columns = dict[str, str | Callable[[Any], str]]  # see `row`
Values = dict[str, str]  # key that the prose may name: text in LaTeX


def table(sides: str) -> Callable[[Callable[[Any], Iterable[Row]]], Callable[[Any], Table]]:
    """Decorate a function of the Results that returns or yields the rows of a table."""

    def decorate(rows: Callable[[Any], Iterable[Row]]) -> Callable[[Any], Table]:
        def made(read: Any) -> Table:
            return pd.DataFrame(list(rows(read))), sides

        return made

    return decorate


def csv_table(name: str, sides: str, columns: Columns) -> Callable[[Any], Table]:
    """Return the function that writes a CSV of the graph as a table."""
    return table(sides)(lambda read: rows(read.csv(name), columns))


def rows(values: pd.DataFrame, columns: Columns) -> list[Row]:
    """Return the texts of every row of ``values``."""
    return [row(value, columns) for value in values.itertuples()]


def row(value: Any, columns: Columns) -> Row:
    """Return the texts of a row of itertuples: of a column a function of the row that returns the text, or a
    format such as ``{low:.2f} h``, empty where a value in it is missing."""
    return {head: of(value) if callable(of) else _filled(of, value) for head, of in columns.items()}


def keyed(values: pd.DataFrame, key: str, columns: Columns) -> Values:
    """Return the texts of every row by ``key``, a format of the row, and the name of the column."""
    texts = {key.format_map(value._asdict()): row(value, columns) for value in values.itertuples()}
    return {f"{start}/{name}": text for start, some in texts.items() for name, text in some.items()}


def _filled(form: str, value: Any) -> str:
    names = [name for _, name, _, _ in Formatter().parse(form) if name]
    return "" if any(pd.isna(getattr(value, name)) for name in names) else form.format_map(value._asdict())


def number(value: Any, form: str = ".3f", missing: str = UNDEFINED) -> str:
    """Return ``value`` in ``form``, or the word for a missing one."""
    return missing if pd.isna(value) else format(value, form)


def span(low: float, high: float, form: str, missing: str = "") -> str:
    """Return ``low to high`` in the format ``form``, each end once."""
    return missing if pd.isna(low) or pd.isna(high) else ends(form.format(low), form.format(high))


def range_of(values: pd.Series, form: str, missing: str = "") -> str:
    """Return the smallest to the largest value in the format ``form``."""
    return span(values.min(), values.max(), form, missing)


def ends(*limits: str) -> str:
    """Return ``a to b``, or the only text where both are alike."""
    return " to ".join(dict.fromkeys(limits))


def counted(count: float) -> str:
    """Return a count with separators; unknown where it is missing or zero, as ChestMNIST's patients are."""
    return f"{int(count):,}" if pd.notna(count) and count else "unknown"


def words(name: Any) -> str:
    """Return a name with spaces; empty for none."""
    return "" if pd.isna(name) else str(name).replace("_", " ")


def first_of(names: Sequence[str]) -> str:
    """Return ``a`` or ``a and 2 others``."""
    others = len(names) - 1
    return names[0] + (f" and {others} other{'s' * (others > 1)}" if others else "")


def listed(values: pd.Series) -> str:
    """Return the different values in order, joined."""
    return ", ".join(dict.fromkeys(values.dropna().astype(str)))


def difference(row: Any, interval: str = "ci") -> str:
    """Return a difference with its ``interval`` (95 %; ``ci90``: 90 %), or alone where it has none."""
    low, high = (getattr(row, f"{interval}_{end}") for end in ("low", "high"))
    if pd.isna(low):
        return number(row.difference, "+.4f", "")
    form = f"+.{digits((high - low) / 2)}f"
    return f"{row.difference:{form}} ({low:{form}} to {high:{form}})"


def digits(half_width: float) -> int:
    """Return the decimals that show two digits of an interval's half-width, three at least."""
    return max(3, 1 - math.floor(math.log10(half_width))) if half_width > 0 else 3
