"""Where a cell stands, in words: one reading of cells.csv for the summary, the page, figures and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cxrbench.expected import expected_status
from cxrbench.report.cells import NOT_RUN, REFUSED

Reviewed = list[tuple[str, str, str]]  # see cxrbench.expected.read_expected


@dataclass(frozen=True)
class State:
    """Where a cell stands: fresh, recorded, a failure, refused or not run; and whether that was expected."""

    word: str
    expected: bool = True

    def __str__(self) -> str:
        return self.word if self.expected else f"{self.word} (unexpected)"


def word_of(row: Any) -> str:
    """The state of one row of cells.csv: fresh, recorded, refused, not run, or how it failed."""
    if row.status == NOT_RUN:
        return REFUSED if row.origin == REFUSED else NOT_RUN
    return str(row.origin) if row.status == "ok" else str(row.status).replace("_", " ")


def state_of(row: Any, reviewed: Reviewed) -> State:
    """The same, judged by the lines of expected_status.csv; they say nothing of what did not run."""
    if row.status == NOT_RUN:
        return State(word_of(row))
    return State(word_of(row), expected_status(row.cell, reviewed) == row.status)
