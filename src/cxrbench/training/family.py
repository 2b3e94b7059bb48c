"""All processes of one start of the trainer, found by a mark in their environment.

Neither a tree of parents nor a group has them all: torchrun puts its processes into sessions of their own,
and a compiler whose process was killed has lost its parent.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import psutil

_MARK = "CXRBENCH_TRAINER"
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds


def new_mark() -> dict[str, str]:
    """The variable to put into the trainer's environment, with a value that no other start has."""
    return {_MARK: uuid4().hex}


def kill(mark: dict[str, str]) -> None:
    """End every process that carries ``mark``."""
    for _ in range(_ROUNDS):
        if not (family := [one for one in psutil.process_iter() if _carries(one, mark)]):
            return
        for one in family:
            with suppress(psutil.Error):
                one.kill()
        time.sleep(_PAUSE)  # not psutil.wait_procs: it takes the exit code that subprocess waits for


def _carries(process: psutil.Process, mark: dict[str, str]) -> bool:
    try:
        return process.environ().get(_MARK) == mark[_MARK]
    except (psutil.Error, OSError):  # ended meanwhile, or somebody else's
        return False


@contextmanager
def ended_with(child: subprocess.Popen[str], mark: dict[str, str]) -> Iterator[None]:
    """What ``child`` leaves behind is ended when it ends: it would hold its output open and cost money."""

    def follow() -> None:
        child.wait()
        kill(mark)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield
    thread.join()
