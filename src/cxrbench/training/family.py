"""All processes of one start of the trainer, so that none outlives it.

torchrun gives its processes sessions of their own, and a compiler whose process was killed loses its parent.
While a trainer runs, the kernel hands such orphans to its runner (Linux, prctl(2), PR_SET_CHILD_SUBREAPER):
everything the trainer started is a descendant of the runner, whatever its session or environment.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds


def die_with_parent() -> None:
    """Be killed when the parent process dies, so that no orphan trains on (Linux)."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


@contextmanager
def adopted() -> Iterator[Callable[[], None]]:
    """Adopt the orphans of what this process starts; yields a function that kills all of it."""
    runner = psutil.Process()
    others = set(runner.children())

    def kill() -> None:
        for _ in range(_ROUNDS):
            if not [process for process in runner.children() if process not in others and _killed(process)]:
                return
            time.sleep(_PAUSE)  # not psutil.wait_procs: it takes the exit code that subprocess waits for

    _prctl(_CHILD_SUBREAPER, 1)
    try:
        yield kill
    finally:
        _prctl(_CHILD_SUBREAPER, 0)


def _killed(process: psutil.Process) -> bool:
    """Kill a process and its descendants; False when it has ended already."""
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            for member in [*process.children(recursive=True), process]:
                with suppress(psutil.Error):
                    member.kill()
            return True
    return False


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
