"""Yours against recorded: one cell that was trained here beside its recorded evidence.

The tolerance of a score is what training the same cell again may change: for two runs,
``t * sd * sqrt(2)`` over the recorded seeds (t at 97.5 % with their degrees of freedom). Both runs score the
same images, and the seeds' spread already holds the luck that each has with these patients, so nothing is
added for patients. With one recorded seed its spread is unknown; the half-width of the patient-clustered
interval of the recorded score stands in, and the row says so. No tolerance depends on the fresh run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from cxrbench.analysis.estimates import CellEstimate, estimate_cell
from cxrbench.evidence.machine import is_busy, load_in_words, machine_of
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, Record, read_record
from cxrbench.evidence.store import check_evidence
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.errors import UserError

_Z = 1.96
_SPEED, _STATUS = "images per second", "status"
_SCORES = {("macro", "auroc"): "macro AUROC", ("macro", "f1_macro"): "macro F1"}
_HEADER = ["", "yours", "recorded", "tolerance", "", "where the tolerance comes from"]


@dataclass(frozen=True)
class Line:
    """One compared quantity, judged where there is a tolerance."""

    name: str
    yours: float
    recorded: float
    tolerance: float | None
    origin: str  # where the tolerance comes from, or why there is none
    inside: bool | None  # None: not judged


@dataclass(frozen=True)
class Comparison:
    """Notes that are printed first, and the lines that follow."""

    notes: list[str]
    lines: list[Line]
    itself: bool = False  # the fresh run is the recorded one: nothing was trained again

    @property
    def inside(self) -> bool:
        """Whether nothing that is judged lies outside its tolerance."""
        return all(line.inside is not False for line in self.lines)

    @property
    def verdict(self) -> str:
        """In words; that no score could be judged is no agreement, nor is a run beside itself."""
        if self.itself:
            return "this is the recorded run itself: nothing was compared"
        if all(line.inside is None for line in self.lines if line.name != _SPEED):
            return "no score was judged" if self.inside else "no score was judged, the speed is OUTSIDE"
        return "inside the tolerance" if self.inside else "OUTSIDE the tolerance"


def compare(cell: Cell, fresh: Path, recorded: Path) -> Comparison:
    """Compare the evidence of ``cell`` in its folder ``fresh`` with that below the root ``recorded``."""
    mine = check_evidence(fresh, cell)
    if not (cell.folder(recorded) / RECORD).exists():
        notes = [f"status {mine.status}; nothing is recorded of it, so nothing is judged"]
        if mine.status != "ok":
            return Comparison(notes, [])
        found = _estimate(fresh)
        values = {name: found.estimate.value[found.keys.index(key)] for key, name in _SCORES.items()}
        return Comparison(notes, [_line(name, x, np.nan, None, "") for name, x in values.items()])
    theirs = check_evidence(cell.folder(recorded), cell)
    if mine == theirs:
        return Comparison(["train the cell again to compare two runs"], [], itself=True)
    notes = [*_changes(mine, theirs), *_where(mine, theirs)]
    if mine.status != "ok" or theirs.status != "ok":
        same = mine.status == theirs.status
        notes.append(f"status: yours {mine.status}, recorded {theirs.status}")
        return Comparison(notes, [Line(_STATUS, np.nan, np.nan, None, "must be equal", same)])
    return Comparison(notes, [*_scores(cell, fresh, recorded), _speed(mine, theirs, recorded)])


def tolerances(cell: Cell, recorded: Path) -> list[Line]:
    """Return the recorded scores of ``cell`` with what training it again may change; none if it has none."""
    folder = cell.folder(recorded)
    return _scores(cell, folder, recorded) if check_evidence(folder, cell).status == "ok" else []


def replacement(cell: Cell, fresh: Path, recorded: Path) -> list[str]:
    """Return what changes when the evidence in ``fresh`` replaces that of ``cell`` below ``recorded``.

    Empty where both are the same run.
    """
    try:
        runs = check_evidence(cell.folder(recorded), cell), check_evidence(fresh, cell)
        found = compare(cell, fresh, recorded)
    except UserError as error:
        return [f"the recorded evidence is not readable: {error}"]
    if found.itself:
        return []
    changes = {
        "run": [f"ended {run.ended}, status {run.status}" for run in runs],
        "machine": [_machine(run) for run in runs],
        "load": [load_in_words(run.timing.others_share) for run in runs],
    }
    scores = [line for line in found.lines if line.name != _STATUS]
    return [
        *(f"{what}: {' -> '.join(dict.fromkeys(pair))}" for what, pair in changes.items()),
        *(f"{line.name}: {line.recorded:.4g} -> {line.yours:.4g}" for line in scores),
        *_changes(runs[1], runs[0]),
    ]


def readable(found: Comparison) -> str:
    """Return the lines as a table for a terminal."""
    judged = {None: "not judged", True: "inside", False: "OUTSIDE"}
    rows = [_HEADER]
    for line in found.lines:
        numbers = (line.yours, line.recorded, line.tolerance)
        shown = (
            "-" if x is None or np.isnan(x) else f"{x:.{1 if line.name == _SPEED else 4}f}" for x in numbers
        )
        rows.append([line.name, *shown, judged[line.inside], line.origin])
    padded = pd.DataFrame(rows).apply(lambda column: column.str.ljust(column.str.len().max()))
    return "\n".join("  ".join(row).rstrip() for row in padded.to_numpy())


def _changes(mine: Record, theirs: Record) -> list[str]:
    """Return what is different before any result is looked at."""
    notes = []
    if mine.recipe_hash != theirs.recipe_hash:
        keys = sorted(mine.recipe.keys() | theirs.recipe.keys())
        changed = ", ".join(key for key in keys if mine.recipe.get(key) != theirs.recipe.get(key))
        notes.append(f"the recipe is another one ({changed}): the scores need not agree")
    if mine.dataset and theirs.dataset and mine.dataset.packed != theirs.dataset.packed:
        notes.append("the packed images are others: the scores need not agree")
    for name in sorted(mine.versions.keys() | theirs.versions.keys()):
        if (here := mine.versions.get(name)) != (there := theirs.versions.get(name)):
            notes.append(f"{name}: {here} here, {there} recorded")
    return notes


def _where(mine: Record, theirs: Record) -> list[str]:
    """Return what is different about the machines, and which of them was busy."""
    notes = []
    if _machine(mine) != _machine(theirs):
        notes.append(f"trained on {_machine(mine)}; recorded on {_machine(theirs)}")
    for what, record in (("yours", mine), ("the recorded run", theirs)):
        if is_busy(share := record.timing.others_share):
            notes.append(f"{what} trained beside other processes: {load_in_words(share)}")
    return notes


def _machine(record: Record) -> str:
    return machine_of(record, Cell.parse(record.cell).platform)


def _estimate(folder: Path) -> CellEstimate:
    return estimate_cell(read_predictions(folder / PREDICTIONS))


def _seeds(cell: Cell, recorded: Path) -> list[Path]:
    """Return the folders of the recorded seeds of ``cell``, its own included."""
    folders = [o.folder(recorded) for o in find_cells(recorded) if replace(o, seed=cell.seed) == cell]
    return [folder for folder in folders if (folder / PREDICTIONS).exists()]


def _scores(cell: Cell, fresh: Path, recorded: Path) -> list[Line]:
    mine, theirs = _estimate(fresh), _estimate(cell.folder(recorded))
    seeds = [_estimate(folder) for folder in _seeds(cell, recorded)]
    lines = []
    for key, name in _SCORES.items():
        k = mine.keys.index(key)
        yours, kept, *values = (float(run.estimate.value[k]) for run in (mine, theirs, *seeds))
        if not mine.same_images(theirs):
            tolerance, origin = None, "other images, patients or labels: not judged"
        elif len(values) > 1:
            tolerance, origin = _of_two(values), f"spread of {len(values)} recorded seeds"
        else:
            tolerance = _Z * float(theirs.estimate.error[k])
            origin = "one recorded seed: patient-clustered interval"
        lines.append(_line(name, yours, kept, tolerance, origin))
    return lines


def _speed(mine: Record, theirs: Record, recorded: Path) -> Line:
    """Compare speeds with those of the recorded seeds that ran on this machine, left alone."""
    cell, machine = Cell.parse(theirs.cell), _machine(theirs)
    runs = [read_record(folder) for folder in _seeds(cell, recorded)]
    alike = [run for run in runs if _machine(run) == machine and not is_busy(run.timing.others_share)]
    speeds = [run.timing.images_per_second for run in alike if run.timing.images_per_second]
    yours, kept = (run.timing.images_per_second or np.nan for run in (mine, theirs))
    tolerance = None
    if np.isnan(yours + kept):
        origin = "not reached: not judged"
    elif _machine(mine) != machine:
        origin = "another machine: not judged"
    elif any(is_busy(run.timing.others_share) for run in (mine, theirs)):
        origin = "on a busy machine: not judged"
    elif len(speeds) < 2:
        origin = "one recorded seed on this machine, so its spread is unknown: not judged"
    else:
        tolerance, origin = _of_two(speeds), f"spread of {len(speeds)} recorded seeds on this machine"
    return _line(_SPEED, yours, kept, tolerance, origin)


def _line(name: str, yours: float, recorded: float, tolerance: float | None, origin: str) -> Line:
    inside = None if tolerance is None else abs(yours - recorded) <= tolerance
    return Line(name, yours, recorded, tolerance, origin, inside)


def _of_two(values: list[float]) -> float:
    """Return how far two runs may lie apart whose values spread like ``values``: t * sd * sqrt(2)."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) * np.sqrt(2))
