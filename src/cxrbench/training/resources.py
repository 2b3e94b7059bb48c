"""What a cell's job asks of a cluster: devices, cores, memory, and time from recorded runs plus a margin.

The time of a job is twice what the longest recorded run of the same dataset, architecture and platform
took, counted per epoch; four times that of the nearest run where there is none of the same; and
``limits.hours`` where nothing of its platform is recorded. Ten minutes are added for starting. A retry asks
for twice the time of the attempt before: what ran out of time goes on from its checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cxrbench.evidence.record import RECORD
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.config import Cluster, Study
from cxrbench.study.platform_names import ACCELERATED

START_MINUTES = 10.0  # for the node, the environment, the data and the last words of a trainer
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


@dataclass(frozen=True)
class Run:
    """What a recorded run took."""

    cell: Cell
    seconds_once: float  # set-up and compilation
    seconds_per_epoch: float
    peak_memory_mib: float | None


def recorded_runs(recorded: Path) -> list[Run]:
    """The finished runs below ``recorded``; damaged records are passed over: adopting says what is wrong."""
    runs = []
    for cell in find_cells(recorded) if recorded.is_dir() else []:
        try:
            record = json.loads((cell.folder(recorded) / RECORD).read_text(encoding="utf-8"))
            if record["status"] != "ok":
                continue
            timing, epochs = record["timing"], record["recipe"]["epochs"]
            once = timing["setup_seconds"] + timing["compile_seconds"]
            epoch = (timing["train_seconds"] + timing["evaluate_seconds"]) / epochs
            runs.append(Run(cell, once, epoch, record["peak_memory_mib"]))
        except (OSError, ValueError, TypeError, KeyError, ZeroDivisionError):
            continue
    return runs


class JobNeeds:
    """What the cells of ``study`` ask of its cluster, from the runs below ``recorded``."""

    def __init__(self, study: Study, recorded: Path) -> None:
        self.study = study
        self.cluster = study.cluster or Cluster(platforms=["cpu"])
        self._runs = cache(lambda: recorded_runs(recorded))
        self.of = cache(self._of)

    def python(self, platform: str) -> str:
        """The interpreter that trains ``platform``: Neuron's environments are apart from the others'."""
        return self.cluster.python.get(platform, "python")

    def _of(self, cell: Cell, attempt: int = 1) -> Needs:
        """The needs of ``cell``'s job at its ``attempt``-th start, counted from one."""
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

    def _minutes(self, cell: Cell) -> float:
        """Minutes of a first attempt, the margin and the time to start included."""
        epochs = self.study.recipe(cell.dataset).epochs
        for margin, alike in _ALIKE:
            found = [
                run for run in self._runs() if run.cell.platform == cell.platform and alike(run.cell, cell)
            ]
            if found:
                seconds = max(run.seconds_once + epochs * run.seconds_per_epoch for run in found)
                return START_MINUTES + margin * seconds / 60
        return START_MINUTES + 60 * self.study.limits.hours

    def _memory_gib(self, cell: Cell) -> float:
        """Host memory. An accelerator's recorded peak is its device's memory, so it says nothing here."""
        limit = self.study.limits.memory_gib
        if limit is not None:
            return limit * self.study.limits.processes + MEMORY_BASE_GIB
        stated = self.cluster.memory_gib.get(cell.platform, DEFAULT_MEMORY_GIB)
        if cell.platform in ACCELERATED:
            return stated
        same = [run for run in self._runs() if _same(run.cell, cell)]
        peaks = [run.peak_memory_mib for run in same if run.peak_memory_mib is not None]
        return MEMORY_BASE_GIB + MEMORY_MARGIN * max(peaks) / 1024 if peaks else stated


def _same(one: Cell, other: Cell) -> bool:
    return (one.dataset, one.architecture, one.platform) == (
        other.dataset,
        other.architecture,
        other.platform,
    )


# Which runs a cell's time is taken from, the nearest first; all are of its platform.
_ALIKE: tuple[tuple[float, Callable[[Cell, Cell], bool]], ...] = (
    (SAME, _same),
    (NEAREST, lambda one, other: one.dataset == other.dataset),
    (NEAREST, lambda one, other: one.architecture == other.architecture),
    (NEAREST, lambda one, other: True),
)
