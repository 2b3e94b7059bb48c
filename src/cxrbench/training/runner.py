"""Runs a trainer as a child process and turns whatever happens to it into a record.

The trainer's death is a result (status, fingerprint, last lines); an interruption is not: its state is
saved, no record is written, and the next call goes on from there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any

from cxrbench.cores import cores
from cxrbench.errors import UserError
from cxrbench.evidence import LOG, PREDICTIONS, RECORD, Failure, Host, Phase, Record, Status
from cxrbench.files import sha256_file, write_json, write_text, written_aside
from cxrbench.training import failures, family, host, torchrun
from cxrbench.training.job import PRECOMPILED, Job, checkpoints, heard
from cxrbench.training.progress import Display
from cxrbench.training.spot import watching

_LAST_LINES = 20


class Interrupted(Exception):
    """The trainer was asked to stop and has saved its state: exit with 75 and call again to go on."""


@dataclass
class _Attempts:
    """What must be remembered from one start of the trainer to the next, in work/attempts.json."""

    started: str
    commit: str  # of the first start: code may change while a cell trains
    dirty: bool
    count: int = 0
    seconds: float = 0.0
    died_at: int | None = None  # optimizer steps saved when the trainer was last killed
    micro_batch: int | None = None
    lost_in: Phase = "setup"  # where the last start ended that did not finish

    @classmethod
    def read(cls, path: Path) -> _Attempts:
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(_now(), *host.commit())


@dataclass
class _End:
    """How one start of the trainer ended."""

    returncode: int
    log_from: int = 0  # where this start's output begins in the log, in bytes
    killed: int | None = None  # -N when torchrun reports that signal N ended one of its processes
    timed_out: bool = False
    phase: Phase = "setup"
    facts: dict[str, Any] = field(default_factory=dict)
    asked_to_stop: int = 0
    said: str | None = None  # 'interrupted', 'refused', 'diverged' or 'failed'
    message: str = ""


def run(job: Job, target: Path) -> Record:
    """Train ``job`` and write its evidence to ``target``; returns the record.

    Raises Interrupted (state saved, no record) and UserError (the user's mistake, no record).
    """
    memory = job.work / "attempts.json"
    attempts = _Attempts.read(memory)
    job.work.mkdir(parents=True, exist_ok=True)
    while True:
        attempts.count += 1
        write_json(memory, vars(attempts))  # now: this process may be killed too
        tried = job.model_copy(update={"micro_batch": attempts.micro_batch or job.micro_batch})
        started = time.monotonic()
        end = _start_trainer(tried, attempts.seconds)
        attempts.seconds += time.monotonic() - started
        again = _goes_on(tried, end, attempts)
        if again or end.said == "interrupted":
            attempts.lost_in = end.phase
        write_json(memory, vars(attempts))
        if end.said == "interrupted":
            raise Interrupted(f"{job.cell}: interrupted; saved, and the next call resumes it")
        if end.said == "refused":
            raise UserError(end.message)
        if not again:
            record = _write_evidence(tried, end, attempts, target)
            shutil.rmtree(job.work)
            return record


def _start_trainer(job: Job, seconds_before: float) -> _End:
    """Start the trainer once, follow it to its end, append its output to the log."""
    write_text(job.work / "job.json", job.model_dump_json(indent=1))
    mark = family.new_mark()
    environment = os.environ | torchrun.environment(job) | mark | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *torchrun.launcher(job), "cxrbench.training.child", str(job.work / "job.json")]
    end = _End(returncode=0)
    with (
        open(job.work / LOG, "a", encoding="utf-8") as log,
        Display(str(job.cell)) as display,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C must reach the trainer only through us
            encoding="utf-8",
            errors="replace",
        ) as child,
        family.ended_with(child, mark),
        _stops(child, mark, end) as stop,
        watching(job.limits.spot_notice, stop),
        _deadline(child, mark, job.limits.hours * 3600 - seconds_before, end),
    ):
        assert child.stdout is not None
        end.log_from = log.tell()
        _follow(child.stdout, log, end, display)
    end.returncode = child.returncode
    if end.returncode and end.killed:
        end.returncode = end.killed
    if _was_stopped(end):
        end.said = "interrupted"
    return end


def _follow(output: IO[str], log: IO[str], end: _End, display: Display) -> None:
    """Take the trainer's events and write the rest of its output to the log, until its last process ends."""
    for line in output:
        events, texts = heard(line)
        for event in events:
            _take(event, end, display)
        for text in texts:
            log.write(text + "\n")
            end.killed = torchrun.killed(text) or end.killed
        log.flush()


def _was_stopped(end: _End) -> bool:
    """Whether a trainer that was asked to stop did so with nothing to save yet, or was killed as too slow."""
    if not end.asked_to_stop or end.returncode == 0:
        return False
    if end.returncode in (-signal.SIGTERM, -signal.SIGKILL):
        return True
    # Who stops a job stops its compilers and other processes too, and what lacks them fails. A failure of
    # the trainer's own is met again by the next call.
    return end.said in (None, "failed")


def _take(event: dict[str, Any], end: _End, display: Display) -> None:
    """One event of the trainer."""
    kind = event.pop("event")
    if kind == "phase":
        end.phase = event["phase"]
        display.phase(end.phase)
    elif kind == "progress":
        display.progress(**event)
    elif kind == "facts":
        end.facts |= event
    elif end.said is None:  # one process's failure makes others fail: the first one counts
        end.said, end.message = kind, event.get("message", "")


@contextmanager
def _stops(child: subprocess.Popen[str], mark: dict[str, str], end: _End) -> Iterator[Callable[[], None]]:
    """Pass SIGINT and SIGTERM on to the trainer as a polite SIGTERM; the third one kills it.

    Ctrl-C in a graph arrives twice (from the terminal and from Snakemake): that must stay polite.
    Yields a function that asks as well.
    """

    def ask(signum: int = 0, frame: FrameType | None = None) -> None:
        end.asked_to_stop += 1
        if end.asked_to_stop < 3:
            child.terminate()
        else:
            family.kill(child, mark)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ask
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deadline(
    child: subprocess.Popen[str], mark: dict[str, str], seconds: float, end: _End
) -> Iterator[None]:
    """Kill the trainer when its time is over."""

    def over() -> None:
        end.timed_out = True
        family.kill(child, mark)

    timer = threading.Timer(max(0.0, seconds), over)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _goes_on(job: Job, end: _End, attempts: _Attempts) -> bool:
    """Whether the trainer is to be started again: killed after progress, or with half the micro-batch."""
    if end.timed_out or end.returncode == 0 or end.said in ("interrupted", "refused", "diverged"):
        return False
    known = failures.classify(_output(job, end))
    if known is not None:
        may_halve = job.limits.out_of_memory == "halve" and job.micro_batch % 2 == 0
        if known[0] == "out_of_memory" and may_halve:
            attempts.micro_batch = job.micro_batch // 2
            return True
        return False
    if end.returncode < 0:
        saved = checkpoints(job.checkpoints)
        position = saved[0][0] if saved else -1
        if position != attempts.died_at:
            attempts.died_at = position
            return True
    return False


def _write_evidence(job: Job, end: _End, attempts: _Attempts, target: Path) -> Record:
    """Log and predictions into ``target``, then the record, which makes them count."""
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / LOG, _publishable((job.work / LOG).read_text(encoding="utf-8")))
    status, failure = _judge(job, end)
    predictions = target / PREDICTIONS
    if status == "ok":
        with written_aside(predictions) as aside:
            shutil.copyfile(job.work / PREDICTIONS, aside)
    else:
        predictions.unlink(missing_ok=True)
        _charge_lost_time(end, attempts.seconds, end.phase)
    if status == "ok" and attempts.count > 1:
        _charge_lost_time(end, attempts.seconds, attempts.lost_in)
    device = end.facts.pop("device", {"device": job.platform, "device_count": 0})
    _charge_precompilation(job, end.facts)
    record = Record(
        cell=str(job.cell),
        status=status,
        phase="done" if status == "ok" else end.phase,
        failure=failure,
        commit=attempts.commit,
        dirty=attempts.dirty,
        started=attempts.started,
        ended=_now(),
        attempts=attempts.count,
        host=_host(job, device),
        versions=end.facts.pop("versions", {}),
        recipe=job.recipe.model_dump(mode="json"),
        recipe_hash=job.recipe.hash(),
        micro_batch=job.micro_batch,
        predictions_sha256=sha256_file(predictions) if status == "ok" else None,
        log_sha256=sha256_file(target / LOG),
        **end.facts,
    )
    write_text(target / RECORD, record.to_json())
    return record


