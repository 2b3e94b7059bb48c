"""Run a trainer as a child process until it ends in a result: start, watch, judge, start again, record.

The trainer's failure is a result (status, fingerprint, last lines). An interruption and the machine's trouble
(no disk, no memory, no permission, a kill from outside) are not: no record is written, the state is kept, and
the next call goes on from there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, explained, sha256_file, write_json, written_aside
from cxrbench.evidence.record import (
    LAST,
    LOG,
    PREDICTIONS,
    RECORD,
    Failure,
    Host,
    Phase,
    Record,
    commit_of_code,
    now,
    this_machine,
    without_folders,
)
from cxrbench.evidence.store import gate_outcome
from cxrbench.study import platforms
from cxrbench.study.platforms import ACCELERATED
from cxrbench.training.endings import (
    OWN_SIGNALS,
    Diagnosis,
    Ending,
    Interrupted,
    classify,
    error_line,
    normalise,
)
from cxrbench.training.job import CRASHED, PRECOMPILED, WEIGHTS, Job
from cxrbench.training.machine import out_of_memory_kills, spot_interruption_announced
from cxrbench.training.process import adopted, parse_events

Tell = Callable[[dict[str, Any]], None]  # takes an event of the trainer
ATTEMPTS = "attempts.json"  # in the work folder
_SOONER = 4  # after a start that was killed before it saved, checkpoints come so many times as often
_NOTICE_SECONDS = 5.0  # between two questions whether a spot instance goes, as Amazon recommends


@dataclass
class _Attempts:
    """What must be remembered from one start of the trainer to the next, in work/attempts.json."""

    started: str
    commit: str  # of the first start: code may change while a cell trains
    dirty: bool
    count: int = 0
    seconds: float = 0.0
    saved: int | None = None  # if the last start was killed: optimizer steps saved when it began
    unsaved: int = 0  # starts that were killed before they saved
    reached: int | None = None  # optimizer steps done when the trainer was last killed
    micro_batch: int | None = None
    without: dict[str, str] = field(default_factory=dict)  # what failed in an earlier start, and why
    phase_when_killed: Phase = "setup"  # or where the last start ended in another way without a result

    @classmethod
    def read(cls, path: Path) -> _Attempts:
        """Those of a work folder; new ones where there are none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(now(), *commit_of_code())

    def begin(self, job: Job) -> Job:
        """Count a start; return its job, with more frequent checkpoints where earlier ones saved nothing."""
        self.unsaved += job.saved == self.saved
        self.count, self.saved = self.count + 1, job.saved
        minutes = job.limits.checkpoint_minutes / _SOONER**self.unsaved
        limits = job.limits.model_copy(update={"checkpoint_minutes": minutes})
        update = {"micro_batch": self.micro_batch or job.micro_batch, "without": self.without}
        return job.model_copy(update={"limits": limits} | update)


