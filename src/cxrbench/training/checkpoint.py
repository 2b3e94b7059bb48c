"""How far a run is: its counters, the clocks that fill them, and checkpoints of all its state.

Checkpoints are written aside, named by their content, loaded safely; the last two are kept.
"""

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from pydantic import BaseModel

from cxrbench.evidence.record import EpochStats, Timing
from cxrbench.platforms.base import Platform
from cxrbench.study.files import sha256_file, synced, written_aside
from cxrbench.study.names import UserError
from cxrbench.training.job import checkpoints

_KEEP = 2
WARMUP_STEPS = 5  # not counted in images per second: caches, allocators, compilers


class Progress(BaseModel):
    """The position and counters of a run. Saved with every checkpoint, so they survive interruptions."""

    epoch: int = 0
    step: int = 0  # optimizer steps, over all epochs
    timing: Timing = Timing()
    history: list[EpochStats] = []
    loss_before: float = 0.0  # the sum of losses when the epoch under way began
    epoch_seconds: float = 0.0  # training time of the epoch under way, earlier attempts included
    steady_images: int = 0
    steady_seconds: float = 0.0
    core_seconds: float = 0.0  # of the machine, while epochs were trained to their end
    others_seconds: float = 0.0  # used by other processes

    @property
    def images_per_second(self) -> float | None:
        """Training speed after the first steps of each attempt; None during these."""
        return self.steady_images / self.steady_seconds if self.steady_seconds else None


class Clock:
    """Training time, read only after the device is synchronised; saving and evaluating are not in it."""

    def __init__(self, platform: Platform, progress: Progress, batch: int) -> None:
        self.platform, self.progress, self.batch = platform, progress, batch
        self.steps = self.steps_read = 0  # of this attempt
        self.restart()

    def restart(self) -> None:
        """Leave out the time since the last reading."""
        self.last = self.platform.clock()

    def read(self) -> None:
        """Add the time since the last reading to the epoch's and the cell's."""
        self.platform.synchronise()
        now = self.platform.clock()
        seconds, self.last = now - self.last, now
        self.progress.epoch_seconds += seconds
        self.progress.timing.train_seconds += seconds
        if self.steps_read >= WARMUP_STEPS:
            self.progress.steady_images += (self.steps - self.steps_read) * self.batch
            self.progress.steady_seconds += seconds
        self.steps_read = self.steps


class CoreUse:
    """The machine's core-seconds since this object was made, and the part that other processes used."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def others(self, gather: Callable[[float], list[float]]) -> tuple[float, float]:
        """Return (core-seconds there were, those used by other processes than the trainer's).

        ``gather`` collects a value from all processes of the trainer.
        """
        there = (time.monotonic() - self._wall) * (psutil.cpu_count() or 1)
        busy = _busy_seconds() - self._busy
        return there, max(0.0, busy - sum(gather(_own_seconds() - self._own)))


def _busy_seconds() -> float:
    """Return the core-seconds used on the machine, with those that a hypervisor took away."""
    times = psutil.cpu_times()
    named = ("user", "nice", "system", "irq", "softirq", "steal")  # guest time is part of user
    return float(sum(getattr(times, name, 0.0) for name in named))


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as the checkpoint after ``step`` optimizer steps and drop all but the last two."""
    with written_aside(folder / "new.pt") as aside:
        try:
            with open(aside, "wb") as file:
                torch.save(state, file)
        except RuntimeError as error:  # torch's "unexpected pos", raised while it handles the OSError
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        digest = sha256_file(aside)[:16]
    final = folder / f"step{step:09d}-{digest}.pt"
    (folder / "new.pt").rename(final)
    synced(folder)  # the name must survive a power cut before the older ones go
    for _, old in checkpoints(folder)[_KEEP:]:
        old.unlink()
    return final


def load(folder: Path, identity: dict[str, str], report: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the newest intact checkpoint, or None; UserError when it is of another ``identity``."""
    for _, path in checkpoints(folder):
        try:
            if not path.stem.endswith(sha256_file(path)[:16]):
                raise ValueError("its content does not match its name")
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            report(f"checkpoint {path.name} is damaged ({error}); falling back to the one before")
            continue
        if state["identity"] != identity:
            changed = [key for key in identity if state["identity"].get(key) != identity[key]]
            raise UserError(
                f"{path}: this checkpoint was made with another {' and '.join(changed)}; "
                f"remove {folder} to start over"
            )
        return state
    return None
