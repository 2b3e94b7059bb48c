"""Tables of numbers with the kind of each column, and how they are made from the rows of a frame."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from cxrbench.paper.formats import KINDS, text

Row = dict[str, Any]  # head of a column: value
# Head of a column: ``field``, ``field:kind``, or a kind and a function of the row; without a kind, a name.
Columns = Mapping[str, str | tuple[str, Callable[[Any], Any]]]
Maker = Callable[[Any], "Table"]


@dataclass(frozen=True)
class Table:
    """Values in rows, the kinds of columns (text where none is named), and rows of words below them."""

    rows: pd.DataFrame
    kinds: Mapping[str, str] = field(default_factory=dict)
    foot: pd.DataFrame = field(default_factory=pd.DataFrame)

    def kind(self, head: str) -> str:
        """Return the kind of a column."""
        return self.kinds.get(head, "text")

    def side(self, head: str) -> str:
        """Return where a column stands: l, c or r."""
        return KINDS[self.kind(head)].side

    @property
    def texts(self) -> pd.DataFrame:
        """Every value as plain text, and the rows below."""
        shown = {head: [text(value, self.kind(head)) for value in self.rows[head]] for head in self.rows}
        return pd.concat([pd.DataFrame(shown, dtype=object), self.foot], ignore_index=True)


def of_kinds(kinds: Mapping[str, str] | None = None) -> Callable[[Callable[[Any], Iterable[Row]]], Maker]:
    """Decorate a function of the Results that returns or yields the rows of a table of these kinds."""

    def decorate(rows: Callable[[Any], Iterable[Row]]) -> Maker:
        def made(read: Any) -> Table:
            return Table(pd.DataFrame(list(rows(read))), kinds or {})

        return made

    return decorate


def csv_table(name: str, columns: Columns) -> Maker:
    """Return the function that makes a table of a CSV of the graph."""

    def made(read: Any) -> Table:
        return table(read.csv(name), columns)

    return made


def table(values: pd.DataFrame, columns: Columns) -> Table:
    """Return the rows of a frame as a table."""
    return Table(pd.DataFrame([row(value, columns) for value in values.itertuples()]), kinds_of(columns))


def row(value: Any, columns: Columns) -> Row:
    """Return the values of one row of itertuples, or of another object."""
    return {
        head: getattr(value, of.partition(":")[0]) if isinstance(of, str) else of[1](value)
        for head, of in columns.items()
    }


def kinds_of(columns: Columns) -> dict[str, str]:
    """Return the kind of each column."""
    return {
        head: (of.partition(":")[2] or "name") if isinstance(of, str) else of[0]
        for head, of in columns.items()
    }
