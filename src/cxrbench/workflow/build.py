"""What a build adds to Snakemake: it goes on after a kill, and shows the messages of its commands."""

import hashlib
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO

import psutil
from snakemake_interface_logger_plugins.common import LogEvent

from cxrbench.common.errors import and_more
from cxrbench.common.files import explained, sha256_file, share, taken

OWNER = "CXRBENCH_BUILD"  # in the environment of every job: the folder of its build
WAIT = "CXRBENCH_WAIT"  # in the environment of a build that waits for another one to end, as make's do
_PAUSE = 0.2  # seconds between two looks at another build
_STOP_SECONDS = 60.0  # for a trainer to save its state
_BUILT = ("results/tables", "paper", "figures")  # folders that nothing but a build writes
_VERBOSE_RULES = ("pack", "score", "train")  # rules whose logs say more than a terminal needs
_NOISE = (  # beginnings of Snakemake's messages that are useless to a user or repeated
    "Assuming unrestricted shared filesystem usage",
    "Building DAG of jobs",
    "Conda environments: ignored",
    "Config file ",
    "Exiting because a job execution failed",
    "Select jobs to execute",
    "Using shell: ",
    "Using workflow specific profile ",
    "WorkflowError:\nAt least one job did not complete",
)
_ALIVE = ".snakemake/alive.lock"
_STOPPING = "Will exit after finishing currently running jobs"  # what Snakemake says to a SIGTERM
_held: list[IO[str]] = []  # open, so locked, until this process ends


def take_build_lock(folder: Path) -> bool:
    """Take the build lock of ``folder``; if it was free, remove what a killed build left.

    Return False if another build holds it; with :data:`WAIT` in the environment, wait for its end.

    Every Snakemake holds a shared lock on a file for life, which the system releases however it ends. Where
    nobody else holds it, Snakemake's own locks are stale, and processes of the dead build that still run
    would write beside the new one: they are stopped. Raises OSError when ``folder`` may not be written.
    """
    (folder / ".snakemake").mkdir(exist_ok=True)
    holder = open(folder / _ALIVE, "a+", encoding="utf-8")  # noqa: SIM115
    _held.append(holder)
    alone = taken(holder)
    if alone is False and os.environ.get(WAIT):
        say(f"cxrbench: {running_build(folder)}. Waiting for its end")
        while (alone := taken(holder)) is False:
            time.sleep(_PAUSE)
    if alone is False:
        share(holder)
        return False
    if alone is None:  # a disk without locks: Snakemake's own are all there is
        return True
    holder.seek(0)
    host, stale = holder.read(), list((folder / ".snakemake/locks").glob("*.lock"))
    if stale and host not in ("", socket.gethostname()):  # a shared disk may not share its locks
        say(f"cxrbench: the last build ran on {host}; if that build has finished, run snakemake --unlock")
    elif stale:
        stopped = _stop_jobs_of(folder)
        for path in (*stale, *(folder / "results").rglob(".*.part")):
            path.unlink(missing_ok=True)
        also = f"; {stopped} of its processes still ran and were stopped" if stopped else ""
        say(f"cxrbench: the last build here was killed{also}; this one goes on from its files")
    for path in (path for built in _BUILT for path in (folder / built).rglob(".*.part")):
        path.unlink(missing_ok=True)  # of a command that was killed while its build went on
    holder.truncate(0)
    holder.write(socket.gethostname())
    holder.flush()
    share(holder)
    return True


def _stop_jobs_of(folder: Path) -> int:
    """Stop processes that a dead build of ``folder`` left, as Ctrl-C would; return how many there were."""
    left, owner = [], str(folder.resolve())
    ours = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in ours and process.environ().get(OWNER) == owner:
                process.terminate()
                left.append(process)
        except (psutil.Error, OSError):  # ended meanwhile, or another user's
            continue
    _, stubborn = psutil.wait_procs(left, timeout=_STOP_SECONDS)
    for process in stubborn:
        process.kill()
    psutil.wait_procs(stubborn)
    return len(left)


def say(text: str) -> None:
    """Print a message; the command line's own function would import every command."""
    print(text, file=sys.stderr, flush=True)


# Files of the package that decide the result of a command; the modules at its top level always count.
SCORING = (
    *("common/*", "study/*", "evidence/*", "statistics/*", "results/*"),
    *("datasets/nih_table.py", "datasets/split.py", "datasets/splits/*"),
)
_ROOMS = (
    "claims",
    "cli",
    "common",
    "cost",
    "datasets",
    "evidence",
    "neuron",
    "paper",
    "results",
    "statistics",
    "study",
    "workflow",
)
REPORTING = (*(f"{room}/**/*" for room in _ROOMS), "platforms/*", "training/plan.py", "training/*.txt")


