"""Where each cell's evidence comes from: trained here (or on this study's cluster), recorded, or nowhere."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from cxrbench import platforms
from cxrbench.datasets.packed import data_present
from cxrbench.evidence.record import RECORD
from cxrbench.evidence.store import Recorded
from cxrbench.study.cells import Cell
from cxrbench.study.config import Study
from cxrbench.study.errors import UserError, nearest, suggestion

_SHOWN = 3  # unknown names in one message
Origin = Literal["fresh", "recorded"]
ARCHITECTURES = Path(__file__).parent / "architectures.txt"  # of the locked timm, and our variants


def must_be_architectures(
    names: Iterable[str], remedy: str = "correct the names in the config, under cells"
) -> None:
    """Raise UserError with the nearest names unless every name can be built.

    The list is that of the locked timm, so this takes no import; only a name that it lacks is looked up in
    the timm that is installed, which may be a newer one.
    """
    known = ARCHITECTURES.read_text(encoding="utf-8").split()
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown and importlib.util.find_spec("timm"):
        import timm

        unknown = [name for name in unknown if not timm.is_model(name)]
    if unknown:
        shown = [f"timm knows no architecture '{name}'{nearest(name, known)}" for name in unknown[:_SHOWN]]
        more = f"; and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise UserError("\n".join(shown) + f"{more}\n{remedy}")


class Plan:
    """Decides, without importing torch, which cells of a study are trained here.

    With ``cluster`` in the study, "here" is its nodes: their platforms count and not those of the machine
    that reads the graph, which need have no accelerator. The machine's disk is theirs too.
    """

    def __init__(self, study: Study, recorded: Path, packed: Path = Path("data/packed")) -> None:
        self.study, self.recorded, self.packed = study, recorded, packed
        self._data: dict[str, bool] = {}
        self._platforms: dict[str, str | None] = {}
        self._known = frozenset(study.all_cells())
        self._evidence = Recorded(recorded)

    def why_not_here(self, cell: Cell) -> str | None:
        """Why ``cell`` is not trained on this machine, in one sentence; None when it is."""
        if not self.study.may_run(cell):
            return f"no pattern under 'run' in the config names {cell}"
        if cell.platform not in self._platforms:
            self._platforms[cell.platform] = self._unavailable(cell.platform)
        if reason := self._platforms[cell.platform]:
            return reason
        if cell.dataset not in self._data:
            dataset = self.study.dataset(cell.dataset)
            packed = (self.packed / cell.dataset / "manifest.json").exists()
            self._data[cell.dataset] = packed or data_present(dataset)
        if not self._data[cell.dataset]:
            return (
                f"the images of {cell.dataset} are not on this machine (data/README.md says how to get them)"
            )
        return None

    def _unavailable(self, platform: str) -> str | None:
        if self.study.cluster is None:
            return platforms.unavailable(platform)
        if platform not in self.study.cluster.platforms:
            return f"the cluster's nodes have no platform {platform} (cluster.platforms in the config)"
        return None

    def origin(self, cell: Cell) -> Origin:
        """Where ``cell``'s evidence comes from; UserError with the reason when from nowhere."""
        self.must_be_known(cell)
        reason = self.why_not_here(cell)
        if reason is None:
            return "fresh"
        if self._recorded(cell):
            return "recorded"
        what = self.left_out(cell) or f"{cell} has no recorded evidence"
        raise UserError(f"{what}; and it is not trained here: {reason}")

    def evidenced(self) -> list[Cell]:
        """The cells of the study that have or will have evidence here."""
        cells = []
        for cell in self.study.all_cells():
            if self.why_not_here(cell) is None or self._recorded(cell):
                cells.append(cell)
        return cells

    def left_out(self, cell: Cell) -> str | None:
        """Why ``cell``'s recorded evidence is not used, in one sentence; None when it is, or is missing."""
        if reason := self._evidence.refused(cell):
            return f"the recorded evidence of {cell} is refused: {reason}"
        path = cell.folder(self.recorded) / RECORD
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["recipe_hash"] != self.study.recipe(cell.dataset).hash():
            other = "with another recipe"
        elif self._other_images(cell, record):
            other = "from other images"
        else:
            return None
        return f"the recorded evidence of {cell} was made {other} than the study's and is left out"

    def _other_images(self, cell: Cell, record: dict[str, Any]) -> bool:
        """Whether the study's dataset says that its parts have other sizes than those of the record."""
        dataset = self.study.dataset(cell.dataset)
        said = getattr(dataset, "images", None) or getattr(dataset, "expect_images", None)
        made_of = record.get("dataset")  # none: it failed before its images were read
        return bool(said and made_of and made_of["images"] != said)

    def _recorded(self, cell: Cell) -> bool:
        """Whether there is recorded evidence that belongs to this study."""
        return (cell.folder(self.recorded) / RECORD).exists() and self.left_out(cell) is None

    def must_be_known(self, cell: Cell) -> None:
        """UserError with the nearest names when the study has no such cell."""
        if cell in self._known:
            return
        for part, value in vars(cell).items():
            known = list(dict.fromkeys(str(vars(other)[part]) for other in self._known))
            if str(value) not in known:
                hint = suggestion(str(value), sorted(known))
                why = f"no {part} '{value}'{hint}"
                break
        else:
            why = "each part of this name, but not together"
        raise UserError(f"the study has no cell {cell}: it has {why}; add it to 'cells' in the config")
