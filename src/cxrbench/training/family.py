"""All processes of one start of the trainer: its group, its descendants, and those that carry its mark.

None of the three has them all: torchrun puts its processes into sessions of their own, a compiler whose
process was killed has lost its parent, and a tool may be started with another environment.
"""

from __future__ import annotations

import os
import signal
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


def kill(child: subprocess.Popen[str], mark: dict[str, str]) -> None:
    """End ``child``, the leader of its group, and all that it has started with ``mark``."""
    family: list[psutil.Process] = []
    if child.returncode is None:  # else its number may be another process's
        with suppress(psutil.Error):
            family = psutil.Process(child.pid).children(recursive=True)
        _kill_group(child.pid)
    for _ in range(_ROUNDS):
        for one in family:
            with suppress(psutil.Error):
                one.kill()
        if not (family := [one for one in psutil.process_iter() if _carries(one, mark)]):
            return
        time.sleep(_PAUSE)  # not psutil.wait_procs: it takes the exit code that subprocess waits for


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


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
        _kill_group(child.pid)  # the number is the group's as long as it has a member
        kill(child, mark)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield
    thread.join()
