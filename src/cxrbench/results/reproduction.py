"""Yours against recorded: one cell that was trained here beside its recorded evidence.

The tolerance of a score is what training the same cell again may change: for two runs, ``t * sd * sqrt(2)``
over the recorded seeds. Both runs score the same images, so nothing is added for patients. With one recorded
seed 1.96 patient-clustered standard errors stand in. These tolerances do not depend on the fresh run. From
``ENOUGH`` recorded seeds on, these are a reference: the fresh run has to be inside the prediction interval
around their mean, of patients and runs, as in `cxrbench compare RUN REFERENCE --reference`.

A processor with the same instructions gave equal bytes wherever that was tried; one with others rounds
differently, which a training amplifies as it does another seed. ``reproductions.csv`` has what was measured.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy import stats

from cxrbench.common.errors import UserError
from cxrbench.common.files import read_csv
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, Record, load_in_words
from cxrbench.evidence.store import check_evidence
from cxrbench.statistics.components import Difference, from_reference
from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.metrics import MACRO, in_words
from cxrbench.study.names import Cell, find_cells

_Z = 1.96
ENOUGH = 5  # recorded seeds: the spread of fewer is known to a factor of two at best
REPRODUCTIONS = "reproductions.csv"  # cells that were trained again: machines, instructions, differences
SPEED, _STATUS = "images per second", "status"
_SCORES = {key: in_words(*key) for key in ((MACRO, "auroc"), (MACRO, "f1_macro"))}


@dataclass(frozen=True)
class Line:
    """A compared quantity; ``origin`` is where the tolerance comes from, or why there is none. It lies around
    ``centre``: the recorded value, or the mean of a reference."""

    name: str
    yours: float
    recorded: float
    tolerance: float | None
    origin: str
    inside: bool | None  # None where it is not judged
    mean: float | None = None  # of a reference

    @property
    def centre(self) -> float:
        return self.recorded if self.mean is None else self.mean


@dataclass(frozen=True)
class Reproduction:
    """How a fresh run of a cell compares with the recorded one: notes to be read first, and lines."""

    notes: list[str]
    lines: list[Line] = field(default_factory=list)
    itself: bool = False  # the fresh run is the recorded one: nothing was trained again
    identical: bool = False  # another run, whose predictions have the same bytes

    @property
    def inside(self) -> bool:
        """Whether nothing that is judged lies outside its tolerance."""
        return all(line.inside is not False for line in self.lines)

    @property
    def verdict(self) -> str:
        """The verdict in words; unjudged scores and a run compared with itself are no agreement."""
        if self.itself:
            return "this is the recorded run itself: nothing was compared"
        if self.identical:
            speed = "" if self.inside else "; the speed is OUTSIDE its tolerance"
            return f"inside the tolerance: the predictions are equal to the byte{speed}"
        if all(line.inside is None for line in self.lines if line.name != SPEED):
            return "no score was judged" if self.inside else "no score was judged, the speed is OUTSIDE"
        return "inside the tolerance" if self.inside else "OUTSIDE the tolerance"


def compare_with_record(cell: Cell, fresh: Path, recorded: Path) -> Reproduction:
    """Compare the evidence of ``cell`` in its folder ``fresh`` with that below the root ``recorded``."""
    new_run = check_evidence(fresh, cell)
    if not (cell.folder(recorded) / RECORD).exists():
        note = f"status {new_run.status}; nothing is recorded of it, so nothing is judged"
        values = _values(_estimate(fresh)) if new_run.status == "ok" else {}
        return Reproduction([note], [_not_judged(name, value, np.nan) for name, value in values.items()])
    recorded_run = check_evidence(cell.folder(recorded), cell)
    if new_run == recorded_run:
        return Reproduction(["train the cell again to compare two runs"], itself=True)
    notes = [*_changes(new_run, recorded_run), *_where(new_run, recorded_run)]
    if new_run.status != "ok" or recorded_run.status != "ok":
        notes.append(f"status: yours {new_run.status}, recorded {recorded_run.status}")
        same = new_run.status == recorded_run.status
        return Reproduction(notes, [Line(_STATUS, np.nan, np.nan, None, "must be equal", same)])
    same = new_run.predictions_sha256 == recorded_run.predictions_sha256
    if not same and new_run.recipe_hash == recorded_run.recipe_hash:
        notes.append(_rounding(new_run, recorded_run, recorded))
    scores = _scores(cell, _estimate(fresh), recorded)
    if same:
        scores = [replace(line, inside=True) for line in scores]
    return Reproduction(notes, [*scores, _speed(new_run, recorded_run, recorded)], identical=same)


def tolerances(cell: Cell, recorded: Path) -> list[Line]:
    """The recorded scores of ``cell`` with what training it again may change; none if it has none."""
    if check_evidence(cell.folder(recorded), cell).status != "ok":
        return []
    return _scores(cell, _estimate(cell.folder(recorded)), recorded)


def replacement(cell: Cell, fresh: Path, recorded: Path) -> list[str]:
    """The changes when the evidence in ``fresh`` replaces that of ``cell`` below ``recorded``.

    Empty where both are the same run. For evidence that cannot be read, the reason.
    """
    try:
        both = check_evidence(cell.folder(recorded), cell), check_evidence(fresh, cell)
        comparison = compare_with_record(cell, fresh, recorded)
    except UserError as error:
        return [f"the recorded evidence is not readable: {error}"]
    if comparison.itself:
        return []
    changes = {
        "run": [f"ended {record.ended}, status {record.status}" for record in both],
        "machine": [record.machine for record in both],
        "load": [load_in_words(record.timing.others_share) for record in both],
    }
    values = ((line.name, f"{line.recorded:.4g} -> {line.yours:.4g}") for line in comparison.lines)
    return [
        *(f"{quantity}: {' -> '.join(dict.fromkeys(pair))}" for quantity, pair in changes.items()),
        *(f"{name}: {change}" for name, change in values if name != _STATUS),
        *_changes(both[1], both[0]),
    ]


def _changes(new_run: Record, recorded_run: Record) -> list[str]:
    """The differences that are known before any result is looked at."""
    notes = []
    if new_run.recipe_hash != recorded_run.recipe_hash:
        keys = sorted(new_run.recipe.keys() | recorded_run.recipe.keys())
        changed = ", ".join(key for key in keys if new_run.recipe.get(key) != recorded_run.recipe.get(key))
        notes.append(f"the recipes differ ({changed}): the scores may differ")
    if new_run.dataset and recorded_run.dataset and new_run.dataset.packed != recorded_run.dataset.packed:
        notes.append("the packed images differ: the scores may differ")
    if new_run.update != recorded_run.update:
        notes.append(
            f"the update of the weights is rounded otherwise: {new_run.update} here, "
            f"{recorded_run.update} recorded"
        )
    for name in sorted(new_run.versions.keys() | recorded_run.versions.keys()):
        if (version := new_run.versions.get(name)) != (recorded_version := recorded_run.versions.get(name)):
            notes.append(f"{name}: {version} here, {recorded_version} recorded")
    return notes


def _where(new_run: Record, recorded_run: Record) -> list[str]:
    """The differences between the machines, and which of them was busy."""
    notes = []
    if new_run.machine != recorded_run.machine:
        notes.append(f"trained on {new_run.machine}; recorded on {recorded_run.machine}")
    for run, record in (("yours", new_run), ("the recorded run", recorded_run)):
        if record.busy:
            load = load_in_words(record.timing.others_share)
            notes.append(f"{run} trained beside other processes: {load}")
    return notes


def _rounding(new_run: Record, recorded_run: Record, recorded: Path) -> str:
    """The known differences of cells that were trained again: the basis of the verdict."""
    device, recorded_device = new_run.host.device, recorded_run.host.device
    text, path = "the predictions are not equal to the byte", recorded / REPRODUCTIONS
    if not path.is_file() or not (device.startswith("CPU") and recorded_device.startswith("CPU")):
        return text
    rows = read_csv(path)
    alike = rows["device"] == rows["recorded_device"]
    equal = (rows["max_score_difference"] == 0) & alike
    others = rows[~alike]
    moved = others["auroc_difference"].abs()
    kind = (
        "the same instructions"
        if device == recorded_device
        else f"other instructions ({device}; recorded: {recorded_device})"
    )
    inside, most = (moved <= others["auroc_tolerance"]).sum(), moved.max()
    return (
        f"{text}; the processor has {kind}. Of cells that were trained again ({REPRODUCTIONS}), "
        f"{equal.sum()} of {alike.sum()} with the same instructions were equal to the byte; with others "
        f"macro AUROC moved by up to {most:.4f}, inside the tolerance from seeds in {inside} of {len(others)}"
    )


def _estimate(folder: Path) -> CellEstimate:
    return estimate_cell(read_predictions(folder / PREDICTIONS))


def _values(cell: CellEstimate) -> dict[str, float]:
    return {name: float(cell.estimate.value[cell.keys.index(key)]) for key, name in _SCORES.items()}


def _seeds(cell: Cell, recorded: Path) -> dict[Cell, Record]:
    """The scored records that differ from that of ``cell`` in their seed alone, itself included."""
    alike = [other for other in find_cells(recorded) if replace(other, seed=cell.seed) == cell]
    records = {other: check_evidence(other.folder(recorded), other) for other in alike}
    wanted = records[cell]
    return {
        other: record
        for other, record in records.items()
        if record.status == "ok"
        and record.recipe_hash == wanted.recipe_hash
        and _packed(record) == _packed(wanted)
    }


def _packed(record: Record) -> str | None:
    """The hash of the images and labels; manifests of equal ones may differ in their words."""
    return record.dataset.packed if record.dataset else None


def _scores(cell: Cell, estimate: CellEstimate, recorded: Path) -> list[Line]:
    recorded_estimate = _estimate(cell.folder(recorded))
    cells = [_estimate(seed.folder(recorded)) for seed in _seeds(cell, recorded)]
    seeds, lines = [_values(cell) for cell in cells], []
    beside = from_reference(estimate.estimate, [c.estimate for c in cells]) if len(cells) >= ENOUGH else None
    for key, name in _SCORES.items():
        pair = _values(estimate)[name], _values(recorded_estimate)[name]
        if not estimate.same_images(recorded_estimate):
            lines.append(_not_judged(name, *pair, "other images, patients or labels: not judged"))
        elif beside is not None:
            lines.append(_beside(name, *pair, beside, estimate.keys.index(key), len(cells)))
        elif len(seeds) > 1:
            origin = f"spread of {len(seeds)} recorded seeds"
            lines.append(_judged(name, *pair, _of_two([values[name] for values in seeds]), origin))
        else:
            error = float(recorded_estimate.estimate.error[recorded_estimate.keys.index(key)])
            origin = "one recorded seed: 1.96 clustered standard errors"
            lines.append(_judged(name, *pair, _Z * error, origin))
    return lines


def _beside(name: str, yours: float, recorded: float, found: Difference, k: int, runs: int) -> Line:
    """A score, column ``k``, beside the prediction interval of all recorded ``runs``."""
    low, high = (float(end[k]) for end in found.interval(0.95))
    mean = yours - float(found.value[k])
    if not np.isfinite([low, high]).all():
        return _not_judged(name, yours, recorded, "not defined on these images: not judged")
    noticed = f"detects a change of {found.noticeable()[k]:.4f} in 4 of 5 runs"
    origin = f"around {mean:.4f}, the mean of {runs} recorded runs; {noticed}"
    return Line(name, yours, recorded, (high - low) / 2, origin, low <= 0 <= high, mean)


def _speed(new_run: Record, recorded_run: Record, recorded: Path) -> Line:
    new_speed, recorded_speed = new_run.timing.images_per_second, recorded_run.timing.images_per_second
    if new_speed is None or recorded_speed is None:
        return _not_judged(SPEED, new_speed or np.nan, recorded_speed or np.nan, "not reached: not judged")
    if new_run.machine != recorded_run.machine:
        return _not_judged(SPEED, new_speed, recorded_speed, "another machine: not judged")
    if new_run.busy or recorded_run.busy:
        return _not_judged(SPEED, new_speed, recorded_speed, "on a busy machine: not judged")
    records = _seeds(Cell.parse(recorded_run.cell), recorded).values()
    alike = [record for record in records if record.machine == recorded_run.machine]
    quiet = [record.timing for record in alike if not record.busy]
    speeds = [timing.images_per_second for timing in quiet if timing.images_per_second]
    if len(speeds) < 2:
        why = "one recorded seed on this machine, so its spread is unknown: not judged"
        return _not_judged(SPEED, new_speed, recorded_speed, why)
    origin = f"spread of {len(speeds)} recorded seeds on this machine"
    return _judged(SPEED, new_speed, recorded_speed, _of_two(speeds), origin)


def _judged(name: str, yours: float, recorded: float, tolerance: float, origin: str) -> Line:
    difference = abs(yours - recorded)
    if np.isnan(difference) or np.isnan(tolerance):
        return _not_judged(name, yours, recorded, "not defined on these images: not judged")
    return Line(name, yours, recorded, tolerance, origin, difference <= tolerance)


def _not_judged(name: str, yours: float, recorded: float, why: str = "") -> Line:
    return Line(name, yours, recorded, None, why, None)


def _of_two(values: list[float]) -> float:
    """The largest expected distance of two runs whose values spread like ``values``: t * sd * sqrt(2)."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) * np.sqrt(2))