def _charge_lost_time(end: _End, seconds: float, phase: Phase) -> None:
    """Put what trainers did not live to tell of their ``seconds`` into the ``phase`` they died in."""
    timing = end.facts.get("timing", {})
    told = sum(timing.get(f"{phase}_seconds", 0.0) for phase in ("setup", "compile", "train", "evaluate"))
    name = f"{phase}_seconds"
    end.facts["timing"] = timing | {name: timing.get(name, 0.0) + max(0.0, seconds - told)}


def _charge_precompilation(job: Job, facts: dict[str, Any]) -> None:
    """Add what `cxrbench precompile` spent before the first attempt: its seconds are paid for too."""
    path = job.work / PRECOMPILED
    if path.exists():
        done = json.loads(path.read_text(encoding="utf-8"))
        facts["platform"] = facts.get("platform", {}) | {"precompile": done}
        timing = facts.get("timing", {})
        facts["timing"] = timing | {"compile_seconds": timing.get("compile_seconds", 0.0) + done["seconds"]}


def _judge(job: Job, end: _End) -> tuple[Status, Failure | None]:
    """The status of a finished trainer and, unless it is ok, why: earlier starts failed for other reasons."""
    if end.returncode == 0:
        return "ok", None
    log = torchrun.without_last_words(_publishable(_output(job, end)))
    signal_name = signal.Signals(-end.returncode).name if end.returncode < 0 else None
    status: Status
    if end.timed_out:
        status, kind, fingerprint = (
            "timed_out",
            f"stopped after {job.limits.hours:g} h",
            f"in phase {end.phase}",
        )
    elif end.said == "diverged":
        status, kind, fingerprint = "diverged", "loss is not a number", failures.normalise(end.message)
    else:
        error = end.message if end.said == "failed" else log
        status, kind, fingerprint = failures.classify(log) or failures.unknown(error, end.phase, signal_name)
    last_lines = [line[:500] for line in log.splitlines()[-_LAST_LINES:]]
    return status, Failure(
        kind=kind,
        fingerprint=fingerprint,
        returncode=end.returncode if end.returncode >= 0 else None,
        signal=signal_name,
        last_lines=last_lines,
    )


def _host(job: Job, device: dict[str, Any]) -> Host:
    per_process = device.pop("devices_per_process", 1)  # trn2 joins two physical cores into a logical one
    asked = job.limits.processes * per_process
    return Host(
        **device,
        devices_used=min(asked, device["device_count"] or asked),  # 0: not told, by the device or in time
        cpu=host.cpu_name(),
        cores=cores(),
        cores_used=min(job.recipe.threads * job.limits.processes, cores()),
        memory_gib=host.memory_gib(),
        os=host.operating_system(),
        instance=host.instance_type(),
    )


def _output(job: Job, end: _End) -> str:
    """What the last start of the trainer has written."""
    with open(job.work / LOG, "rb") as file:
        file.seek(end.log_from)
        return file.read().decode(errors="replace")


def _publishable(log: str) -> str:
    """A log without this machine's folders, which are replaced by what they are, and without its name."""
    for folder, name in ((str(Path.cwd()), "."), (sys.prefix, "<env>"), (sys.base_prefix, "<python>")):
        log = log.replace(folder, name)
    return torchrun.without_host(log.replace(str(Path.home()), "~"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
