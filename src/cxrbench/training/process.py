"""The trainer's process: the events that it sends its supervisor, and its killing.

Imports no torch.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from cxrbench.training.endings import Ending

EVENT = "@cxrbench "  # in the trainer's output: what follows is an event for the supervisor, not log
PDEATHSIG, CHILD_SUBREAPER = 1, 36  # prctl(2): be killed when the parent dies; get orphans of descendants
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl(2); other systems have none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def event(name: str, **values: Any) -> None:
    """Send an event to the supervisor: from the first process, or from each that reports its own failure."""
    failed = name in (Ending.REFUSED, Ending.DIVERGED, Ending.CRASHED)  # only this process may know
    if failed or os.environ.get("RANK", "0") == "0":
        # One write that starts with a newline: processes share the pipe, so a line may be unfinished.
        sys.stdout.write(f"\n{EVENT}{json.dumps({'event': name, **values})}\n")
        sys.stdout.flush()


def parse_events(line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The events in a line of output and the texts around them; an incomplete event is text."""
    events, texts = list[dict[str, Any]](), [""]
    while EVENT in line:
        before, _, line = line.partition(EVENT)
        texts[-1] += before
        try:
            reported, end = json.JSONDecoder().raw_decode(line)
            reported["event"]
        except (ValueError, TypeError, KeyError):
            texts[-1] += EVENT
        else:
            events.append(reported)
            texts.append("")
            line = line[end:]
    texts[-1] += line
    return events, [text.rstrip() for text in texts if text.strip()]


@contextmanager
def adopted() -> Iterator[Callable[[], None]]:
    """Adopt orphans of what is started meanwhile, as compilers; yields a function that kills all of it."""
    supervisor = psutil.Process()
    others = set(supervisor.children())

    def kill() -> None:
        for _ in range(_ROUNDS):
            living: list[psutil.Process] = []
            for child in set(supervisor.children()) - others:
                with suppress(psutil.Error):
                    if child.status() != psutil.STATUS_ZOMBIE:
                        living += [child, *child.children(recursive=True)]
            for process in living:
                with suppress(psutil.Error):
                    process.kill()
            if not living:
                return
            time.sleep(_PAUSE)  # not psutil.wait_procs: it takes the exit code that subprocess waits for

    prctl(CHILD_SUBREAPER, 1)
    try:
        yield kill
    finally:
        prctl(CHILD_SUBREAPER, 0)
