"""One start of the trainer as a child process: what it reports, how it is stopped, how it ends.

While it runs, the kernel hands orphans, such as compilers whose process was killed, to its runner
(prctl(2), PR_SET_CHILD_SUBREAPER): all that it started is a descendant of the runner.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

from cxrbench.evidence.record import LOG, Phase
from cxrbench.study.files import write_text
from cxrbench.training import host
from cxrbench.training.job import Job, parse_events

_CHILD_SUBREAPER = 36
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds
_SPEED_SECONDS = 300.0  # from which the time left is estimated: longer than an evaluation
_LINE_SECONDS = 10.0  # between two lines of progress where standard error is no terminal
# Amazon EC2 User Guide, "Spot Instance interruption notices": two minutes ahead, to be asked every 5 s.
_METADATA, _METADATA_VARIABLE = "http://169.254.169.254", "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_NOTICE_SECONDS, _TIMEOUT_SECONDS = 5.0, 2.0

Child = subprocess.Popen[bytes]
Call = Callable[[], None]


class Ending(StrEnum):
    """How a start of the trainer ended; the first four are also names of its last event."""

    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    DIVERGED = "diverged"
    FAILED = "failed"
    KILLED = "killed"
    TIMED_OUT = "timed out"
    FINISHED = "finished"


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
            return Ending.FINISHED
        if self.stop_requests:
            # Stopping a job also stops its compilers, so the trainer may fail, or have nothing to save yet.
            # A failure that has another cause will recur at the next call.
            if self.signal in ("SIGTERM", "SIGKILL") or self.reported in (None, Ending.FAILED):
                return Ending.INTERRUPTED
        elif self.timed_out:
            return Ending.TIMED_OUT
        if self.reported not in (None, Ending.FAILED):
            return self.reported
        return Ending.KILLED if self.signal else Ending.FAILED


def trainer_command(job: Job, *options: str) -> list[str]:
    """Write ``job`` to its work folder and return the command that trains it."""
    path = job.work / "job.json"
    write_text(path, job.model_dump_json(indent=1))
    return [sys.executable, "-m", "cxrbench.training.child", str(path), *options]


def trainer_environment(job: Job) -> dict[str, str]:
    """Return the number of threads, and a PATH with the tools that came with the interpreter."""
    threads = str(job.recipe.threads)
    # Neuron's compiler lies there, and the interpreter may have been called by its path.
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.pathsep.join(places)}


def start_trainer(job: Job, seconds_before: float) -> Start:
    """Start the trainer once, follow it to its end, append its output to the log."""
    command = trainer_command(job)
    start, kills_before = Start(), host.out_of_memory_kills()
    with (
        open(job.work / LOG, "ab", buffering=0) as log,
        Display(str(job.cell)) as display,
        adopted() as kill,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | trainer_environment(job) | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C must reach the trainer only through us
        ) as child,
        _stops(child, kill, start) as stop,
        ThreadPoolExecutor(1) as thread,
    ):
        start.log_from = log.seek(0, os.SEEK_END)
        if job.limits.spot_notice:
            threading.Thread(target=_watch_for_notice, args=(child, stop), daemon=True).start()
        reading = thread.submit(_read, child, start, display, log, stop)
        try:
            child.wait(max(0.0, job.limits.hours * 3600 - seconds_before))
        except subprocess.TimeoutExpired:
            start.timed_out = True
        kill()  # what the trainer leaves behind too: it would hold the output open and cost money
        reading.result()
    start.returncode = child.returncode
    start.out_of_memory_kills = host.out_of_memory_kills() > kills_before
    return start


def _read(child: Child, start: Start, display: Display, log: FileIO, stop: Call) -> None:
    """Take in the trainer's events and append its other output to the log, on a thread of its own.

    The main thread must not block here: a signal that another thread receives would not be handled.
    """
    assert child.stdout is not None
    for line in child.stdout:
        events, texts = parse_events(line.decode(errors="backslashreplace"))
        for event in events:
            match event.pop("event"):
                case "phase":
                    start.phase = event["phase"]
                    display.show(start.phase, at_once=True)
                case "progress":
                    start.step = event["step"]
                    display.show_progress(**event)
                case "facts":
                    start.facts |= event
                case failure if start.reported is None:  # it makes other processes fail: the first one counts
                    start.reported = Ending(failure)
                    start.message = event.get("message", "").encode(errors="backslashreplace").decode()
        try:
            log.write("".join(f"{text}\n" for text in texts).encode())
        except OSError as error:  # a full disk: the trainer may still save
            if start.log_error is None:
                stop()
            start.log_error = error


@contextmanager
def adopted() -> Iterator[Call]:
    """Adopt the orphans of what this process starts; yields a function that kills all of it."""
    runner = psutil.Process()
    others = set(runner.children())

    def kill() -> None:
        for _ in range(_ROUNDS):
            if not [process for process in runner.children() if process not in others and _killed(process)]:
                return
            time.sleep(_PAUSE)  # not psutil.wait_procs: it takes the exit code that subprocess waits for

    host.prctl(_CHILD_SUBREAPER, 1)
    try:
        yield kill
    finally:
        host.prctl(_CHILD_SUBREAPER, 0)


def _killed(process: psutil.Process) -> bool:
    """Kill a process and its descendants; False when it has ended already."""
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            for member in [*process.children(recursive=True), process]:
                with suppress(psutil.Error):
                    member.kill()
            return True
    return False


@contextmanager
def _stops(child: Child, kill: Call, start: Start) -> Iterator[Call]:
    """Pass signals on as SIGTERM, and kill at the third; yields a function that does the same."""

    def ask(signum: int = 0, frame: FrameType | None = None) -> None:
        start.stop_requests += 1
        if start.stop_requests < 3:  # Ctrl-C in a graph arrives twice: from the terminal and from Snakemake
            child.terminate()
        else:
            kill()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield ask
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch_for_notice(child: Child, stop: Call) -> None:
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


class Display(Progress):
    """Progress of a cell on standard error: one rewritten line on a terminal, else a line now and then.

    On a terminal the cell's name is last: a narrow one cuts the end off, and the name is known.
    """

    def __init__(self, cell: str) -> None:
        console = Console(stderr=True, highlight=False)
        super().__init__(
            SpinnerColumn("line"),  # of ASCII: a terminal may have no more
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="crop")
            ),
            console=console,
            transient=True,
            disable=not sys.stderr.isatty() or console.is_dumb_terminal,
            speed_estimate_period=_SPEED_SECONDS,
        )
        self._cell, self._line_at = cell, time.monotonic()
        self._task = self.add_task(cell, total=None)

    def show_progress(
        self, epoch: int, epochs: int, step: int, steps: int, loss: float, images_per_second: float | None
    ) -> None:
        """Show that optimizer step ``step`` of ``steps`` is done."""
        self.update(self._task, completed=step, total=steps)
        left = self.tasks[0].time_remaining
        numbers = [
            f"epoch {epoch}/{epochs}",
            *([f"{timedelta(seconds=left)} left"] if left is not None else []),
            *([f"{images_per_second:.0f} images/s"] if images_per_second else []),
            f"step {step}/{steps}",
            f"loss {loss:.4f}",
        ]
        if late := time.monotonic() - self._line_at >= _LINE_SECONDS:
            self._line_at = time.monotonic()
        self.show(", ".join(numbers), at_once=late)

    def show(self, text: str, at_once: bool) -> None:
        """Show what the trainer does; without a terminal print it, if it is to be seen ``at_once``."""
        self.update(self._task, description=f"{text}  {self._cell}", refresh=True)
        if at_once and self.disable:
            print(f"{self._cell}: {text}", file=sys.stderr, flush=True)
