"""Run a trainer as a child process until it ends in a result: start, watch, stop, start again, record.

The trainer's failure is a result (status, fingerprint, last lines). An interruption and the machine's trouble
(no disk, no memory, no permission, a kill from outside) are not: no record is written, the state is kept, and
the next call goes on from there. :func:`_judged` decides; ``Ending`` has the ways in which a start can end.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, get_args

from cxrbench import platforms
from cxrbench.evidence.measured import step_parity
from cxrbench.evidence.record import LOG, PREDICTIONS, RECORD, Failure, Host, Phase, Record
from cxrbench.study.cores import cores
from cxrbench.study.errors import UserError
from cxrbench.study.files import explained, sha256_file, write_json, write_text, written_aside
from cxrbench.study.platform_names import ACCELERATED
from cxrbench.training import host
from cxrbench.training.attempts import Attempts, Start
from cxrbench.training.display import Display
from cxrbench.training.failures import Diagnosis, classify, normalise, unknown
from cxrbench.training.job import CRASHED, PRECOMPILED, WEIGHTS, Ending, Job, parse_events
from cxrbench.training.processes import OWN_SIGNALS, adopted, out_of_memory_kills, stop_before_it_goes

Child = subprocess.Popen[bytes]
Call = Callable[[], None]


class Interrupted(Exception):
    """The trainer was asked to stop and has saved its state: exit with 75 and call again to go on."""


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
    facts, status = start.facts, cause.status
    assert status is not None
    failure = None
    if status != "ok":
        last = _publishable_log(job, start.log_from)
        failure = Failure.of(cause.kind, cause.fingerprint, start.returncode, last)
    if status != "ok" or attempts.count > 1:  # charge unreported time to the phase in which a trainer died
        reported = sum(facts.get("timing", {}).get(f"{phase}_seconds", 0.0) for phase in get_args(Phase))
        _charge(facts, attempts.phase_when_killed, max(0.0, attempts.seconds - reported))
    if (precompiled := job.work / PRECOMPILED).exists():  # before the first attempt: paid for too
        done = json.loads(precompiled.read_text(encoding="utf-8"))
        facts.setdefault("platform", {})["precompile"] = done
        _charge(facts, "compile", done["seconds"])
    if job.platform in ACCELERATED:  # null: the step was not compared with the CPU's before
        facts.setdefault("platform", {})["step_parity"] = step_parity(job.platform, job.recipe.precision)
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


def _charge(facts: dict[str, Any], phase: Phase, seconds: float) -> None:
    """Add ``seconds`` to those of a phase in the record's facts."""
    timing = facts.setdefault("timing", {})
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


# -- one start -------------------------------------------------------------------------------------


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
    start, kills_before = Start(), out_of_memory_kills()
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
            threading.Thread(target=stop_before_it_goes, args=(child, stop), daemon=True).start()
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
