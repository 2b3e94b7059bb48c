"""Recorded evidence that is not what was recorded: found before it is used, so that the rest can go on."""

from __future__ import annotations

from pathlib import Path

from cxrbench.cells import Cell
from cxrbench.errors import UserError
from cxrbench.evidence import LOG, PREDICTIONS, RECORD, check_evidence
from cxrbench.files import sha256_file

SUMS = "SHA256SUMS"


class Recorded:
    """The evidence below ``root``; each cell is looked at once, when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sums: dict[str, str] | None = None
        self._refused: dict[Cell, str | None] = {}

    def refused(self, cell: Cell) -> str | None:
        """Why the evidence of ``cell`` is not used, with the way to mend it; None when it is fit or absent.

        Refused are files that differ from SHA256SUMS or from the record's own hashes, that are missing, or
        that this version cannot read. ``cxrbench verify`` looks further, and at all files.
        """
        if cell not in self._refused:
            self._refused[cell] = self._look_at(cell)
        return self._refused[cell]

    def _look_at(self, cell: Cell) -> str | None:
        folder = cell.folder(self.root)
        listed = {name: self._listed(f"{cell}/{name}") for name in (RECORD, PREDICTIONS, LOG)}
        if listed[RECORD] is None and not (folder / RECORD).exists():
            return None
        for name, expected in listed.items():
            path = folder / name
            if expected is not None and (not path.is_file() or sha256_file(path) != expected):
                what = "differs from" if path.is_file() else "is missing, but stands in"
                return f"{path} {what} {SUMS}; restore it: git checkout -- {self.root}"
        try:
            check_evidence(folder, cell)
        except UserError as error:
            return str(error)
        return None

    def _listed(self, name: str) -> str | None:
        if self._sums is None:
            path = self.root / SUMS
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
            self._sums = {line[66:]: line[:64] for line in lines}
        return self._sums.get(name)
