"""Run a trainer as a child process until it ends in a result: start, watch, judge, start again, record.

The trainer's failure is a result (status, fingerprint, last lines). An interruption and the machine's trouble
(no disk, no memory, no permission, a kill from outside) are not: no record is written, the state is kept, and
the next call goes on from there. :func:`_judged` decides; ``Ending`` has the ways in which a start can end.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cxrbench import platforms
from cxrbench.evidence.record import LOG, PREDICTIONS, RECORD, Failure, Host, Phase, Record
from cxrbench.evidence.store import step_parity
from cxrbench.study.errors import UserError
from cxrbench.study.files import cores, explained, sha256_file, write_json, written_aside
from cxrbench.study.platform_names import ACCELERATED
from cxrbench.training import host
from cxrbench.training.job import CRASHED, PRECOMPILED, WEIGHTS, Ending, Interrupted, Job
from cxrbench.training.watch import OWN_SIGNALS, Diagnosis, Start, classify, normalise, start_trainer, unknown

_SOONER = 4  # after a start that was killed before it saved, checkpoints come so many times as often


@dataclass
class Attempts:
    """What must be remembered from one start of the trainer to the next, in work/attempts.json."""

    started: str
    commit: str  # of the first start: code may change while a cell trains
    dirty: bool
    count: int = 0
    seconds: float = 0.0
    cut_off: bool = False  # the last start, or its supervisor, was killed
    saved: int = -1  # optimizer steps of the newest checkpoint when the last start began
    unsaved: int = 0  # starts that were killed before they saved
    reached: int | None = None  # optimizer steps done when the trainer was last killed
    micro_batch: int | None = None
    phase_when_killed: Phase = "setup"  # or where the last start ended in another way without a result

    @classmethod
    def read(cls, path: Path) -> Attempts:
        """Return those of a work folder; new ones where there are none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(host.now(), *host.commit())

    def begin(self, job: Job) -> Job:
        """Count a start; return its job, with more frequent checkpoints where earlier ones saved nothing."""
        saved = job.saved
        self.unsaved += self.cut_off and saved == self.saved
        self.count, self.cut_off, self.saved = self.count + 1, True, saved
        minutes = job.limits.checkpoint_minutes / _SOONER**self.unsaved
        limits = job.limits.model_copy(update={"checkpoint_minutes": minutes})
        return job.model_copy(update={"limits": limits, "micro_batch": self.micro_batch or job.micro_batch})

    def worth_restarting(self, start: Start, saved: int) -> bool:
        """Always restart after the first kill; after later kills only if steps were gained.

        A signal of the trainer's own recurs at its step, so it must come later each time than before; one
        from outside may come at any step.
        """
        before, done = self.reached, max(start.step, saved)
        self.reached = max(done, -1 if before is None else before)
        if before is None:
            return True
        return done > before if start.signal in OWN_SIGNALS else start.step > 0 or saved > self.saved


def run(job: Job, target: Path) -> Record:
    """Train ``job`` and write its evidence to ``target``; return the record.

    Raises Interrupted (state saved, no record) and UserError (the user's mistake or the machine's trouble, or
    the cell is being trained already; no record, state kept).
    """
    try:
        with job.locked():
            _check_writable(target)
            record = _train(job, target)
            if record.status == "crashed":
                job.attempts.rename(job.work / CRASHED)
            else:
                shutil.rmtree(job.work, ignore_errors=True)
            return record
    except OSError as error:
        raise explained(error) or _trouble(job, f"the system refused: {error}", "mend that") from error


def _train(job: Job, target: Path) -> Record:
    """Start the trainer until it ends in a result, and write that."""
    attempts, cause = Attempts.read(job.attempts), None
    while cause is None:
        if attempts.count:  # however the last start ended, a compiler of it may have left a lock
            platforms.recover(job.platform)
        tried = attempts.begin(job)
        write_json(job.attempts, vars(attempts))  # now: this process may be killed too
        began = time.monotonic()
        start = start_trainer(tried, attempts.seconds)
        attempts.seconds += time.monotonic() - began
        if start.ending is Ending.TIMED_OUT:
            platforms.recover(job.platform)
        try:
            cause = _judged(tried, start, attempts)
        finally:
            write_json(job.attempts, vars(attempts))
    return _write_evidence(tried, start, attempts, cause, target)


def _judged(job: Job, start: Start, attempts: Attempts) -> Diagnosis | None:
    """Return what the end of a start means; None: the trainer is to be started again.

    Raises Interrupted, and UserError where the machine or the user is the cause.
    """
    ending, log = start.ending, _publishable_log(job, start.log_from)
    attempts.cut_off = ending is Ending.KILLED
    if ending is not Ending.OK:
        attempts.phase_when_killed = start.phase
    if start.log_error:
        refusal = explained(start.log_error, job.work / LOG)
        raise refusal or _trouble(job, f"its log cannot be written: {start.log_error}", "mend that")
    match ending:
        case Ending.OK:
            return Diagnosis("ok", "", "")
        case Ending.INTERRUPTED:
            raise Interrupted(f"{job.cell}: interrupted; saved, and the next call resumes it")
        case Ending.REFUSED:
            raise UserError(start.message)
        case Ending.TIMED_OUT:
            return Diagnosis("timed_out", f"stopped after {job.limits.hours:g} h", f"in phase {start.phase}")
        case Ending.DIVERGED:
            return Diagnosis("diverged", "loss is not a number", normalise(start.message))
    cause = classify(log)
    if cause is None:
        if _to_be_resumed(job, start, attempts):
            return None
        return unknown(start.message if start.reported else log, start.phase, start.signal)
    no_memory = cause.status == "out_of_memory"
    if no_memory and job.limits.out_of_memory == "halve" and job.micro_batch % 2 == 0:
        attempts.micro_batch = job.micro_batch // 2
        return None
    if cause.remedy and not (no_memory and job.limits.memory_gib):
        raise _trouble(job, f"{cause.kind} in phase {start.phase}: {cause.fingerprint}", cause.remedy)
    return cause


