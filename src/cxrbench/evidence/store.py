"""Where a cell's evidence comes from, whether it fits the study, and whether it is intact."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cxrbench.evidence.record import LOG, PREDICTIONS, RECORD, Record, read_record
from cxrbench.evidence.sums import SUMS, read_sums, updated_sums
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.config import AnySource, Study
from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy, sha256_file, written_aside
from cxrbench.study.platform_names import ENTRIES

SETTINGS = "datasets.json"  # of packed datasets by their hash, for records that do not have them
FILES = (PREDICTIONS, LOG, RECORD)  # of a cell; the record last: it is what others wait for
Origin = Literal["fresh", "recorded", "refused", "nowhere"]


class EvidenceStore:
    """The recorded evidence below ``root``; each cell is read and checked once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sums = cache(lambda: read_sums(root))
        self._settings = cache(lambda: _read_settings(root / SETTINGS))
        self._checked = cache(self._check)

    def record(self, cell: Cell) -> Record | None:
        """Return the intact record of ``cell``; None where it is absent or refused."""
        found = self._checked(cell)
        return found if isinstance(found, Record) else None

    def records(self) -> dict[Cell, Record]:
        """Return all intact records by cell, sorted."""
        cells = find_cells(self.root) if self.root.is_dir() else []
        return {cell: record for cell in cells if (record := self.record(cell))}

    def cells(self, study: Study) -> list[Cell]:
        """Return the cells of ``study``: those it plans, then recorded ones that fit its datasets.

        So a contributed platform, network or seed shows up by itself. ``unplanned: false`` leaves them out.
        """
        planned = dict.fromkeys(study.all_cells())
        datasets = {cell.dataset for cell in planned} if study.unplanned and self.root.is_dir() else set()
        others = (cell for cell in find_cells(self.root) if cell.dataset in datasets and cell not in planned)
        return [*planned, *(cell for cell in others if cell.platform in ENTRIES and self.serves(cell, study))]

    def packed_hashes(self, dataset: str) -> set[str]:
        """Return the hashes of packed images and labels that intact records of ``dataset`` name."""
        cells = find_cells(self.root) if self.root.is_dir() else []
        records = [self.record(cell) for cell in cells if cell.dataset == dataset]
        return {record.dataset.packed for record in records if record and record.dataset}

    def refused(self, cell: Cell) -> str | None:
        """Return why the evidence of ``cell`` is not used, with a remedy; None when it is intact or absent.

        Refused are files that SHA256SUMS does not list, that differ from it or from the record's own hashes,
        that are missing, or that this version cannot read. ``cxrbench verify`` checks more, and all files.
        """
        found = self._checked(cell)
        return found if isinstance(found, str) else None

    def _check(self, cell: Cell) -> Record | str | None:
        folder = cell.folder(self.root)
        listed = {name: self._sums().get(f"{cell}/{name}") for name in FILES}
        if listed[RECORD] is None and not (folder / RECORD).exists():
            return None
        for name in reversed(FILES):
            path, expected = folder / name, listed[name]
            if expected is not None and (not path.is_file() or sha256_file(path) != expected):
                what = "differs from" if path.is_file() else "is missing, but listed in"
                return f"{path} {what} {SUMS}; {remedy(path)}"
            if expected is None and path.exists():
                again = f"{remedy(self.root / SUMS)}, or record the cell: cxrbench record {cell}"
                return f"{path} is not listed in {SUMS}; {again}"
        try:
            return check_evidence(folder, cell)
        except UserError as error:
            return str(error)

    def left_out(self, cell: Cell, study: Study) -> str | None:
        """Return why ``study`` cannot use the evidence of ``cell``; None when it can, or there is none."""
        if reason := self.refused(cell):
            return f"the recorded evidence of {cell} is refused: {reason}"
        if (record := self.record(cell)) is None:
            return None
        images = study.stated_images(cell.dataset)
        if record.recipe_hash != study.recipe(cell.dataset).hash():
            other = "with another recipe"
        elif images and record.dataset and record.dataset.images != images:
            other = "from other images"
        elif differing := self._differing(record, study.dataset(cell.dataset)):
            other = f"with another value of {', '.join(differing)}"
        else:
            return None
        return f"the recorded evidence of {cell} was made {other} than the study's and is left out"

    def _differing(self, record: Record, dataset: AnySource) -> list[str]:
        """Return the settings of ``dataset`` that are known to differ from those of the record's."""
        if record.dataset is None:
            return []
        known = record.dataset.settings or self._settings().get(record.dataset.packed, {})
        return [key for key, wanted in dataset.settings().items() if known.get(key, wanted) != wanted]

    def serves(self, cell: Cell, study: Study) -> bool:
        """Whether there is evidence of ``cell`` that is intact and fits ``study``."""
        return self.record(cell) is not None and self.left_out(cell, study) is None

    def origin(self, cell: Cell, adopted: Path | None) -> Origin:
        """Return where the record ``adopted`` (``results/cells/<cell>/record.json``) of ``cell`` comes from.

        Equal hashes mean the same run. Of a cell whose recorded evidence is refused, only a run of this
        machine (``results/runs/<cell>``) counts.
        """
        if self.refused(cell):
            trained_here = adopted and _same(adopted, cell.folder(adopted.parents[5] / "runs") / RECORD)
            return "fresh" if trained_here else "refused"
        if adopted is None:
            return "nowhere"
        return "recorded" if _same(adopted, cell.folder(self.root) / RECORD) else "fresh"

    def keep(self, cells: Iterable[Cell], runs: Path) -> None:
        """Copy the evidence of ``cells`` from below ``runs`` to here and update SHA256SUMS."""
        with updated_sums(self.root):
            for cell in cells:
                copy_evidence(cell.folder(runs), cell.folder(self.root))


def _read_settings(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); {remedy(path)}") from None


def _same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and sha256_file(path) == sha256_file(other)


def check_evidence(folder: Path, cell: Cell) -> Record:
    """Return the record in ``folder`` after checking it against its name, its predictions and its log."""
    record = read_record(folder)
    if record.cell != str(cell):
        raise UserError(f"{folder}: the record is of cell {record.cell}; move it to the folder of that cell")
    for name, expected in ((PREDICTIONS, record.predictions_sha256), (LOG, record.log_sha256)):
        path = folder / name
        if not path.exists():
            if expected is not None:
                raise UserError(f"{path}: missing, but the record names it; {remedy(path)}")
        elif sha256_file(path) != expected:
            what = f"its sha256 differs from the one in {RECORD}: the file was changed after the run"
            raise UserError(f"{path}: {what}; {remedy(path)}")
    if (record.status == "ok") != (record.predictions_sha256 is not None):
        raise UserError(f"{folder}: status is '{record.status}', which does not fit its predictions")
    return record


def copy_evidence(source: Path, target: Path) -> None:
    """Copy predictions, log and record of a cell; remove from ``target`` what ``source`` lacks."""
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (source / name).exists():
            with written_aside(target / name) as aside:
                aside.write_bytes((source / name).read_bytes())
        else:
            (target / name).unlink(missing_ok=True)
