"""Where each cell's evidence comes from, and what the job that trains a cell asks of a cluster. No torch.

The time of a job is twice what the longest recorded run of the same dataset, architecture and platform
took, counted per epoch; four times that of the nearest run where there is none of the same; and
``limits.hours`` where nothing of its platform is recorded. Ten minutes are added for starting. A retry asks
for twice the time of the attempt before: what ran out of time goes on from its checkpoint.
"""

import importlib.util
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cxrbench.common.errors import UserError, nearest, suggestion
from cxrbench.datasets.packed import data_present
from cxrbench.evidence.record import Record
from cxrbench.evidence.store import EvidenceStore, Origin
from cxrbench.study import platforms
from cxrbench.study.config import Cluster, Study, TableSource
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED, PLATFORMS
from cxrbench.study.recipe import weights_missing

_SHOWN = 3  # unknown names in one message
ARCHITECTURES = Path(__file__).parent / "architectures.txt"  # of the locked timm, and our variants
_START_MINUTES = 10.0  # for the node, the environment, the data and the end of a trainer
# Margins over the time of recorded runs on the same platform, by what they share with the cell.
NEAREST = ((2.0, ("dataset", "architecture")), (4.0, ("dataset",)), (4.0, ("architecture",)), (4.0, ()))
MEMORY_MARGIN, MEMORY_BASE_GIB = 1.5, 2.0  # over the recorded peak; for runner, Snakemake and srun
_DEFAULT_MEMORY_GIB = 8.0


def must_be_architectures(
    names: Iterable[str], remedy: str = "correct the names in the config, under cells"
) -> None:
    """Raise UserError with the nearest names unless every name can be built.

    The list is that of the locked timm, so this takes no import; only a name that it lacks is looked up in
    the timm that is installed, which may be a newer one.
    """
    listed = ARCHITECTURES.read_text(encoding="utf-8").split()
    unknown = [name for name in dict.fromkeys(names) if name not in listed]
    if unknown and importlib.util.find_spec("timm"):
        import timm

        unknown = [name for name in unknown if not timm.is_model(name)]
    if unknown:
        shown = [f"timm knows no architecture '{name}'{nearest(name, listed)}" for name in unknown[:_SHOWN]]
        more = f"; and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise UserError("\n".join(shown) + f"{more}; {remedy}")


class Plan:
    """Which cells of a study are trained here.

    With ``cluster`` in the study, "here" is its nodes: their platforms count and not those of the machine
    that reads the graph, which need have no accelerator. They share the machine's disk.
    """

    def __init__(self, study: Study, store: EvidenceStore, packed: Path = Path("data/packed")) -> None:
        self.study, self.store, self.packed = study, store, packed
        self._planned = frozenset(study.all_cells())
        self._cells = frozenset(store.cells(study))
        self._platform_missing = cache(self._why_no_platform)
        self._data_missing = cache(self._why_no_data)

    def why_not_here(self, cell: Cell) -> str | None:
        """The reason ``cell`` is not trained on this machine, in one sentence, or None."""
        if cell not in self._planned and str(cell) not in self.study.run:
            return f"{cell} is recorded, and not planned"
        if not self.study.may_run(cell):
            return f"no pattern under 'run' in the config names {cell}"
        return self.missing(cell)

    def missing(self, cell: Cell) -> str | None:
        """All that this machine lacks to train ``cell``, in one sentence; None: nothing."""
        return "; ".join(self.lacks(cell).values()) or None

    def lacks(self, cell: Cell) -> dict[str, str]:
        """The reasons ``cell`` is not trained here, by what lacks: ``platform``, ``images``, ``weights``."""
        reasons = {
            "platform": self._platform_missing(cell.platform),
            "images": self._data_missing(cell.dataset),
            "weights": weights_missing(self.study.recipe(cell.dataset).weights),
        }
        return {lacking: reason for lacking, reason in reasons.items() if reason}

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
        if isinstance(config, TableSource):
            needed = f"{' and '.join(map(str, [*config.files.values(), config.folder]))} are needed"
            return f"the images of {dataset} are not on this machine: {needed}"
        return f"the images of {dataset} are not on this machine: run `cxrbench data get {dataset}`"

    def origin(self, cell: Cell) -> Origin:
        """The origin of ``cell``'s evidence; UserError with the reason when there is none."""
        self.must_be_known(cell)
        reason = self.why_not_here(cell)
        if reason is None:
            return "fresh"
        source = self.store.source_of(cell, self.study)
        if source.record:
            return source.origin
        left_out = source.reason or f"{cell} has no recorded evidence"
        raise UserError(f"{left_out}; and it is not trained here: {reason}")

    def evidenced(self) -> list[Cell]:
        """The cells of the study that have or will have evidence here."""
        cells, source_of = self.store.cells(self.study), self.store.source_of
        return [c for c in cells if self.why_not_here(c) is None or source_of(c, self.study).record]

    def must_be_known(self, cell: Cell) -> None:
        """Raise UserError with the nearest names when the study has no such cell."""
        if cell in self._cells:
            return
        why = "each part of this name, but not this combination"
        for part, value in vars(cell).items():
            values = sorted({str(vars(other)[part]) for other in self._cells})
            if part == "seed" and str(value) not in values:
                seeds = {other.seed for other in self._cells if _but_for_seed(other) == _but_for_seed(cell)}
                why = f"seeds {_as_ranges(seeds)} of this, not {value}" if seeds else f"no seed {value}"
                break
            if str(value) not in values:
                why = f"no {part} '{value}'{suggestion(str(value), values)}"
                if part == "platform" and value in PLATFORMS:
                    why = f"no cell on {value}"  # which is no slip
                break
        remedy = "" if why.endswith("?") else "; add it to 'cells' in the config"
        raise UserError(f"the study has no cell {cell}: it has {why}{remedy}")


