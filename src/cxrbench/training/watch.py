"""What watches a process: it kills all that was started, shows progress, and tells what last words mean."""

from __future__ import annotations

import math
import os
import re
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.status import Status as Spinner

from cxrbench.evidence.record import Status
from cxrbench.training.job import CHILD_SUBREAPER, prctl

OWN_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # all others come from outside
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds
_TOKEN = "X-aws-ec2-metadata-token"
_LINE_SECONDS = 10.0  # between two lines of progress where standard error is no terminal


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


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed for want of memory; 0 where it does not count."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(map(str.split, Path("/proc/vmstat").read_text().splitlines()))["oom_kill"])
    return 0


def instance_goes() -> bool:
    """Return whether EC2 announces that it takes this instance (EC2 guide, "Spot interruption notices")."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    lasting = {f"{_TOKEN}-ttl-seconds": "60"}
    ask = urllib.request.Request(f"{base}/latest/api/token", method="PUT", headers=lasting)
    try:
        with urllib.request.urlopen(ask, timeout=2) as answer:
            given = {_TOKEN: answer.read().decode()}
        ask = urllib.request.Request(f"{base}/latest/meta-data/spot/instance-action", headers=given)
        with urllib.request.urlopen(ask, timeout=2):
            return True
    except OSError:
        return False  # 404: no notice


class Display(Spinner):
    """Progress of a cell on standard error: one rewritten line on a terminal, else a line now and then."""

    def __init__(self, cell: str) -> None:
        rewrites = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        console = Console(stderr=True, highlight=False, force_terminal=rewrites)
        super().__init__(cell, console=console, spinner="line")  # of ASCII: a terminal may have no more
        self._cell, self._line_at = cell, time.monotonic()
        self._steady: tuple[float, int] | None = None  # when the speed was first known, and at which step

    def show_progress(
        self, epoch: int, epochs: int, step: int, steps: int, loss: float, images_per_second: float | None
    ) -> None:
        """Show that optimizer step ``step`` of ``steps`` is done; the time left once the speed is steady."""
        now, speed, left = time.monotonic(), "", ""
        if images_per_second:  # the first steps are slow, and so would the end seem far
            speed = f"{images_per_second:.0f} images/s"
            since, first = self._steady = self._steady or (now, step)
            if step > first:
                seconds = math.ceil((now - since) / (step - first) * (steps - step))
                left = f"{timedelta(seconds=seconds)} left"
        if late := now - self._line_at >= _LINE_SECONDS:
            self._line_at = now
        texts = f"epoch {epoch}/{epochs}", left, speed, f"step {step}/{steps}", f"loss {loss:.4f}"
        self.show(", ".join(filter(None, texts)), at_once=late)

    def show(self, text: str, at_once: bool) -> None:
        """Show what the trainer does; without a terminal print it, if it is to be seen ``at_once``."""
        # Beside the spinner, the name last: a narrow terminal cuts the end off, and the name is known.
        self.update(f"{text}  {self._cell}"[: self.console.width - 2])
        if at_once and not self.console.is_terminal:
            print(f"{self._cell}: {text}", file=sys.stderr, flush=True)


class Diagnosis(NamedTuple):
    """The meaning of a log; without a status it is the machine's trouble and no result."""

    status: Status | None
    kind: str
    fingerprint: str
    remedy: str = ""  # what to do where the machine is the cause: not the network, nor the platform


_CAUSES = [
    (re.compile("|".join(entry["lines"])), entry)
    for entry in tomllib.loads(Path(__file__).with_name("failures.toml").read_text("utf-8"))["pattern"]
]


def classify(log: str) -> Diagnosis | None:
    """Return the meaning of the weightiest known pattern in a trainer's log, the last of equals; or None."""
    for weight in ("decisive", "", "weak"):
        for line in reversed(log.splitlines()):
            for regex, entry in _CAUSES:
                if entry.get("weight", "") == weight and (match := regex.search(line)):
                    code = next(filter(None, match.groupdict().values()), None) or normalise(line)
                    return Diagnosis(entry.get("status"), entry["kind"], code, entry.get("remedy", ""))
    return None


def error_line(log: str) -> str:
    """The line that names the exception of the last traceback, else the last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (errors or lines or ["no output"])[-1]


def normalise(line: str) -> str:
    """A line without what changes from run to run: addresses, numbers, paths; at most 160 characters."""
    line = re.sub(r"0x[0-9a-fA-F]+", "0x", line.strip())
    line = re.sub(r"(/[\w.\-+]+)+/", "", line)
    return re.sub(r"\d+(\.\d+)?", "#", line)[:160]