@dataclass
class TrainerStart:
    """One start of the trainer: what it reported, and how it ended."""

    child: subprocess.Popen[bytes]
    kill: Callable[[], None]  # of all that was started
    log: str = ""  # its own part, without events
    timed_out: bool = False
    stop_requests: int = 0
    out_of_memory_kills: int = 0  # by the kernel, of any process meanwhile
    phase: Phase = "setup"
    step: int = 0  # the last one reported
    facts: dict[str, Any] = field(default_factory=dict)
    reported: Ending | None = None
    message: str = ""

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the trainer."""
        return signal.Signals(-self.child.returncode).name if self.child.returncode < 0 else None

    @property
    def ending(self) -> Ending:
        """How it ended."""
        if self.child.returncode == 0:
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

    def stop(self, *_: object) -> None:
        """Ask the trainer to save and to end; kill it at the third time."""
        self.stop_requests += 1
        if self.stop_requests < 3:  # Ctrl-C in a graph arrives twice: from the terminal and from Snakemake
            self.child.terminate()
        else:
            self.kill()

    def read(self, log: FileIO, tell: Tell) -> None:
        """Take in events, append other output to the log; on a thread, as the main one handles signals."""
        refused: OSError | None = None
        for line in self.child.stdout or ():
            events, texts = parse_events(line.decode(errors="backslashreplace"))
            for event in events:
                tell(event)
                match event.pop("event"):
                    case "phase":
                        self.phase = event["phase"]
                    case "progress":
                        self.step = event["step"]
                    case "facts":
                        self.facts |= event
                    case ending if self.reported is None:  # it makes other processes fail: the first counts
                        self.reported = Ending(ending)
                        self.message = event.get("message", "").encode(errors="backslashreplace").decode()
            try:
                log.write("".join(f"{text}\n" for text in texts).encode())
            except OSError as error:  # a full disk: the trainer may still save
                if refused is None:
                    self.stop()
                refused = error
        if refused:
            refused.filename = log.name
            raise refused


def run(job: Job, target: Path, tell: Tell = lambda event: None) -> Record:
    """Train ``job``, ``tell`` what the trainer reports, write its evidence to ``target``; return the record.

    Raises Interrupted (state saved, no record) and UserError (the user's mistake or the machine's trouble, or
    the cell is being trained already; no record, state kept).
    """
    place = target.absolute()
    folder = next(folder for folder in (place, *place.parents) if folder.exists())
    try:
        with job.locked():
            if not os.access(folder, os.W_OK | os.X_OK):  # before hours of training
                reason = "this may not be written; change its permissions or name another place"
                raise UserError(f"{folder}: {reason}")
            record = _train(job, target, tell)
            if record.status == "crashed":
                (job.work / ATTEMPTS).rename(job.work / CRASHED)
            else:
                shutil.rmtree(job.work, ignore_errors=True)
            return record
    except OSError as error:
        raise explained(error) or _trouble(job, f"the system refused: {error}", "mend that") from error


def _train(job: Job, target: Path, tell: Tell) -> Record:
    """Start the trainer until it ends in a result, and write that."""
    place, cause = job.work / ATTEMPTS, None
    attempts = _Attempts.read(place)
    while cause is None:
        if attempts.count:  # however the last start ended, a compiler of it may have left a lock
            platforms.recover(job.platform)
        tried, began = attempts.begin(job), time.monotonic()
        write_json(place, vars(attempts))  # now: this process may be killed too
        try:
            start = _start_trainer(tried, attempts.seconds, tell)
            cause = _judged(tried, start, attempts)
        finally:
            attempts.seconds += time.monotonic() - began
            write_json(place, vars(attempts))
    return _write_evidence(tried, start, attempts, cause, target)


def _start_trainer(job: Job, seconds_before: float, tell: Tell) -> TrainerStart:
    """Start the trainer once, follow it to its end, append its output to the log."""
    kills, deadline = out_of_memory_kills(), time.monotonic() + job.limits.hours * 3600 - seconds_before
    with (
        open(job.work / LOG, "ab", buffering=0) as log,
        adopted() as kill,
        subprocess.Popen(
            job.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | job.environment() | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C must reach the trainer only through us
        ) as child,
        ExitStack() as handlers,
        ThreadPoolExecutor(1) as thread,
    ):
        start = TrainerStart(child, kill)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                handlers.callback(signal.signal, number, signal.signal(number, start.stop))
        log_from = log.seek(0, os.SEEK_END)
        reading = thread.submit(start.read, log, tell)
        while child.poll() is None and not start.timed_out:
            if job.limits.spot_notice and not start.stop_requests and spot_interruption_announced():
                start.stop()
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, min(_NOTICE_SECONDS, deadline - time.monotonic())))
            start.timed_out = child.poll() is None and time.monotonic() >= deadline
        kill()  # what the trainer leaves behind too: it would hold the output open and cost money
        reading.result()
    start.log = without_folders((job.work / LOG).read_bytes()[log_from:])
    start.out_of_memory_kills = out_of_memory_kills() - kills
    return start


def _judged(job: Job, start: TrainerStart, attempts: _Attempts) -> Diagnosis | None:
    """The status that the end of a start means; None: start again. Raise what is no result of the cell."""
    if start.ending is not Ending.KILLED:
        attempts.saved = None
    if start.ending is not Ending.OK:
        attempts.phase_when_killed = start.phase
    match start.ending:
        case Ending.OK:
            return Diagnosis("ok", "", "")
        case Ending.INTERRUPTED:
            raise Interrupted(f"{job.cell}: interrupted; saved, and the next call resumes it")
        case Ending.REFUSED:
            raise UserError(start.message)
        case Ending.NOT_RECORDED if platforms.RECORDING not in attempts.without:
            attempts.without[platforms.RECORDING] = start.message
            return None
        case Ending.TIMED_OUT:
            platforms.recover(job.platform)
            return Diagnosis("timed_out", f"stopped after {job.limits.hours:g} h", f"in phase {start.phase}")
        case Ending.DIVERGED:
            return Diagnosis("diverged", "loss is not a number", normalise(start.message))
    cause = classify(start.log)
    if cause is None:
        if _to_be_resumed(job, start, attempts):
            return None
        message = normalise(error_line(start.message if start.reported else start.log))
        kind = f"killed by {start.signal}" if start.signal else "error"
        return Diagnosis("crashed", f"{kind} in phase {start.phase}", start.signal or message)
    if cause.without and cause.without not in attempts.without:
        attempts.without[cause.without] = cause.fingerprint
        return None
    no_memory = cause.status == "out_of_memory"
    if no_memory and job.limits.out_of_memory == "halve" and job.micro_batch % 2 == 0:
        attempts.micro_batch = job.micro_batch // 2
        return None
    if cause.remedy and not (no_memory and job.limits.memory_gib):
        raise _trouble(job, f"{cause.kind} in phase {start.phase}: {cause.fingerprint}", cause.remedy)
    return cause


def _to_be_resumed(job: Job, start: TrainerStart, attempts: _Attempts) -> bool:
    """Whether to start again: always after the first kill, after later ones only if steps were gained.

    A signal of the trainer's own recurs at its step, so it must come later each time than before; one from
    outside may come at any step. UserError where only the machine is the cause.
    """
    if start.out_of_memory_kills and start.signal in (None, "SIGKILL"):
        fault = f"the kernel killed a process for want of host memory, and the trainer ended in {start.phase}"
        raise _trouble(job, fault, "free host memory or lower limits.micro_batch")
    if start.signal is None:
        return False
    before, done = attempts.reached, max(start.step, job.saved)
    attempts.reached = done if before is None else max(done, before)
    if before is None:
        return True
    if start.signal in OWN_SIGNALS:
        return done > before
    if start.step == 0:
        attempts.reached = None
        fault = f"{start.signal} from outside ended the trainer twice in phase {start.phase} before any step"
        raise _trouble(job, fault, "find its sender (a memory limit, a scheduler, a person)")
    return True


def _trouble(job: Job, fault: str, remedy: str) -> UserError:
    """The message about the machine's trouble, which is no result of the cell."""
    return UserError(
        f"{job.cell}: {fault}; {remedy}, then run this again: it goes on from what {job.work} has saved"
    )


