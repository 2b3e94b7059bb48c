"""Processes below this one: all of them killed at the end, and what announces that the machine will go.

While a child runs, the kernel hands orphans, such as compilers whose process was killed, to this process
(prctl(2), PR_SET_CHILD_SUBREAPER): all that was started is its descendant.
"""

import ctypes
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PDEATHSIG, _CHILD_SUBREAPER = 1, 36  # prctl(2); the first: be killed when the parent dies, so none trains on
OWN_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # all others come from outside
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds
# Amazon EC2 User Guide, "Spot Instance interruption notices": two minutes ahead, to be asked every 5 s.
_METADATA, _METADATA_VARIABLE = "http://169.254.169.254", "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_NOTICE_SECONDS, _TIMEOUT_SECONDS = 5.0, 2.0


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl(2); other systems have none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed for want of memory; 0 where it does not count."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(map(str.split, Path("/proc/vmstat").read_text().splitlines()))["oom_kill"])
    return 0


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

    prctl(_CHILD_SUBREAPER, 1)
    try:
        yield kill
    finally:
        prctl(_CHILD_SUBREAPER, 0)


def _killed(process: psutil.Process) -> bool:
    """Kill a process and its descendants; False when it has ended already."""
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            for member in [*process.children(recursive=True), process]:
                with suppress(psutil.Error):
                    member.kill()
            return True
    return False


def stop_before_it_goes(child: subprocess.Popen[bytes], stop: Callable[[], None]) -> None:
    """Stop ``child`` when EC2 announces that this spot instance will go."""
    while child.poll() is None:
        if _announced():
            return stop()
        time.sleep(_NOTICE_SECONDS)


def _announced() -> bool:
    """Return whether the metadata item ``spot/instance-action`` exists; False away from EC2."""
    base = os.environ.get(_METADATA_VARIABLE, _METADATA).rstrip("/") + "/latest"

    def ask(path: str, method: str, header: str, value: str) -> str:
        request = urllib.request.Request(base + path, method=method, headers={header: value})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())

    try:
        token = ask("/api/token", "PUT", "X-aws-ec2-metadata-token-ttl-seconds", "60")
        ask("/meta-data/spot/instance-action", "GET", "X-aws-ec2-metadata-token", token)
    except OSError:
        return False  # 404: no notice
    return True
