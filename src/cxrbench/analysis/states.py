"""Where a cell stands, in words: one reading of cells.csv for the summary, the page, figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cxrbench.analysis.cells import NOT_RUN, REFUSED
from cxrbench.evidence.expected import expected_status

Reviewed = list[tuple[str, str, str]]  # see cxrbench.evidence.expected.read_expected

_NOT_FAILED = ("fresh", "recorded", REFUSED, NOT_RUN)


@dataclass(frozen=True)
class State:
    """Where a cell stands: fresh, recorded, a failure, refused or not run; and whether that was expected."""

    word: str
    expected: bool = True

    @property
    def failed(self) -> bool:
        """Whether the cell was run and has no scores."""
        return self.word not in _NOT_FAILED

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


@dataclass(frozen=True)
class MatrixRow:
    """One dataset and architecture; per platform its states, each with (seed, cell) of the cells in it."""

    dataset: str
    architecture: str
    platforms: dict[str, dict[State, list[tuple[int, str]]]]


def matrix(cells: pd.DataFrame, states: Mapping[str, State]) -> list[MatrixRow]:
    """Return one row per dataset and architecture in the study's order; every row has every platform.

    Every matrix that is printed or drawn is made from this one. It looks each cell up by name: pandas 2.3
    scrambles values when it unstacks unsorted (pandas issue 62213).
    """
    rows: dict[tuple[str, str], MatrixRow] = {}
    for row in cells.itertuples():
        empty = MatrixRow(row.dataset, row.architecture, {name: {} for name in cells["platform"].unique()})
        found = rows.setdefault((row.dataset, row.architecture), empty).platforms[row.platform]
        found.setdefault(states[row.cell], []).append((row.seed, row.cell))
    return list(rows.values())


def in_words(cells: pd.DataFrame) -> dict[str, State]:
    """Return the state of each cell without the review: what a reader of the paper sees."""
    return {row.cell: State(word_of(row)) for row in cells.itertuples()}


def tally(entries: Iterable[Mapping[State, list[tuple[int, str]]]]) -> dict[State, int]:
    """Return how many cells are in each state over several entries of :func:`matrix`."""
    counts: dict[State, int] = {}
    for entry in entries:
        for state, found in entry.items():
            counts[state] = counts.get(state, 0) + len(found)
    return counts
