"""cells.csv, every cell of the study with where, when and at which commit it ran, and its state in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.evidence.expected import NOT_RUN, REFUSED, expected_status
from cxrbench.evidence.record import Record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.config import Study
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED

UNEXPECTED = "(unexpected)"
COLUMNS = [
    *("cell", "dataset", "architecture", "platform", "seed", "status", "origin", "failure", "ended"),
    *("device", "instance", "cores_used", "commit", "dirty", "attempts", "parameters"),
    *("images_per_second", "train_seconds", "total_seconds", "recipe_hash", "packed", "torch"),
    *("train_images", "norm_images", "machine", "processor", "others_share", "busy", "update", "drawn"),
]

Reviewed = list[tuple[str, str, str]]  # see cxrbench.evidence.expected.read_expected


def cells_table(study: Study, records: Iterable[Path], recorded: Path) -> pd.DataFrame:
    """A row per cell of :meth:`EvidenceStore.cells`; ``records``: adopted record.json of those run."""
    evidence = EvidenceStore(recorded)
    adopted = {Cell.parse("/".join(path.parts[-5:])): path for path in records}
    rows = [_row(cell, study, adopted.get(cell), evidence) for cell in evidence.cells(study)]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"busy": "boolean"})


def _row(cell: Cell, study: Study, path: Path | None, evidence: EvidenceStore) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": str(cell), **vars(cell), "status": NOT_RUN, "origin": ""}
    row["drawn"] = study.dataset(cell.dataset).source == "phantom"  # and no radiographs
    source = evidence.source_of(cell, study, path)
    if source.origin == REFUSED:
        return row | {"origin": REFUSED, "failure": evidence.refused(cell)}
    if path is None or source.record is None:  # not adopted, or before the study changed
        return row
    return row | _of_record(source.record, cell) | {"origin": source.origin}


def _of_record(record: Record, cell: Cell) -> dict[str, Any]:
    timing, host, dataset = record.timing, record.host, record.dataset
    kept = ("status", "ended", "commit", "dirty", "attempts", "parameters", "recipe_hash")
    return {name: getattr(record, name) for name in kept} | {
        "failure": record.failure.fingerprint if record.failure else None,
        "device": host.device if cell.platform in ACCELERATED else host.cpu,
        "instance": host.instance,
        "cores_used": host.cores_used,
        "images_per_second": timing.images_per_second,
        "train_seconds": timing.train_seconds,
        "total_seconds": timing.total_seconds,
        "packed": dataset.packed if dataset else None,
        "torch": record.versions.get("torch"),
        "train_images": dataset.images["train"] if dataset else None,
        "norm_images": record.norm_images,
        "machine": record.machine,
        "processor": record.processor,
        "others_share": timing.others_share,
        "busy": record.busy,
        "update": record.update,
    }


@dataclass(frozen=True)
class State:
    """Where a cell stands: fresh, recorded, a failure, refused or not run; and whether that was expected."""

    word: str
    expected: bool = True

    @property
    def failed(self) -> bool:
        """Whether the cell was run and has no scores."""
        return self.word not in ("fresh", "recorded", REFUSED, NOT_RUN)

    def __str__(self) -> str:
        return self.word if self.expected else f"{self.word} {UNEXPECTED}"


def state_of(row: Any, reviewed: Reviewed | None = None) -> State:
    """The state of a row of cells.csv, judged by the lines of expected_status.csv if given.

    They say nothing of what did not run.
    """
    if row.status == NOT_RUN:
        return State(REFUSED if row.origin == REFUSED else NOT_RUN)
    word = str(row.origin) if row.status == "ok" else str(row.status).replace("_", " ")
    return State(word, reviewed is None or expected_status(row.cell, reviewed) == row.status)


@dataclass(frozen=True)
class MatrixRow:
    """A dataset and architecture; per platform its states, each with (seed, cell) of the cells in it."""

    dataset: str
    architecture: str
    platforms: dict[str, dict[State, list[tuple[int, str]]]]


def matrix(cells: pd.DataFrame, states: Mapping[str, State]) -> list[MatrixRow]:
    """One row per dataset and architecture in the study's order; every row has every platform.

    Every matrix that is printed or drawn is made from this one. It looks each cell up by name: pandas 2.3
    scrambles values when it unstacks unsorted (pandas issue 62213).
    """
    rows: dict[tuple[str, str], MatrixRow] = {}
    for row in cells.itertuples():
        empty = MatrixRow(row.dataset, row.architecture, {name: {} for name in cells["platform"].unique()})
        states_of = rows.setdefault((row.dataset, row.architecture), empty).platforms[row.platform]
        states_of.setdefault(states[row.cell], []).append((row.seed, row.cell))
    return list(rows.values())


def run_and_unrun(rows: list[MatrixRow]) -> tuple[list[MatrixRow], list[MatrixRow]]:
    """The rows of :func:`matrix` with a cell that was run, and those without."""
    run = [
        row
        for row in rows
        if any(state.word != NOT_RUN for states in row.platforms.values() for state in states)
    ]
    return run, [row for row in rows if row not in run]


def unreviewed_states(cells: pd.DataFrame) -> dict[str, State]:
    """The state of each cell without the review: what a reader of the paper sees."""
    return {row.cell: state_of(row) for row in cells.itertuples()}


def tally(entries: Iterable[Mapping[State, list[tuple[int, str]]]]) -> dict[State, int]:
    """The number of cells in each state over several entries of :func:`matrix`."""
    counts: Counter[State] = Counter()
    for entry in entries:
        counts.update({state: len(cells) for state, cells in entry.items()})
    return dict(counts)
