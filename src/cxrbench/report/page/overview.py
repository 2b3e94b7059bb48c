"""What the page opens with: how many cells are in which state, and the matrix of states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from cxrbench.report.cells import NOT_RUN, REFUSED
from cxrbench.report.states import State


@dataclass(frozen=True)
class MatrixRow:
    """One dataset and architecture; per platform its states, each with (seed, cell) of the cells in it."""

    dataset: str
    architecture: str
    platforms: list[dict[State, list[tuple[int, str]]]]


def matrix(cells: pd.DataFrame, states: dict[str, State]) -> tuple[list[str], list[MatrixRow]]:
    """Platforms, and one row per dataset and architecture in the study's order."""
    platforms = list(dict.fromkeys(cells["platform"]))
    rows = []
    for (dataset, architecture), some in cells.groupby(["dataset", "architecture"], sort=False):
        found: dict[str, dict[State, list[tuple[int, str]]]] = {name: {} for name in platforms}
        for row in some.itertuples():
            found[row.platform].setdefault(states[row.cell], []).append((row.seed, row.cell))
        rows.append(MatrixRow(dataset, architecture, list(found.values())))
    return platforms, rows


def counts(states: dict[str, State]) -> dict[str, int]:
    """Cells by kind of state, also where there is none; refused ones are counted only when there are any."""
    known = ("recorded", "fresh", "failed", NOT_RUN, REFUSED)
    kinds = Counter(state.word if state.word in known else "failed" for state in states.values())
    return {kind: kinds[kind] for kind in known if kinds[kind] or kind != REFUSED}
