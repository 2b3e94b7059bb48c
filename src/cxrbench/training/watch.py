"""One start of a trainer, watched to its end: events, signals, what it leaves, what its last words mean.

While a child runs, the kernel hands orphans, such as compilers whose process was killed, to this process
(prctl(2), PR_SET_CHILD_SUBREAPER): all that was started is its descendant.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import psutil
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

from cxrbench.evidence.record import LOG, Phase, Status
from cxrbench.study.files import write_text
from cxrbench.training.job import Ending, Job, parse_events, prctl

_CHILD_SUBREAPER = 36  # prctl(2)
OWN_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # all others come from outside
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds
# Amazon EC2 User Guide, "Spot Instance interruption notices": two minutes ahead, to be asked every 5 s.
_METADATA, _METADATA_VARIABLE = "http://169.254.169.254", "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_NOTICE_SECONDS, _TIMEOUT_SECONDS = 5.0, 2.0
_SPEED_SECONDS = 300.0  # from which the time left is estimated: longer than an evaluation
_LINE_SECONDS = 10.0  # between two lines of progress where standard error is no terminal
Child = subprocess.Popen[bytes]
Call = Callable[[], None]


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
    start, kills_before = Start(), out_of_memory_kills()
    with (
        open(job.work / LOG, "ab", buffering=0) as log,
        Display(str(job.cell)) as display,
        adopted() as kill,
        subprocess.Popen(
            trainer_command(job),
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
            threading.Thread(target=_stop_before_it_goes, args=(child, stop), daemon=True).start()
        reading = thread.submit(_read, child, start, display, log, stop)
        try:
            child.wait(max(0.0, job.limits.hours * 3600 - seconds_before))
        except subprocess.TimeoutExpired:
            start.timed_out = True
        kill()  # what the trainer leaves behind too: it would hold the output open and cost money
        reading.result()
    start.returncode = child.returncode
    start.out_of_memory_kills = out_of_memory_kills() > kills_before
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
                case ending if start.reported is None:  # it makes other processes fail: the first one counts
                    start.reported = Ending(ending)
                    start.message = event.get("message", "").encode(errors="backslashreplace").decode()
        try:
            log.write("".join(f"{text}\n" for text in texts).encode())
        except OSError as error:  # a full disk: the trainer may still save
            if start.log_error is None:
                stop()
            start.log_error = error


# -- what stops and kills it -----------------------------------------------------------------------


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


@contextmanager
def adopted() -> Iterator[Call]:
    """Adopt the orphans of what this process starts; yields a function that kills all of it."""
    supervisor = psutil.Process()
    others = set(supervisor.children())

    def kill() -> None:
        for _ in range(_ROUNDS):
            if not [child for child in supervisor.children() if child not in others and _killed(child)]:
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


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed for want of memory; 0 where it does not count."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(map(str.split, Path("/proc/vmstat").read_text().splitlines()))["oom_kill"])
    return 0


def _stop_before_it_goes(child: Child, stop: Call) -> None:
    """Stop ``child`` when EC2 announces that this spot instance will go."""
    while child.poll() is None:
        if _announced():
            return stop()
        time.sleep(_NOTICE_SECONDS)


def _announced() -> bool:
    """Return whether the metadata item ``spot/instance-action`` exists; False away from EC2."""
    base, token = os.environ.get(_METADATA_VARIABLE, _METADATA).rstrip("/"), "X-aws-ec2-metadata-token"
    lasting = {f"{token}-ttl-seconds": "60"}
    ask = urllib.request.Request(f"{base}/latest/api/token", method="PUT", headers=lasting)
    try:
        with urllib.request.urlopen(ask, timeout=_TIMEOUT_SECONDS) as answer:
            given = {token: answer.read().decode()}
        ask = urllib.request.Request(f"{base}/latest/meta-data/spot/instance-action", headers=given)
        with urllib.request.urlopen(ask, timeout=_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False  # 404: no notice


# -- what it shows, and what its last words mean ---------------------------------------------------


class Display(Progress):
    """Progress of a cell on standard error: one rewritten line on a terminal, else a line now and then.

    On a terminal the cell's name is last: a narrow one cuts the end off, and the name is known.
    """

    def __init__(self, cell: str) -> None:
        console = Console(stderr=True, highlight=False)
        cropped = Column(no_wrap=True, overflow="crop")
        super().__init__(
            SpinnerColumn("line"),  # of ASCII: a terminal may have no more
            TextColumn("{task.description}", markup=False, table_column=cropped),
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
        """Show that optimizer step ``step`` of ``steps`` is done; the time left once the speed is steady."""
        if images_per_second:  # the first steps are slow, and so would the end seem far
            self.update(self._task, completed=step, total=steps)
        seconds = self.tasks[0].time_remaining
        left = "" if seconds is None else f"{timedelta(seconds=seconds)} left"
        speed = f"{images_per_second:.0f} images/s" if images_per_second else ""
        if late := time.monotonic() - self._line_at >= _LINE_SECONDS:
            self._line_at = time.monotonic()
        texts = f"epoch {epoch}/{epochs}", left, speed, f"step {step}/{steps}", f"loss {loss:.4f}"
        self.show(", ".join(filter(None, texts)), at_once=late)

    def show(self, text: str, at_once: bool) -> None:
        """Show what the trainer does; without a terminal print it, if it is to be seen ``at_once``."""
        self.update(self._task, description=f"{text}  {self._cell}", refresh=True)
        if at_once and self.disable:
            print(f"{self._cell}: {text}", file=sys.stderr, flush=True)


class Diagnosis(NamedTuple):
    """The meaning of a log; without a status it is the machine's trouble and no result."""

    status: Status | None
    kind: str
    fingerprint: str
    remedy: str = ""  # what to do where the machine is the cause: not the network, nor the platform


def _causes() -> Iterator[tuple[re.Pattern[str], dict[str, Any]]]:
    """Yield the entries of failures.toml, each with one regular expression for its lines and status codes."""
    path = Path(__file__).with_name("failures.toml")
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["pattern"]:
        lines = list(entry.get("lines", []))
        if codes := entry.get("runtime"):  # Neuron's, by name and, after a call that is no load, by number
            call = rf"(?:nrt_(?!load)\w+:?|execute the model) status=(?:{codes['numbers']})\b"
            lines.append(rf"\b(?P<name>NRT_(?:{codes['names']}))\b|(?P<call>{call})")
        yield re.compile("|".join(lines)), entry


_CAUSES = tuple(_causes())


def classify(log: str) -> Diagnosis | None:
    """Return the meaning of the weightiest known pattern in a trainer's log, the last of equals; or None."""
    for weight in ("decisive", "", "weak"):
        causes = [(regex, entry) for regex, entry in _CAUSES if entry.get("weight", "") == weight]
        for line in reversed(log.splitlines()):
            for regex, entry in causes:
                if match := regex.search(line):
                    code = next(filter(None, match.groupdict().values()), None) or normalise(line)
                    return Diagnosis(entry.get("status"), entry["kind"], code, entry.get("remedy", ""))
    return None


def unknown(log: str, phase: Phase, signal: str | None) -> Diagnosis:
    """The diagnosis of a failure that no pattern matches: its signal or its exception."""
    kind = f"killed by {signal} in phase {phase}" if signal else f"error in phase {phase}"
    return Diagnosis("crashed", kind, signal or normalise(error_line(log)))


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
