"""Names: that of a cell, ``dataset/architecture/platform/seedN``."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from cxrbench.common.errors import UserError

GROUP = ["dataset", "architecture", "platform"]  # columns: the cells of these are seeds of one training
PART = r"[\w][\w.\-]{0,99}"
_NAME = re.compile(
    rf"(?P<dataset>{PART})/(?P<architecture>{PART})/(?P<platform>[\w\-]+)/seed(?P<seed>0|[1-9][0-9]{{0,9}})"
)
NAME_FORM = "a name: at most 100 letters, digits, dots, hyphens and underscores, the first no dot or hyphen"


@dataclass(frozen=True, order=True)
class Cell:
    """One training run."""

    dataset: str
    architecture: str
    platform: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.architecture}/{self.platform}/seed{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell that ``text`` names; trailing slashes and a trailing ``record.json`` are forgiven."""
        match = _NAME.fullmatch(text.removesuffix("record.json").strip("/"))
        if match is None:
            raise UserError(
                f"'{text}' is not a cell: write dataset/architecture/platform/seedN, "
                "for example nih128-64px/resnet18/cpu/seed0"
            )
        return cls(match["dataset"], match["architecture"], match["platform"], int(match["seed"]))

    def folder(self, root: Path | str) -> Path:
        """Where this cell's files lie below ``root``."""
        return Path(root) / str(self)


def find_cells(root: Path | str) -> list[Cell]:
    """The cells with a record.json below ``root``, sorted."""
    root = Path(root)
    folders = (path.parent for path in root.glob("*/*/*/seed*/record.json"))
    names = (folder.relative_to(root).as_posix() for folder in folders)
    return sorted(Cell.parse(name) for name in names if _NAME.fullmatch(name))  # no seed0.bak, no seed00


def expand_braces(pattern: str) -> list[str]:
    """``a/{b,c}/d`` -> ``[a/b/d, a/c/d]``."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [full for part in match[1].split(",") for full in expand_braces(head + part.strip() + tail)]


def matches(cell: Cell, patterns: list[str]) -> bool:
    """Whether one of the shell-like ``patterns`` (with braces) names ``cell``."""
    return any(
        fnmatch.fnmatchcase(str(cell), name) for pattern in patterns for name in expand_braces(pattern)
    )
