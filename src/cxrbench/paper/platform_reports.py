"""What others measured when they changed the platform of a training (data/published_comparisons.csv)."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from cxrbench.common.readers import Row, Text, read_rows
from cxrbench.paper.formats import Columns, Table, table
from cxrbench.paper.results import Results

FILE = Path("data/published_comparisons.csv")


def _both(row: Any, name: str) -> str:
    """The facts ``name``_a and ``name``_b of a row, or the one that both share."""
    return " / ".join(dict.fromkeys(getattr(row, f"{name}_{side}") for side in "ab"))


_COLUMNS: Columns = {
    "Source": ("name", lambda row: row.name + "*" * (row.read == "abstract")),
    "Platforms": ("text", partial(_both, name="platform")),
    "Measure": "metric",
    "Runs": ("text", partial(_both, name="runs")),
    "Seeds": "seeds",
    "Values": ("text", partial(_both, name="value")),
    "Says": "claims",
    "Could show it": ("name", lambda row: "-" if row.claims == "nothing" else row.shown),
}


class _Comparison(Row):
    """A published comparison of two platforms, as far as ``read`` says that it was read.

    ``shown``: whether its runs can show what it ``claims`` (``why`` explains it): three or more seeds on each
    side with a spread, or a collapse that one run shows.
    """

    KEY: ClassVar = ("name",)
    name: Text
    source: Text
    date: Text
    platform_a: Text
    platform_b: Text
    task: Text
    network: Text
    metric: Text
    runs_a: Text
    runs_b: Text
    seeds: Literal["varied", "one", "not named", "unknown"]
    value_a: Text
    value_b: Text
    claims: Literal["equal", "different", "nothing"]
    also_differs: Text
    shown: Literal["yes", "no", "unknown"]
    why: Text
    read: Literal["abstract", "thread", "thread and values", "values"]  # values: a table of results


def read_published(path: Path | str = FILE) -> pd.DataFrame:
    """The published comparisons, a row per :class:`_Comparison`; UserError for the first mistake."""
    return pd.DataFrame([row.model_dump() for row in read_rows(path, _Comparison).values()])


def published(read: Results) -> Table:
    """The published comparisons as the paper prints them."""
    return table(read_published(), _COLUMNS)


def comparisons(_: Results) -> pd.DataFrame:
    """The published comparisons, a row each."""
    return read_published()
