"""Where each cell's evidence comes from: trained here (or on this study's cluster), recorded, or nowhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cxrbench import platforms
from cxrbench.datasets.packed import data_present
from cxrbench.evidence.store import EvidenceStore, Origin
from cxrbench.study.cells import Cell
from cxrbench.study.config import Study
from cxrbench.study.errors import UserError, nearest, suggestion

_SHOWN = 3  # unknown names in one message
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
    """Which cells of a study are trained here, decided without importing torch.

    With ``cluster`` in the study, "here" is its nodes: their platforms count and not those of the machine
    that reads the graph, which need have no accelerator. They share the machine's disk.
    """

    def __init__(self, study: Study, store: EvidenceStore, packed: Path = Path("data/packed")) -> None:
        self.study, self.store, self.packed = study, store, packed
        self._known = frozenset(study.all_cells())
        self._platform_missing = cache(self._why_no_platform)
        self._data_missing = cache(self._why_no_data)

    def why_not_here(self, cell: Cell) -> str | None:
        """Return why ``cell`` is not trained on this machine, in one sentence; None when it is."""
        if not self.study.may_run(cell):
            return f"no pattern under 'run' in the config names {cell}"
        return self._platform_missing(cell.platform) or self._data_missing(cell.dataset)

    def _why_no_platform(self, platform: str) -> str | None:
        if self.study.cluster is None:
            return platforms.unavailable(platform)
        if platform not in self.study.cluster.platforms:
            return f"the cluster's nodes have no platform {platform} (cluster.platforms in the config)"
        return None

    def _why_no_data(self, dataset: str) -> str | None:
        config = self.study.dataset(dataset)
        if (self.packed / dataset / "manifest.json").exists() or data_present(config):
            return None
        return f"the images of {dataset} are not on this machine (data/README.md says how to get them)"

    def origin(self, cell: Cell) -> Origin:
        """Return where ``cell``'s evidence comes from; UserError with the reason when from nowhere."""
        self.must_be_known(cell)
        reason = self.why_not_here(cell)
        if reason is None:
            return "fresh"
        if self.store.serves(cell, self.study):
            return "recorded"
        what = self.store.left_out(cell, self.study) or f"{cell} has no recorded evidence"
        raise UserError(f"{what}; and it is not trained here: {reason}")

    def evidenced(self) -> list[Cell]:
        """Return the cells of the study that have or will have evidence here."""
        cells = self.study.all_cells()
        return [c for c in cells if self.why_not_here(c) is None or self.store.serves(c, self.study)]

    def must_be_known(self, cell: Cell) -> None:
        """Raise UserError with the nearest names when the study has no such cell."""
        if cell in self._known:
            return
        why = "each part of this name, but not together"
        for part, value in vars(cell).items():
            known = sorted({str(vars(other)[part]) for other in self._known})
            if str(value) not in known:
                why = f"no {part} '{value}'{suggestion(str(value), known)}"
                break
        raise UserError(f"the study has no cell {cell}: it has {why}; add it to 'cells' in the config")
