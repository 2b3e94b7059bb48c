"""What a cell's job asks of a cluster: devices, cores, memory, and time from recorded runs plus a margin.

The time of a job is twice what the longest recorded run of the same dataset, architecture and platform
took, counted per epoch; four times that of the nearest run where there is none of the same; and
``limits.hours`` where nothing of its platform is recorded. Ten minutes are added for starting. A retry asks
for twice the time of the attempt before: what ran out of time goes on from its checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from cxrbench.evidence.record import Record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.cells import Cell
from cxrbench.study.config import Cluster, Study
from cxrbench.study.platform_names import ACCELERATED

START_MINUTES = 10.0  # for the node, the environment, the data and the end of a trainer
SAME, NEAREST = 2.0, 4.0  # margins over a recorded run of the same cell, and of the nearest
MEMORY_MARGIN, MEMORY_BASE_GIB = 1.5, 2.0  # over the recorded peak; for runner, Snakemake and srun
DEFAULT_MEMORY_GIB = 8.0


@dataclass(frozen=True)
class Needs:
    """What one job asks for. Texts are empty where the scheduler's default is meant."""

    cores: int
    memory_mib: int
    minutes: int
    partition: str
    gres: str
    extra: str


class JobNeeds:
    """What the cells of ``study`` ask of its cluster, from the recorded runs in ``store``."""

    def __init__(self, study: Study, store: EvidenceStore) -> None:
        self.study = study
        self.cluster = study.cluster or Cluster(platforms=["cpu"])
        self.of = cache(self._of)
        self._recorded = cache(store.records)

    def python(self, platform: str) -> str:
        """Return the interpreter that trains ``platform``: Neuron has environments of its own."""
        return self.cluster.python.get(platform, "python")

    def _of(self, cell: Cell, attempt: int = 1) -> Needs:
        """Return the needs of ``cell``'s job at its ``attempt``-th start, counted from one."""
        longest = 60 * self.study.limits.hours + START_MINUTES  # its runner ends it by then
        processes = self.study.limits.processes
        return Needs(
            cores=self.study.recipe(cell.dataset).threads * processes,
            memory_mib=math.ceil(1024 * self._memory_gib(cell)),
            minutes=math.ceil(min(longest, self._minutes(cell) * 2 ** (attempt - 1))),
            partition=self.cluster.partitions.get(cell.platform, ""),
            gres=self.cluster.gres.get(cell.platform, "").format(processes=processes),
            extra="--exclusive" if self.cluster.exclusive else "",
        )

    def _runs(self, cell: Cell, alike: Callable[[Cell, Cell], bool]) -> list[Record]:
        """Return the finished runs on the platform of ``cell`` that are ``alike``."""
        runs = {other: run for other, run in self._recorded().items() if other.platform == cell.platform}
        return [
            run for other, run in runs.items() if run.status == "ok" and run.history and alike(other, cell)
        ]

    def _minutes(self, cell: Cell) -> float:
        """Return the minutes of a first attempt, the margin and the time to start included."""
        epochs = self.study.recipe(cell.dataset).epochs
        for margin, alike in _ALIKE:
            if runs := self._runs(cell, alike):
                return START_MINUTES + margin * max(_seconds(run, epochs) for run in runs) / 60
        return START_MINUTES + 60 * self.study.limits.hours

    def _memory_gib(self, cell: Cell) -> float:
        """Return the host memory. An accelerator's recorded peak is that of its device."""
        limit = self.study.limits.memory_gib
        if limit is not None:
            return limit * self.study.limits.processes + MEMORY_BASE_GIB
        stated = self.cluster.memory_gib.get(cell.platform, DEFAULT_MEMORY_GIB)
        if cell.platform in ACCELERATED:
            return stated
        peaks = [run.peak_memory_mib for run in self._runs(cell, _same) if run.peak_memory_mib is not None]
        return MEMORY_BASE_GIB + MEMORY_MARGIN * max(peaks) / 1024 if peaks else stated


def _seconds(run: Record, epochs: int) -> float:
    """Return how long ``run`` would have taken with so many ``epochs``."""
    once = run.timing.setup_seconds + run.timing.compile_seconds
    return once + (run.timing.total_seconds - once) * epochs / len(run.history)


def _same(cell: Cell, other: Cell) -> bool:
    return (cell.dataset, cell.architecture) == (other.dataset, other.architecture)


# Which runs of a cell's platform its time is taken from, the nearest first.
_ALIKE: tuple[tuple[float, Callable[[Cell, Cell], bool]], ...] = (
    (SAME, _same),
    (NEAREST, lambda cell, other: cell.dataset == other.dataset),
    (NEAREST, lambda cell, other: cell.architecture == other.architecture),
    (NEAREST, lambda cell, other: True),
)
