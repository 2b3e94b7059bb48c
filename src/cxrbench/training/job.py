"""The job that a supervisor gives to its trainer, and the events it gets back. Imports no torch."""

import ctypes
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cxrbench.study.cells import Cell
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.files import locked

EVENT = "@cxrbench "  # in the trainer's output: what follows is an event for the supervisor, not log
PRECOMPILED = "precompile.json"  # in the work folder: seconds, graphs, succeeded, failed
WEIGHTS = "weights.safetensors"  # in the work folder, until they are kept
CRASHED = "crashed.json"  # in a work folder that is kept for inspection; the next training starts anew
PDEATHSIG = 1  # prctl(2): be killed when the parent dies, so none trains on


class Ending(StrEnum):
    """How a start of the trainer ended; those that can be a record's status have its name.

    The trainer reports all but the last two, which only its supervisor sees, and exits with their code.
    """

    OK = "ok"
    INTERRUPTED = "interrupted"  # saved: start again to resume
    REFUSED = "refused"  # the user's mistake or the machine's trouble
    DIVERGED = "diverged"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    KILLED = "killed"

    @property
    def exit_code(self) -> int:
        """That of the trainer; of `cxrbench train` too when it was interrupted (EX_TEMPFAIL, EX_CONFIG)."""
        return {Ending.OK: 0, Ending.INTERRUPTED: 75, Ending.REFUSED: 78}.get(self, 1)


class Interrupted(Exception):
    """The trainer was asked to stop and has saved its state: exit with 75 and call again to go on."""


class Job(BaseModel):
    """One cell to train, and how."""

    model_config = ConfigDict(frozen=True)

    dataset: str
    architecture: str
    platform: str
    seed: int
    recipe: Recipe
    limits: Limits
    packed: Path
    work: Path  # checkpoints, and scratch files of the run
    micro_batch: int  # images per forward pass of one process
    weights: Path | None = None  # where those that are scored are kept; none: nowhere

    @property
    def checkpoints(self) -> Path:
        """Where the trainer saves its state."""
        return self.work / "checkpoints"

    @property
    def saved(self) -> int:
        """The optimizer steps of the newest checkpoint; -1 without one."""
        return next((steps for steps, _ in checkpoints(self.checkpoints)), -1)

    @property
    def attempts(self) -> Path:
        """Where the supervisor keeps what it must remember between starts of the trainer."""
        return self.work / "attempts.json"

    @property
    def cell(self) -> Cell:
        """The cell that this job trains."""
        return Cell(self.dataset, self.architecture, self.platform, self.seed)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the work folder and clear what a recorded crash left; UserError names any other holder."""
        self.work.mkdir(parents=True, exist_ok=True)
        with locked(self.work.with_name(f"{self.work.name}.lock"), self.cell, "training it"):
            if (self.work / CRASHED).exists():
                shutil.rmtree(self.work)
                self.work.mkdir()
            yield


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl(2); other systems have none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# A process that ends so may be the only one to report it.
_FROM_EACH = (Ending.REFUSED, Ending.DIVERGED, Ending.CRASHED)


def event(name: str, **values: Any) -> None:
    """Send an event to the supervisor: from the first process, or from each that reports its own failure."""
    if name in _FROM_EACH or os.environ.get("RANK", "0") == "0":
        # One write that starts with a newline: processes share the pipe, so a line may be unfinished.
        sys.stdout.write(f"\n{EVENT}{json.dumps({'event': name, **values})}\n")
        sys.stdout.flush()


def parse_events(line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events in a line of output and the texts around them; an incomplete event is text."""
    events: list[dict[str, Any]] = []
    texts, rest, marker = [""], line, EVENT
    while marker:
        before, marker, rest = rest.partition(EVENT)
        texts[-1] += before
        try:
            reported, end = json.JSONDecoder().raw_decode(rest)
            reported["event"]
        except (ValueError, TypeError, KeyError):
            texts[-1] += marker
        else:
            events.append(reported)
            texts.append("")
            rest = rest[end:]
    return events, [text.rstrip() for text in texts if text.strip()]


_CHECKPOINT = re.compile(r"^step(\d{9})-([0-9a-f]{16})\.pt$")


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (optimizer steps, file) of the checkpoints in ``folder``, newest first."""
    named = ((_CHECKPOINT.match(path.name), path) for path in folder.glob("step*.pt"))
    return sorted(((int(match[1]), path) for match, path in named if match), reverse=True)
