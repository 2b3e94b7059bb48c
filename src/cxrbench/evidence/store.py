"""Evidence of cells: where it comes from, whether it fits the study and is intact. Rows of measurements."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from cxrbench.common.errors import UserError
from cxrbench.common.files import remedy, sha256_file, sha256_json, written_aside
from cxrbench.evidence.record import LAST, LOG, PREDICTIONS, RECORD, Record, read_record
from cxrbench.evidence.sums import SUMS, read_sums, updated_sums
from cxrbench.study.config import AnySource, Study
from cxrbench.study.names import Cell, find_cells
from cxrbench.study.platforms import ENTRIES

SETTINGS = "datasets.json"  # of packed datasets by their hash, for records that do not have them
EVIDENCE_FILES = (PREDICTIONS, LAST, LOG, RECORD)  # of a cell; the record last: it is what others wait for
Origin = Literal["fresh", "recorded", "refused", "nowhere"]


class Provenance(NamedTuple):
    """Where the evidence of a cell comes from, and its record; without one, why, if something is recorded."""

    origin: Origin
    record: Record | None = None
    reason: str | None = None


class EvidenceStore:
    """The recorded evidence below ``root``; each cell is read and checked once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sums = cache(lambda: read_sums(root))
        self._settings = cache(lambda: _read_settings(root / SETTINGS))
        self._checked = cache(self._check)

    def record(self, cell: Cell) -> Record | None:
        """The intact record of ``cell``; None where it is absent or refused."""
        checked = self._checked(cell)
        return checked if isinstance(checked, Record) else None

    def records(self) -> dict[Cell, Record]:
        """All intact records by cell, sorted."""
        cells = find_cells(self.root) if self.root.is_dir() else []
        return {cell: record for cell in cells if (record := self.record(cell))}

    def cells(self, study: Study) -> list[Cell]:
        """The cells of ``study``: those it plans, then recorded ones that fit its datasets.

        So a contributed platform, network or seed shows up by itself. ``unplanned: false`` leaves them out.
        """
        planned = dict.fromkeys(study.all_cells())
        datasets = {cell.dataset for cell in planned} if study.unplanned and self.root.is_dir() else set()
        others = (cell for cell in find_cells(self.root) if cell.dataset in datasets and cell not in planned)
        usable = (cell for cell in others if cell.platform in ENTRIES and self.source_of(cell, study).record)
        return [*planned, *usable]

    def packed_hashes(self, dataset: str) -> set[str]:
        """The hashes of packed images and labels that intact records of ``dataset`` name."""
        cells = find_cells(self.root) if self.root.is_dir() else []
        records = [self.record(cell) for cell in cells if cell.dataset == dataset]
        return {record.dataset.packed for record in records if record and record.dataset}

    def refused(self, cell: Cell) -> str | None:
        """The reason the evidence of ``cell`` is not used, with a remedy; None when it is intact or absent.

        Refused are files that SHA256SUMS does not list, that differ from it or from the record's own hashes,
        that are missing, or that this version cannot read. ``cxrbench verify`` checks more, and all files.
        """
        checked = self._checked(cell)
        return checked if isinstance(checked, str) else None

    def _check(self, cell: Cell) -> Record | str | None:
        folder = cell.folder(self.root)
        listed = {name: self._sums().get(f"{cell}/{name}") for name in EVIDENCE_FILES}
        if listed[RECORD] is None and not (folder / RECORD).exists():
            return None
        for name in reversed(EVIDENCE_FILES):
            path, expected = folder / name, listed[name]
            if expected is not None and (not path.is_file() or sha256_file(path) != expected):
                state = "differs from" if path.is_file() else "is missing, but listed in"
                return f"{path} {state} {SUMS}; {remedy(path)}"
            if expected is None and path.exists():
                again = f"{remedy(self.root / SUMS)}, or record the cell: cxrbench record {cell}"
                return f"{path} is not listed in {SUMS}; {again}"
        try:
            return check_evidence(folder, cell)
        except UserError as error:
            return str(error)

    def source_of(self, cell: Cell, study: Study, adopted: Path | None = None) -> Provenance:
        """Whose run stands for ``cell`` in ``study``; without ``adopted``, what is recorded of it.

        ``adopted``: the record that a build took (``results/cells/<cell>/record.json``); equal hashes mean
        the same run. Of a cell whose recorded evidence is refused, only a run of this machine
        (``results/runs/<cell>``) counts. A run that the study's recipe or images differ from is left out.
        """
        refused = self.refused(cell)
        if adopted and refused and not _same(adopted, cell.folder(adopted.parents[5] / "runs") / RECORD):
            adopted = None
        if refused and not adopted:
            return Provenance("refused", reason=f"the recorded evidence of {cell} is refused: {refused}")
        if (record := read_record(adopted) if adopted else self.record(cell)) is None:
            return Provenance("nowhere")
        recorded = not refused and (not adopted or _same(adopted, cell.folder(self.root) / RECORD))
        if difference := self._difference(record, cell, study):
            made = f"the {'recorded ' * recorded}evidence of {cell} was made {difference}"
            return Provenance("nowhere", reason=f"{made} than the study's and is left out")
        return Provenance("recorded" if recorded else "fresh", record)

    def _difference(self, record: Record, cell: Cell, study: Study) -> str | None:
        """The differences of a record from a study, in words."""
        images = study.stated_images(cell.dataset)
        if record.recipe_hash != study.recipe(cell.dataset).hash():
            return "with another recipe"
        if images and record.dataset and record.dataset.images != images:
            return "from other images"
        differing = self._differing(record, study.dataset(cell.dataset))
        return f"with another value of {', '.join(differing)}" if differing else None

    def _differing(self, record: Record, dataset: AnySource) -> list[str]:
        """The settings of ``dataset`` that are known to differ from those of the record's."""
        if record.dataset is None:
            return []
        recorded = record.dataset.settings or self._settings().get(record.dataset.packed, {})
        return [key for key, wanted in dataset.settings().items() if recorded.get(key, wanted) != wanted]

    def keep(self, cells: Iterable[Cell], runs: Path) -> None:
        """Copy the evidence of ``cells`` from below ``runs`` to here and update SHA256SUMS."""
        with updated_sums(self.root):
            copy_all([(cell.folder(runs), cell.folder(self.root)) for cell in cells])


