"""Clocks of a training: its seconds on the device, and the cores that it and others used."""

import time
from collections.abc import Callable

import psutil

from cxrbench.platforms.base import Platform
from cxrbench.training.checkpoint import Progress

WARMUP_STEPS = 5  # not counted in images per second: caches, allocators, compilers


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
