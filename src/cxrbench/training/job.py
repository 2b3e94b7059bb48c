"""What the runner hands to the trainer it starts, and what it is told. Imports no torch."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cxrbench.cells import Cell
from cxrbench.config import Limits, Recipe

EVENT = "@cxrbench "  # in the trainer's output: what follows is an event for the runner, not log
INTERRUPTED = 75  # EX_TEMPFAIL: saved, start again to resume
PRECOMPILED = "precompile.json"  # in the work folder: seconds, graphs, succeeded, failed
REFUSED = 78  # EX_CONFIG: the user's mistake; the message is the last event
_OF_EACH = ("refused", "diverged", "failed")  # a process that ends so may be the only one that knows


class Job(BaseModel):
    """One cell to train, with everything the trainer needs to know."""

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

    @property
    def checkpoints(self) -> Path:
        """Where the trainer saves its state."""
        return self.work / "checkpoints"

    @property
    def cell(self) -> Cell:
        """The cell that this job trains."""
        return Cell(self.dataset, self.architecture, self.platform, self.seed)


def event(name: str, **values: Any) -> None:
    """Tell the runner something, as one line on standard output.

    The first process speaks for all, except of a failure: that is told by each process that fails.
    """
    if name in _OF_EACH or os.environ.get("RANK", "0") == "0":
        # One write, and a line of its own even behind another's unfinished one: processes share the pipe.
        sys.stdout.write(f"\n{EVENT}{json.dumps({'event': name, **values})}\n")
        sys.stdout.flush()


def heard(line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The events in a line of the trainer's output, and what else stands before, between and after them.

    Blank parts are left out; an event that is not whole is no event and stays in the text.
    """
    events: list[dict[str, Any]] = []
    texts, rest, marker = [""], line, EVENT
    while marker:
        before, marker, rest = rest.partition(EVENT)
        texts[-1] += before
        try:
            found, end = json.JSONDecoder().raw_decode(rest)
            found["event"]
        except (ValueError, TypeError, KeyError):
            texts[-1] += marker
        else:
            events.append(found)
            texts.append("")
            rest = rest[end:]
    return events, [text.rstrip() for text in texts if text.strip()]


CHECKPOINT = re.compile(r"^step(\d{9})-([0-9a-f]{16})\.pt$")


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(optimizer steps, file) of the checkpoints in ``folder``, newest first."""
    found = ((CHECKPOINT.match(path.name), path) for path in folder.glob("step*.pt"))
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)
