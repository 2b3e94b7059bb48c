"""A job and its process: what a supervisor gives it and hears of it, its killing, and what its end means.

Imports no torch.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pydantic import BaseModel, ConfigDict

from cxrbench.evidence.record import Status
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.files import locked, write_text
from cxrbench.study.names import Cell

EVENT = "@cxrbench "  # in the trainer's output: what follows is an event for the supervisor, not log
PRECOMPILED = "precompile.json"  # in the work folder: seconds, graphs, succeeded, failed
WEIGHTS = "weights.safetensors"  # in the work folder, until they are kept
CRASHED = "crashed.json"  # in a work folder that is kept for inspection; the next training starts anew
PDEATHSIG, CHILD_SUBREAPER = 1, 36  # prctl(2): be killed when the parent dies; get orphans of descendants
OWN_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # all others come from outside
_ROUNDS, _PAUSE = 100, 0.05  # a process may start another one while it is being killed; seconds
_TOKEN = "X-aws-ec2-metadata-token"


class Ending(StrEnum):
    """How a start of the trainer ended; the last two only its supervisor sees."""

    OK = "ok"
    INTERRUPTED = "interrupted"  # saved: start again to resume
    REFUSED = "refused"  # the user's mistake or the machine's trouble
    NOT_RECORDED = "not_recorded"  # the step, by a device: start again without recording
    DIVERGED = "diverged"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    KILLED = "killed"

    @property
    def exit_code(self) -> int:
        """That of the trainer; of `cxrbench train` too when it was interrupted (EX_TEMPFAIL, EX_CONFIG)."""
        return {Ending.OK: 0, Ending.INTERRUPTED: 75, Ending.REFUSED: 78}.get(self, 1)


class Interrupted(Exception):
    """The trainer was asked to stop and has saved its state: call again to go on."""


class Diverged(Exception):
    """The loss is not a number."""


class Job(BaseModel):
    """One cell to train, and how."""

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
    weights: Path | None = None  # where those that are scored are kept; none: nowhere
    without: dict[str, str] = {}  # what the platform leaves out, with the reason why an earlier start failed

    @property
    def checkpoints(self) -> Path:
        """Where the trainer saves its state."""
        return self.work / "checkpoints"

    @property
    def saved(self) -> int:
        """The optimizer steps of the newest checkpoint; -1 without one."""
        return next((steps for steps, _ in checkpoints(self.checkpoints)), -1)

    @property
    def cell(self) -> Cell:
        """The cell that this job trains."""
        return Cell(self.dataset, self.architecture, self.platform, self.seed)

    def command(self, *options: str) -> list[str]:
        """Write this job to its work folder and return the command that trains it."""
        path = self.work / "job.json"
        write_text(path, self.model_dump_json(indent=1))
        return [sys.executable, "-m", "cxrbench.training.child", str(path), *options]

    def environment(self) -> dict[str, str]:
        """Return the trainer's number of threads, and a PATH with the tools beside the interpreter."""
        threads = str(self.recipe.threads)
        # Neuron's compiler lies there, and the interpreter may have been called by its path.
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.pathsep.join(places)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the work folder and clear what a recorded crash left; UserError names any other holder."""
        self.work.mkdir(parents=True, exist_ok=True)
        with locked(self.work.with_name(f"{self.work.name}.lock"), self.cell, "training it"):
            if (self.work / CRASHED).exists():
                shutil.rmtree(self.work)
                self.work.mkdir()
            yield


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
    """Return the events in a line of output and the texts around them; an incomplete event is text."""
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


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (optimizer steps, file) of the checkpoints in ``folder``, newest first."""
    paths = folder.glob(f"step{'[0-9]' * 9}-*.pt")
    return [(int(path.name[4:13]), path) for path in sorted(paths, reverse=True)]


# -- the process: its killing and its last words ------------------------------------------


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
    """The number of processes that the kernel has killed for want of memory; 0 where it does not count."""
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


class Diagnosis(NamedTuple):
    """The meaning of a log; without a status it is the machine's trouble and no result."""

    status: Status | None
    kind: str
    fingerprint: str
    remedy: str = ""  # what to do where the machine is the cause: not the network, nor the platform
    without: str = ""  # what the trainer is started again without, once


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
                    rest = entry.get("remedy", ""), entry.get("without", "")
                    return Diagnosis(entry.get("status"), entry["kind"], code, *rest)
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