def code_files(package: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files of ``package`` that match, without caches and those of an editor.

    They are the code behind a command; Snakemake itself looks at commands and data only.
    """
    files = {path for pattern in ("*.py", *patterns) for path in package.glob(pattern) if path.is_file()}
    hidden = (".", "__pycache__")
    return sorted(p for p in files if not any(q.startswith(hidden) for q in p.relative_to(package).parts))


@cache
def content_of(*paths: str | Path) -> str:
    """A short hash of files' names and bytes, for a rule's params.

    Snakemake compares times, and checksums that it takes when a job ends: a file that is edited while a job
    reads it, or replaced by an older one, would never reach the paper.
    """
    hashed = hashlib.sha256()
    for path in map(Path, paths):
        hashed.update(f"{path}\0".encode() + (path.read_bytes() if path.is_file() else b"\0") + b"\0")
    return hashed.hexdigest()[:16]


def running_build(folder: Path) -> str:
    """In words which build has the locks of ``folder``, and what to do about it."""
    lock, own_pid = str((folder / _ALIVE).resolve()), os.getpid()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # ended meanwhile, or another user's
            if process.pid != own_pid and any(file.path == lock for file in process.open_files()):
                since = datetime.fromtimestamp(process.create_time()).strftime("%H:%M")
                stop = f"wait until it ends, or stop it (kill {process.pid}); then repeat this command"
                return f"a build works in this folder since {since}, process {process.pid}; {stop}"
    state = "this folder is locked for a build, and none runs on this machine"
    return f"{state}; if none runs on another one, run snakemake --unlock"


class Made(logging.Handler):
    """The hashes of what a build's jobs wrote, in a file: what was changed since is to be made again.

    Left out are packed datasets and trained cells. Commands that are called by hand write them too, and they
    hold hashes of their own.
    """

    _LEFT_OUT = ("pack", "train")

    def __init__(self, path: Path, built: Iterable[Path]) -> None:
        """``path``: of the list; ``built``: what there is of files that nothing but a build writes."""
        super().__init__()
        self._path = path
        self._jobs: dict[int, tuple[str, list[str]]] = {}
        try:  # of each output, itself and what its command writes beside it
            self._made: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
            if not all(isinstance(hashes, dict) for hashes in self._made.values()):
                raise ValueError
        except (OSError, ValueError, AttributeError):  # the first build; else nobody knows what was changed
            self._made = {str(file): {str(file): "unknown"} for file in built}

    def changed(self, remove: bool) -> list[str]:
        """The files that are not as they were made; ``remove`` the outputs they belong to."""
        wrong: dict[str, None] = {}
        for output, hashes in list(self._made.items()):
            different = [name for name, known in hashes.items() if _hash_of(Path(name)) != known]
            if not different:
                continue
            if Path(output).exists():  # else it is made again anyway
                wrong |= dict.fromkeys(different)
            if remove:
                Path(output).unlink(missing_ok=True)
                del self._made[output]
        return [*wrong]

    def emit(self, record: logging.LogRecord) -> None:
        """Forget the outputs of a job that starts; note their hashes when it has finished."""
        values = vars(record)
        match values.get("event"):
            case LogEvent.JOB_INFO if values["rule_name"] not in self._LEFT_OUT:
                self._jobs[values["jobid"]] = values["rule_name"], values["output"]
                for output in values["output"]:
                    self._made.pop(output, None)
            case LogEvent.JOB_FINISHED if values["job_id"] in self._jobs:
                rule, outputs = self._jobs.pop(values["job_id"])
                for output in map(Path, outputs):
                    files = sorted({output, *self._beside(rule, output)})
                    self._made[str(output)] = {str(file): _hash_of(file) for file in files}
            case _:
                return
        with suppress(OSError):  # the build itself will say that it cannot write
            aside = self._path.with_name(f".{self._path.name}.part")
            aside.write_text(json.dumps(self._made, indent=0, sort_keys=True), encoding="utf-8")
            os.replace(aside, self._path)

    def _beside(self, rule: str, output: Path) -> Iterable[Path]:
        """The files that a rule's command writes besides the rule's output."""
        if rule == "adopt":
            return (path for path in output.parent.iterdir() if not path.name.startswith("."))
        if rule == "report" and output.name == "macros.tex":
            return (*output.parent.glob("*.tex"), *(self._path.parent / "tables").glob("table_*"))
        return ()


def _hash_of(path: Path) -> str:
    return sha256_file(path) if path.is_file() else ""


def keep_what_is_made(
    logger: logging.Logger, path: Path, dry: bool, alone: bool, built: Iterable[Path]
) -> None:
    """Have what was changed since a build made it made again, and keep the hashes of what this one makes.

    ``built``: what there is of a build's outputs; without a list of their hashes, all count as changed.
    """
    made = Made(path, built)
    if alone and (changed := made.changed(remove=not dry)):
        named = ", ".join(changed[:3]) + and_more(len(changed) - 3 if len(changed) > 3 else 0)
        say(f"cxrbench: changed since the build made it, so to be made again: {named}")
    if not dry:
        logger.addHandler(made)


class CommandLogFilter(logging.Filter):
    """Show each job's message and what its command wrote, in place of Snakemake's own words about jobs.

    ``cluster``: jobs run elsewhere, so that Snakemake's count of finished ones stays. ``dry`` returns whether
    this is a dry run, which shows jobs as Snakemake does.
    """

    def __init__(self, cluster: bool, dry: Callable[[], bool]) -> None:
        super().__init__()
        self._cluster, self._dry = cluster, dry
        self._total = 0
        self._jobs: dict[int, tuple[str, list[str]]] = {}  # rule and logs
        self._ending, self._killed, self._stopping = "failed", False, False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether Snakemake shows ``record``; print what stands in its place."""
        values, text = vars(record), record.getMessage()
        if self._dry():
            values["rule_msg"] = None  # with a message, Snakemake leaves out what the job asks for
            return True
        match values.get("event"):
            case LogEvent.RUN_INFO:
                self._total = values["stats"]["total"]
                return False
            case LogEvent.JOB_INFO:
                self._jobs[values["jobid"]] = values["rule_name"], values["log"]
                number = list(self._jobs).index(values["jobid"]) + 1
                say(f"[{number}/{self._total}] {values['rule_msg'] or values['rule_name']}")
                return False
            case LogEvent.JOB_FINISHED:
                rule, logs = self._jobs.get(values["job_id"], ("", []))
                if rule not in _VERBOSE_RULES:
                    self._show(rule, logs)
                return False
            case LogEvent.PROGRESS:
                return self._cluster
            case LogEvent.JOB_STARTED | LogEvent.RESOURCES_INFO:
                return False
            case LogEvent.JOB_ERROR:
                rule, logs = values["rule_name"], values["log"]
                shown = self._show(rule, logs)
                if self._killed or not shown:
                    silent = "" if shown else " without a message"
                    where = f" (log: {', '.join(logs)})" if logs else ""
                    say(f"cxrbench: the command of rule {rule} {self._ending}{silent}{where}")
                return False
            case LogEvent.ERROR if "CalledProcessError" in text:
                self._ending, self._killed = _ending(text)
                return False
            case LogEvent.ERROR if message := _in_our_words(text):
                say(f"cxrbench: {message}")
                return False
        if text.startswith(_STOPPING) and not self._cluster:
            self._stop()
            return False
        return not text.startswith(_NOISE)

    def _stop(self) -> None:
        """Stop the running commands, once: Snakemake would wait hours for a training."""
        if not self._stopping:
            self._stopping = True
            say("cxrbench: asked to stop; what runs is stopped, and a training saves its state")
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    process.terminate()

    def _show(self, rule: str, logs: list[str]) -> bool:
        """Print the logs of a rule; return whether there was anything to show, here or before."""
        texts = []
        for log in logs:
            with suppress(OSError):  # no log, no text
                texts.append(Path(re.sub(r" \(.*\)$", "", log)).read_text(errors="replace").strip())
        if self._cluster or rule != "train":  # here, it wrote to the terminal itself
            for text in filter(None, texts):
                say(text)
        return any(texts)


def _in_our_words(error: str) -> str | None:
    """The remedy for an error of Snakemake's own, or None for one that it explains itself."""
    if "LockException" in error:
        return running_build(Path.cwd())
    if match := re.search(r"\[Errno (\d+)\] [^:\n]+: '([^'\n]+)'", error):
        message = explained(OSError(int(match[1]), "", match[2]))
        return None if message is None else str(message)
    if match := re.search(r"^Write-protected output files.*?affected files:\s+(\S.*?)$", error, re.M | re.S):
        return f"{match[1]}: this may not be written; change its permissions or those of its folder"
    if match := re.search(r"No rule to produce (\S+)", error):
        return f"there is no file and no rule {match[1]}; `snakemake --list-rules` prints the rules"
    return None


def _ending(error: str) -> tuple[str, bool]:
    """The exit of a shell, from Snakemake's words about it, and whether a signal ended it."""
    if match := re.search(r"died with <Signals\.(\w+)", error):
        return f"was killed by {match[1]}", True
    match = re.search(r"exit status (\d+)", error)
    code = int(match[1]) if match else 0
    if code > 128:
        return f"was killed by signal {code - 128}", True
    return f"ended with exit code {code}", False


def install_log_filter(logger: logging.Logger, cluster: bool, dry: Callable[[], bool]) -> None:
    """Put :class:`CommandLogFilter` before Snakemake's own filters of what reaches the terminal."""
    for handler in logger.handlers:
        if getattr(handler, "stream", None) in (sys.stderr, sys.stdout):
            handler.filters.insert(0, CommandLogFilter(cluster, dry))
