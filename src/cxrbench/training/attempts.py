"""The starts of a trainer: what one reported, what is remembered from one to the next, when to retry."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrbench.evidence.record import Phase
from cxrbench.training import host
from cxrbench.training.job import Ending, Job
from cxrbench.training.processes import OWN_SIGNALS

_SOONER = 4  # after a start that was killed before it saved, checkpoints come so many times as often


@dataclass
class Start:
    """What one start of the trainer reported, and how it ended."""

    returncode: int = 0
    log_from: int = 0  # where this start's output begins in the log, in bytes
    log_error: OSError | None = None
    timed_out: bool = False
    stop_requests: int = 0
    out_of_memory_kills: bool = False  # by the kernel, of any process meanwhile
    phase: Phase = "setup"
    step: int = 0  # the last one reported
    facts: dict[str, Any] = field(default_factory=dict)
    reported: Ending | None = None
    message: str = ""

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the trainer."""
        return signal.Signals(-self.returncode).name if self.returncode < 0 else None

    @property
    def ending(self) -> Ending:
        """How it ended."""
        if self.returncode == 0:
            return Ending.OK
        if self.stop_requests:
            # Stopping a job also stops its compilers, so the trainer may fail, or have nothing to save yet.
            # A failure that has another cause will recur at the next call.
            if self.signal in ("SIGTERM", "SIGKILL") or self.reported in (None, Ending.CRASHED):
                return Ending.INTERRUPTED
        elif self.timed_out:
            return Ending.TIMED_OUT
        if self.reported not in (None, Ending.CRASHED):
            return self.reported
        return Ending.KILLED if self.signal else Ending.CRASHED


@dataclass
class Attempts:
    """What must be remembered from one start of the trainer to the next, in work/attempts.json."""

    started: str
    commit: str  # of the first start: code may change while a cell trains
    dirty: bool
    count: int = 0
    seconds: float = 0.0
    cut_off: bool = False  # the last start, or its supervisor, was killed
    saved: int = -1  # optimizer steps of the newest checkpoint when the last start began
    unsaved: int = 0  # starts that were killed before they saved
    reached: int | None = None  # optimizer steps done when the trainer was last killed
    micro_batch: int | None = None
    phase_when_killed: Phase = "setup"  # or where the last start ended in another way without a result

    @classmethod
    def read(cls, path: Path) -> Attempts:
        """Return those of a work folder; new ones where there are none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(host.now(), *host.commit())

    def begin(self, job: Job) -> Job:
        """Count a start; return its job, with more frequent checkpoints where earlier ones saved nothing."""
        saved = job.saved
        self.unsaved += self.cut_off and saved == self.saved
        self.count, self.cut_off, self.saved = self.count + 1, True, saved
        minutes = job.limits.checkpoint_minutes / _SOONER**self.unsaved
        limits = job.limits.model_copy(update={"checkpoint_minutes": minutes})
        return job.model_copy(update={"limits": limits, "micro_batch": self.micro_batch or job.micro_batch})

    def worth_restarting(self, start: Start, saved: int) -> bool:
        """Always restart after the first kill; after later kills only if steps were gained.

        A signal of the trainer's own recurs at its step, so it must come later each time than before; one
        from outside may come at any step.
        """
        before, done = self.reached, max(start.step, saved)
        self.reached = max(done, -1 if before is None else before)
        if before is None:
            return True
        return done > before if start.signal in OWN_SIGNALS else start.step > 0 or saved > self.saved
