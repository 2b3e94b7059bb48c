"""One start of the trainer as a child process: what it reports, how it is stopped, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Any

from cxrbench.evidence.record import LOG, Phase
from cxrbench.study.files import write_text
from cxrbench.training import family, host, torchrun
from cxrbench.training.job import Job, parse_events
from cxrbench.training.progress import Display
from cxrbench.training.spot import watching


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
            # Who stops a job stops its compilers and other processes too, and a trainer fails without them.
            # It may have nothing to save yet. The next call meets a failure of the trainer's own again.
            if self.signal in ("SIGTERM", "SIGKILL") or self.reported in (None, Ending.FAILED):
                return Ending.INTERRUPTED
        elif self.timed_out:
            return Ending.TIMED_OUT
        if self.reported not in (None, Ending.FAILED):
            return self.reported
        return Ending.KILLED if self.signal else Ending.FAILED


def start_trainer(job: Job, seconds_before: float) -> Start:
    """Start the trainer once, follow it to its end, append its output to the log."""
    write_text(job.work / "job.json", job.model_dump_json(indent=1))
    environment = os.environ | torchrun.environment(job) | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *torchrun.launcher(job), "cxrbench.training.child", str(job.work / "job.json")]
    start, kills_before = Start(), host.out_of_memory_kills()
    with (
        open(job.work / LOG, "ab", buffering=0) as log,
        Display(str(job.cell)) as display,
        family.adopted() as kill,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C must reach the trainer only through us
        ) as child,
        _killed_after(child, kill),
        _stops(child, kill, start) as stop,
        watching(job.limits.spot_notice, stop),
        _deadline(kill, job.limits.hours * 3600 - seconds_before, start),
    ):
        assert child.stdout is not None
        start.log_from = log.seek(0, os.SEEK_END)
        for line in child.stdout:
            events, texts = parse_events(line.decode(errors="backslashreplace"))
            for event in events:
                _handle(event, start, display)
            try:
                log.write("".join(f"{text}\n" for text in texts).encode())
            except OSError as error:  # a full disk: the trainer may still save
                if start.log_error is None:
                    stop()
                start.log_error = error
    start.returncode = child.returncode
    start.out_of_memory_kills = host.out_of_memory_kills() > kills_before
    return start


def _handle(event: dict[str, Any], start: Start, display: Display) -> None:
    """Take in one event of the trainer."""
    kind = event.pop("event")
    if kind == "phase":
        start.phase = event["phase"]
        display.phase(start.phase)
    elif kind == "progress":
        start.step = event["step"]
        display.progress(**event)
    elif kind == "facts":
        start.facts |= event
    elif start.reported is None:  # one process's failure makes others fail: the first one counts
        start.reported = Ending(kind)
        start.message = event.get("message", "").encode(errors="backslashreplace").decode()


@contextmanager
def _killed_after(child: subprocess.Popen[bytes], kill: Callable[[], None]) -> Iterator[None]:
    """Kill what ``child`` leaves behind when it ends: it would hold its output open and cost money."""

    def follow() -> None:
        child.wait()
        kill()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield
    thread.join()


@contextmanager
def _stops(
    child: subprocess.Popen[bytes], kill: Callable[[], None], start: Start
) -> Iterator[Callable[[], None]]:
    """Pass SIGINT, SIGTERM and SIGHUP on to the trainer as a polite SIGTERM; the third one kills it.

    Ctrl-C in a graph arrives twice (from the terminal and from Snakemake): that must stay polite.
    Yields a function that asks as well.
    """

    def ask(signum: int = 0, frame: FrameType | None = None) -> None:
        start.stop_requests += 1
        if start.stop_requests < 3:
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
def _deadline(kill: Callable[[], None], seconds: float, start: Start) -> Iterator[None]:
    """Kill the trainer when its time is over."""

    def over() -> None:
        start.timed_out = True
        kill()

    timer = threading.Timer(max(0.0, seconds), over)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it may be killing, and must not go on to kill what is started next