class JobNeeds:
    """What the cells of ``study`` ask of its cluster, from the recorded runs in ``store``."""

    def __init__(self, study: Study, store: EvidenceStore) -> None:
        self.study = study
        self.cluster = study.cluster or Cluster(platforms=["cpu"])
        self.of = cache(self._of)
        self._recorded = cache(store.records)

    def _of(self, cell: Cell, attempt: int = 1) -> dict[str, int | str]:
        """The needs of ``cell``'s job at its ``attempt``-th start, counted from one.

        A text is empty where the scheduler's default is meant.
        """
        longest = 60 * self.study.limits.hours + _START_MINUTES  # its runner ends it by then
        processes = self.study.limits.processes
        return {
            "cores": self.study.recipe(cell.dataset).threads * processes,
            "memory_mib": math.ceil(1024 * self._memory_gib(cell)),
            "minutes": math.ceil(min(longest, self._minutes(cell) * 2 ** (attempt - 1))),
            "partition": self.cluster.partitions.get(cell.platform, ""),
            "gres": self.cluster.gres.get(cell.platform, "").format(processes=processes),
            "extra": "--exclusive" if self.cluster.exclusive else "",
        }

    def _runs(self, cell: Cell, shared: tuple[str, ...]) -> list[Record]:
        """The finished runs on the platform of ``cell`` that share these parts of its name."""
        return [
            run
            for other, run in self._recorded().items()
            if all(getattr(other, part) == getattr(cell, part) for part in ("platform", *shared))
            and (run.status == "ok" and run.history)
        ]

    def _minutes(self, cell: Cell) -> float:
        """The minutes of a first attempt, the margin and the time to start included."""
        epochs = self.study.recipe(cell.dataset).epochs
        for margin, shared in NEAREST:
            if runs := self._runs(cell, shared):
                return _START_MINUTES + margin * max(seconds_of(run, epochs) for run in runs) / 60
        return _START_MINUTES + 60 * self.study.limits.hours

    def _memory_gib(self, cell: Cell) -> float:
        """The host memory. An accelerator's recorded peak is that of its device."""
        limit = self.study.limits.memory_gib
        if limit is not None:
            return limit * self.study.limits.processes + MEMORY_BASE_GIB
        stated = self.cluster.memory_gib.get(cell.platform, _DEFAULT_MEMORY_GIB)
        if cell.platform in ACCELERATED:
            return stated
        runs = self._runs(cell, ("dataset", "architecture"))
        peaks = [run.peak_memory_mib for run in runs if run.peak_memory_mib is not None]
        return MEMORY_BASE_GIB + MEMORY_MARGIN * max(peaks) / 1024 if peaks else stated


def _but_for_seed(cell: Cell) -> tuple[str, str, str]:
    return cell.dataset, cell.architecture, cell.platform


def _as_ranges(numbers: Iterable[int]) -> str:
    """``0 to 2, 7`` for 0, 1, 2 and 7."""
    ends: list[list[int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][-1] + 1:
            ends[-1] = [ends[-1][0], number]
        else:
            ends.append([number])
    return ", ".join(" to ".join(map(str, pair)) for pair in ends)


def seconds_of(run: Record, epochs: int) -> float:
    """The time that ``run`` would have taken with this number of ``epochs``."""
    once = run.timing.setup_seconds + run.timing.compile_seconds
    return once + (run.timing.total_seconds - once) * epochs / len(run.history)