def _write_evidence(
    job: Job, start: TrainerStart, attempts: _Attempts, cause: Diagnosis, target: Path
) -> Record:
    """Write log, predictions and record into ``target``: all of them or, on a full disk, none."""
    facts, status, failure = start.facts, cause.status, None
    assert status is not None
    timing = facts["timing"] = defaultdict(float, facts.get("timing", {}))
    about = facts.setdefault("platform", {})
    device = facts.pop("device", {"device": job.platform, "device_count": 0})
    # A logical core of trn2 joins two physical ones. A count of 0: not reported, or not yet.
    used = job.limits.processes * device.pop("devices_per_process", 1)
    if status != "ok":
        failure = Failure.of(cause.kind, cause.fingerprint, start.child.returncode, start.log)
    if status != "ok" or attempts.count > 1:  # charge unreported time to the phase in which a trainer died
        reported = sum(value for name, value in timing.items() if name.endswith("_seconds"))
        timing[f"{attempts.phase_when_killed}_seconds"] += max(0.0, attempts.seconds - reported)
    if (precompiled := job.work / PRECOMPILED).exists():  # before the first attempt: paid for too
        about["precompile"] = json.loads(precompiled.read_text(encoding="utf-8"))
        timing["compile_seconds"] += about["precompile"]["seconds"]
    if job.platform in ACCELERATED:  # null: the step was not compared with the CPU's before
        about["step_parity"] = gate_outcome(job.platform, job.recipe.precision)
    kept = {name: target / name for name in (PREDICTIONS, LAST)} | {WEIGHTS: job.weights}
    places = kept if status == "ok" else {}
    sums = dict[str, str]()
    with ExitStack() as files:  # renamed in the end, the record last
        record_file, log_file = (files.enter_context(written_aside(target / name)) for name in (RECORD, LOG))
        log = without_folders((job.work / LOG).read_bytes())
        log_file.write_text(log, encoding="utf-8", newline="\n")
        for name, place in places.items():
            if place:
                copy = files.enter_context(written_aside(place))
                shutil.copyfile(job.work / name, copy)
                sums[name] = sha256_file(copy)
        record = Record(
            cell=str(job.cell),
            status=status,
            phase="done" if status == "ok" else start.phase,
            failure=failure,
            commit=attempts.commit,
            dirty=attempts.dirty,
            started=attempts.started,
            ended=now(),
            attempts=attempts.count,
            host=Host(
                **device,
                **this_machine(),
                devices_used=min(used, device["device_count"] or used),
                cores_used=min(job.recipe.threads * job.limits.processes, cores()),
            ),
            versions=facts.pop("versions", {}),
            recipe=job.recipe.published(),
            recipe_hash=job.recipe.hash(),
            micro_batch=job.micro_batch,
            predictions_sha256=sums.get(PREDICTIONS),
            predictions_last_sha256=sums.get(LAST),
            kept_weights_sha256=sums.get(WEIGHTS),
            log_sha256=sha256_file(log_file),
            **facts,
        )
        record_file.write_text(record.to_json(), encoding="utf-8", newline="\n")
    if status != "ok":
        for name in (PREDICTIONS, LAST):
            (target / name).unlink(missing_ok=True)
    return record