def _read_settings(path: Path) -> dict[str, dict[str, Any]]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not isinstance(settings, dict) or not all(isinstance(entry, dict) for entry in settings.values()):
            raise ValueError("settings by the hash of packed data are expected")
        return settings
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); {remedy(path)}") from None


def _same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and sha256_file(path) == sha256_file(other)


def check_evidence(folder: Path, cell: Cell) -> Record:
    """The record in ``folder`` after checking it against its name, its predictions and its log."""
    record = read_record(folder)
    if record.cell != str(cell):
        raise UserError(f"{folder}: the record is of cell {record.cell}; move it to the folder of that cell")
    named = {
        PREDICTIONS: record.predictions_sha256,
        LAST: record.predictions_last_sha256,
        LOG: record.log_sha256,
    }
    for name, expected in named.items():
        path = folder / name
        if not path.exists():
            if expected is not None:
                raise UserError(f"{path}: missing, but the record names it; {remedy(path)}")
        elif sha256_file(path) != expected:
            changed = f"its sha256 differs from the one in {RECORD}: the file was changed after the run"
            raise UserError(f"{path}: {changed}; {remedy(path)}")
    if (record.status == "ok") != (record.predictions_sha256 is not None):
        raise UserError(
            f"{folder}: status is '{record.status}', which does not fit its predictions; train the cell again"
        )
    return record


def copy_evidence(source: Path, target: Path) -> None:
    """Copy predictions, log and record of a cell; remove from ``target`` what ``source`` lacks."""
    copy_all([(source, target)])


