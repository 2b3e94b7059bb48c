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
from scipy import stats

from cxrbench.analysis.estimates import CellEstimate, estimate_cell
from cxrbench.evidence.machine import is_busy, load_in_words, machine_of
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, Record, check_evidence
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.errors import UserError

_Z = 1.96
_SPEED, _STATUS = "images per second", "status"
_SCORES = {("macro", "auroc"): "macro AUROC", ("macro", "f1_macro"): "macro F1"}


@dataclass(frozen=True)
class Line:
    """One compared quantity; ``inside`` is None where it is not judged."""

    name: str
    yours: float
    recorded: float
    tolerance: float | None
    origin: str  # where the tolerance comes from, or why there is none
    inside: bool | None


@dataclass(frozen=True)
class Comparison:
    """What is said first, and the lines that follow."""

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
    """The evidence of ``cell`` in its folder ``fresh`` against that under the root of recorded evidence."""
    mine = check_evidence(fresh, cell)
    if not (cell.folder(recorded) / RECORD).exists():
        return _alone(mine, fresh)
    theirs = check_evidence(cell.folder(recorded), cell)
    if mine == theirs:
        return Comparison(["train the cell again to compare two runs"], [], itself=True)
    notes = [*_changes(mine, theirs), *_where(mine, theirs)]
    if mine.status != "ok" or theirs.status != "ok":
        same = mine.status == theirs.status
        notes.append(f"status: yours {mine.status}, recorded {theirs.status}")
        return Comparison(notes, [Line(_STATUS, np.nan, np.nan, None, "must be equal", same)])
    lines = _scores(cell, _estimate(fresh), recorded)
    return Comparison(notes, [*lines, _speed(mine, theirs, _speeds(theirs, recorded))])


def tolerances(cell: Cell, recorded: Path) -> list[Line]:
    """Return the recorded scores of ``cell`` with what training it again may change; none if it has none."""
    if check_evidence(cell.folder(recorded), cell).status != "ok":
        return []
    return _scores(cell, _estimate(cell.folder(recorded)), recorded)


def _scores(cell: Cell, mine: CellEstimate, recorded: Path) -> list[Line]:
    theirs = _estimate(cell.folder(recorded))
    seeds = [_estimate(seed.folder(recorded)) for seed in _seeds(cell, recorded)]
    return [_score(name, mine.keys.index(key), mine, theirs, seeds) for key, name in _SCORES.items()]


def _alone(mine: Record, fresh: Path) -> Comparison:
    """The scores of a cell that nobody has recorded."""
    notes = [f"status {mine.status}; nothing is recorded of it, so nothing is judged"]
    if mine.status != "ok":
        return Comparison(notes, [])
    a = _estimate(fresh)
    values = {name: float(a.estimate.value[a.keys.index(key)]) for key, name in _SCORES.items()}
    return Comparison(notes, [Line(name, value, np.nan, None, "", None) for name, value in values.items()])


def replacement(cell: Cell, fresh: Path, recorded: Path) -> list[str]:
    """Return what changes when the evidence in ``fresh`` replaces that of ``cell`` below ``recorded``.

    Empty where both are the same run. Evidence that cannot be read is said to be so.
    """
    try:
        theirs, mine = check_evidence(cell.folder(recorded), cell), check_evidence(fresh, cell)
        found = compare(cell, fresh, recorded)
    except UserError as error:
        return [f"the recorded evidence is not readable: {error}"]
    if found.itself:
        return []
    runs = [f"ended {record.ended}, status {record.status}" for record in (theirs, mine)]
    machines = [_machine(record) for record in (theirs, mine)]
    values = [
        f"{line.name}: {line.recorded:.4g} -> {line.yours:.4g}"
        for line in found.lines
        if line.name != _STATUS
    ]
    loads = [load_in_words(record.timing.others_share) for record in (theirs, mine)]
    changes = {"run": runs, "machine": machines, "load": loads}
    return [
        *(f"{what}: {' -> '.join(dict.fromkeys(pair))}" for what, pair in changes.items()),
        *values,
        *_changes(mine, theirs),
    ]


def readable(found: Comparison) -> str:
    """The lines as a table for a terminal."""
    rows: list[tuple[str, ...]] = [
        ("", "yours", "recorded", "tolerance", "", "where the tolerance comes from")
    ]
    for line in found.lines:
        judged = "not judged" if line.inside is None else "inside" if line.inside else "OUTSIDE"
        digits = 1 if line.name == _SPEED else 4
        numbers = (line.yours, line.recorded, line.tolerance)
        shown = ("-" if x is None or np.isnan(x) else f"{x:.{digits}f}" for x in numbers)
        rows.append((line.name, *shown, judged, line.origin))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    texts = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(text.rstrip() for text in texts)


