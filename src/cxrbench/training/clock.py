"""How far a run is, and its clock."""

from pydantic import BaseModel

from cxrbench.evidence.record import EpochStats, Timing
from cxrbench.platforms.base import Platform

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