def copy_all(pairs: Sequence[tuple[Path, Path]], texts: Mapping[Path, bytes] = MappingProxyType({})) -> None:
    """Copy the evidence of each pair of folders, and write ``texts``: all files or, on a full disk, none."""
    with ExitStack() as asides:  # renamed in the end, in reverse
        for path, text in texts.items():
            asides.enter_context(written_aside(path)).write_bytes(text)
        for source, target in reversed(pairs):
            for name in reversed(EVIDENCE_FILES):  # so the record last
                if (source / name).exists():
                    aside = asides.enter_context(written_aside(target / name))
                    shutil.copyfile(source / name, aside)
    for source, target in pairs:
        for name in EVIDENCE_FILES:
            if not (source / name).exists():
                (target / name).unlink(missing_ok=True)


# -- rows of measurements ----------------------------------------------------------------------------

Rows = list[dict[str, Any]]
GATE = Path("results/bench/gate.json")  # of `cxrbench bench steps`, below a checkout
_STEP = ("platform", "architecture", "pixels", "batch", "precision", "fastest")
KEYS = {
    "train": _STEP,
    "gains": _STEP,
    "gate": ("platform", "architecture", "precision", "pixels", "batch"),
    "steps": ("platform", "architecture", "precision"),
    "xla_ways": ("way",),
    "pack": ("format", "pixels"),
    "metrics": ("images", "patients", "replicates"),
}
UNFIT = "does_not_fit"  # key of a row of train.json without speeds: why
DEFAULTS = {"precision": "fp32", "fastest": False, "own_processes": False}  # of rows older than these fields

# A way of running a training step is kept when its paired median gain exceeds every difference of two equal
# contenders; in measurements from before these were among them, when it exceeds this.
KEPT_ABOVE = 0.03

# What the training loop is to reach over timm at its documented best, and over timm with the same memory.
AHEAD, NEVER_BEHIND = 1.10, 1.0

STEP_FLOOR = "cpu, one thread"  # the noise floor of compared steps: it sums in another order
STEP_DIFFERENCES = ("loss_difference", "gradient_norm_difference", "weights_difference")
# What the first TESTED_STEPS of compared steps are drawn beside (the figure of step parity), by precision:
# relative differences of loss, gradient norm and weights. The gate (benchmarks/gate.py) measures its own.
STEP_TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
TESTED_STEPS = 10


def read_measured(path: Path) -> Rows:
    """Read the rows of a file of measurements; none where there is no file."""
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a list of rows is expected")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: {error}; {remedy(path)}") from None
    return list(rows)


def with_speed(rows: Rows) -> Rows:
    """The rows with a speed, without those that only say that a batch does not fit a device."""
    return [row for row in rows if UNFIT not in row]


def merged(before: Rows, new: Rows, kind: str) -> Rows:
    """``new``, after the rows of ``before`` whose settings (:data:`KEYS` of ``kind``) it lacks."""

    def setting(row: dict[str, Any]) -> list[Any]:
        return [(DEFAULTS | row).get(name) for name in KEYS[kind]]

    replaced = [setting(row) for row in new]
    return [row for row in before if setting(row) not in replaced] + new


def gate_outcome(platform: str, precision: str, path: Path = GATE) -> dict[str, Any] | None:
    """What the gate of steps found here of a platform, for a record; None: it was not run.

    ``sha256`` is of its rows as JSON, which ``cxrbench bench record`` keeps.
    """
    asked = (platform, precision)
    rows = [row for row in read_measured(path) if (row["platform"], row["precision"]) == asked]
    if not rows:
        return None
    networks = list(dict.fromkeys(row["architecture"] for row in rows))
    return {"sha256": sha256_json(rows), "networks": networks, "within_tolerance": not differing_steps(rows)}


def differing_steps(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the gate of steps with a difference, or whose step does not repeat to the bit."""
    return [row for row in rows if row["differences"] or not row["repeats"]]