def _changes(mine: Record, theirs: Record) -> list[str]:
    """What is different before any result is looked at."""
    said = []
    if mine.recipe_hash != theirs.recipe_hash:
        keys = mine.recipe.keys() | theirs.recipe.keys()
        changed = ", ".join(sorted(key for key in keys if mine.recipe.get(key) != theirs.recipe.get(key)))
        said.append(f"the recipe is another one ({changed}): the scores need not agree")
    if mine.dataset and theirs.dataset and mine.dataset.packed != theirs.dataset.packed:
        said.append("the packed images are others: the scores need not agree")
    for name in sorted(mine.versions.keys() | theirs.versions.keys()):
        if (here := mine.versions.get(name)) != (there := theirs.versions.get(name)):
            said.append(f"{name}: {here} here, {there} recorded")
    return said


def _where(mine: Record, theirs: Record) -> list[str]:
    """What is different about the machines, and which of them was busy."""
    said = []
    if _machine(mine) != _machine(theirs):
        said.append(f"trained on {_machine(mine)}; recorded on {_machine(theirs)}")
    for what, record in (("yours", mine), ("the recorded run", theirs)):
        if is_busy(record.timing.others_share):
            said.append(f"{what} trained beside other processes: {load_in_words(record.timing.others_share)}")
    return said


def _estimate(folder: Path) -> CellEstimate:
    return estimate_cell(read_predictions(folder / PREDICTIONS))


def _seeds(cell: Cell, recorded: Path) -> list[Cell]:
    """The recorded cells that differ from ``cell`` in their seed alone, itself included."""
    alike = [one for one in find_cells(recorded) if replace(one, seed=cell.seed) == cell]
    return [one for one in alike if (one.folder(recorded) / PREDICTIONS).exists()]


def _speeds(theirs: Record, recorded: Path) -> list[float]:
    """Of the recorded seeds that ran on the machine of ``theirs``: another machine is no spread."""
    seeds = _seeds(Cell.parse(theirs.cell), recorded)
    records = (check_evidence(one.folder(recorded), one) for one in seeds)
    alike = [
        one for one in records if _machine(one) == _machine(theirs) and not is_busy(one.timing.others_share)
    ]
    return [one.timing.images_per_second for one in alike if one.timing.images_per_second]


def _machine(record: Record) -> str:
    return machine_of(record, Cell.parse(record.cell).platform)


def _score(name: str, k: int, a: CellEstimate, b: CellEstimate, seeds: list[CellEstimate]) -> Line:
    yours, recorded = float(a.estimate.value[k]), float(b.estimate.value[k])
    if not a.same_images(b):
        return Line(name, yours, recorded, None, "other images, patients or labels: not judged", None)
    values = [float(one.estimate.value[k]) for one in seeds]
    if len(values) > 1:
        tolerance, origin = _of_two(values), f"spread of {len(values)} recorded seeds"
    else:
        tolerance = _Z * float(b.estimate.error[k])
        origin = "one recorded seed: patient-clustered interval"
    return Line(name, yours, recorded, tolerance, origin, abs(yours - recorded) <= tolerance)


def _speed(mine: Record, theirs: Record, speeds: list[float]) -> Line:
    yours, recorded = mine.timing.images_per_second, theirs.timing.images_per_second
    name, why = _SPEED, ""
    if yours is None or recorded is None:
        return Line(name, yours or np.nan, recorded or np.nan, None, "not reached: not judged", None)
    if _machine(mine) != _machine(theirs):
        why = "another machine: not judged"
    elif any(is_busy(run.timing.others_share) for run in (mine, theirs)):
        why = "on a busy machine: not judged"
    elif len(speeds) < 2:
        why = "one recorded seed on this machine, so its spread is unknown: not judged"
    if why:
        return Line(name, yours, recorded, None, why, None)
    tolerance = _of_two(speeds)
    origin = f"spread of {len(speeds)} recorded seeds on this machine"
    return Line(name, yours, recorded, tolerance, origin, abs(yours - recorded) <= tolerance)


def _of_two(values: list[float]) -> float:
    """How far two runs may lie apart whose values spread like ``values``: t * sd * sqrt(2)."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) * np.sqrt(2))