def _to_be_resumed(job: Job, start: Start, attempts: Attempts) -> bool:
    """Return whether a trainer was killed after progress; UserError where only the machine is the cause."""
    if start.out_of_memory_kills and start.signal in (None, "SIGKILL"):
        fault = f"the kernel killed a process for want of host memory, and the trainer ended in {start.phase}"
        raise _trouble(job, fault, "free host memory or lower limits.micro_batch")
    if start.signal is None:
        return False
    resumed = attempts.worth_restarting(start, job.saved)
    if not resumed and start.signal not in OWN_SIGNALS:
        attempts.reached = None
        fault = f"{start.signal} from outside ended the trainer twice in phase {start.phase} before any step"
        raise _trouble(job, fault, "find its sender (a memory limit, a scheduler, a person)")
    return resumed


def _trouble(job: Job, fault: str, remedy: str) -> UserError:
    """Return the message about the machine's trouble, which is no result of the cell."""
    return UserError(
        f"{job.cell}: {fault}; {remedy}, then run this again: it goes on from what {job.work} has saved"
    )


def _write_evidence(job: Job, start: Start, attempts: Attempts, cause: Diagnosis, target: Path) -> Record:
    """Write log, predictions and record into ``target``: all of them or, on a full disk, none.

    ``start``: the last one of ``attempts``; ``cause``: what its end means.
    """
    facts, status, failure = start.facts, cause.status, None
    assert status is not None
    timing, about = facts.setdefault("timing", {}), facts.setdefault("platform", {})
    if status != "ok":
        last = _publishable_log(job, start.log_from)
        failure = Failure.of(cause.kind, cause.fingerprint, start.returncode, last)
    if status != "ok" or attempts.count > 1:  # charge unreported time to the phase in which a trainer died
        reported = sum(timing.get(f"{phase}_seconds", 0.0) for phase in get_args(Phase))
        _charge(timing, attempts.phase_when_killed, max(0.0, attempts.seconds - reported))
    if (precompiled := job.work / PRECOMPILED).exists():  # before the first attempt: paid for too
        about["precompile"] = json.loads(precompiled.read_text(encoding="utf-8"))
        _charge(timing, "compile", about["precompile"]["seconds"])
    if job.platform in ACCELERATED:  # null: the step was not compared with the CPU's before
        about["step_parity"] = step_parity(job.platform, job.recipe.precision)
    with ExitStack() as files:  # renamed in the end, the record last
        record_file, log_file = (files.enter_context(written_aside(target / name)) for name in (RECORD, LOG))
        log_file.write_text(_publishable_log(job), encoding="utf-8", newline="\n")
        predictions = weights = None
        if status == "ok":
            predictions = files.enter_context(written_aside(target / PREDICTIONS))
            shutil.copyfile(job.work / PREDICTIONS, predictions)
        if status == "ok" and job.weights:
            weights = files.enter_context(written_aside(job.weights))
            shutil.copyfile(job.work / WEIGHTS, weights)
        record = Record(
            cell=str(job.cell),
            status=status,
            phase="done" if status == "ok" else start.phase,
            failure=failure,
            commit=attempts.commit,
            dirty=attempts.dirty,
            started=attempts.started,
            ended=host.now(),
            attempts=attempts.count,
            host=_host(job, facts.pop("device", {"device": job.platform, "device_count": 0})),
            versions=facts.pop("versions", {}),
            recipe=job.recipe.published(),
            recipe_hash=job.recipe.hash(),
            micro_batch=job.micro_batch,
            predictions_sha256=sha256_file(predictions) if predictions else None,
            kept_weights_sha256=sha256_file(weights) if weights else None,
            log_sha256=sha256_file(log_file),
            **facts,
        )
        record_file.write_text(record.to_json(), encoding="utf-8", newline="\n")
    if not predictions:
        (target / PREDICTIONS).unlink(missing_ok=True)
    return record


def _charge(timing: dict[str, Any], phase: Phase, seconds: float) -> None:
    """Add ``seconds`` to those of a phase."""
    timing[f"{phase}_seconds"] = timing.get(f"{phase}_seconds", 0.0) + seconds


def _host(job: Job, device: dict[str, Any]) -> Host:
    per_process = device.pop("devices_per_process", 1)  # a logical core of trn2 joins two physical ones
    asked = job.limits.processes * per_process
    return Host(
        **device,
        **host.described(),
        devices_used=min(asked, device["device_count"] or asked),  # 0: not reported, or not yet
        cores_used=min(job.recipe.threads * job.limits.processes, cores()),
    )


def _check_writable(target: Path) -> None:
    """Raise UserError before hours of training where their evidence could not be written."""
    folder = next(folder for folder in (target.absolute(), *target.absolute().parents) if folder.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: this may not be written; change its permissions or name another place")


def _publishable_log(job: Job, first: int = 0) -> str:
    """Return the log from byte ``first`` on, as :func:`published`."""
    return host.published((job.work / LOG).read_bytes()[first:])
