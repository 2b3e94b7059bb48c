"""Neuron's compiler as a supervised child: one graph in, an outcome out. It needs no Neuron device.

Source of the command: Neuron SDK, compiler/neuronx-cc/how-to-generate-neff ("any EC2 instance or on-premises
host"); issue 942: neuronx-cc alone suffices. The compiler runs on PATH or in a container without network.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.evidence.compiled import Limit, Neff, Outcome, Target
from cxrbench.evidence.record import Failure, without_folders
from cxrbench.neuron.operators import names_in
from cxrbench.training.endings import OWN_SIGNALS, classify, error_line, normalise
from cxrbench.training.machine import out_of_memory_kills
from cxrbench.training.process import adopted

COMMAND = "neuronx-cc"
_IMAGE = "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04"  # of Neuron's public registry
COMPILE_LOG, NEFF = "compile.log", "graph.neff"
_OWN_LOG = "log-neuron-cc.txt"  # which it writes into its working folder (neuronx-cc CLI reference)
_LOG_END = 200_000  # bytes kept of each end of it
_VERSION = re.compile(r"\bversion (\d+(?:\.\d+)+(?:[+-][\w.]+)?)")
_ANSWER, _PAUSE = 120.0, 0.1  # seconds for short commands, between samples
_NOT_STARTED = (125, 126, 127)  # exit codes of docker and podman themselves
_INSIDE = "/compile-here"  # the graph's folder in a container


class NotEvidence(UserError):
    """A machine fault: nothing is known about the graph."""


@dataclass(frozen=True)
class CompilerLimits:
    """What a compilation may take: hours, and GiB of memory of all its processes (None: no limit)."""

    hours: float
    gib: float | None = None


@dataclass(frozen=True)
class NeuronCompiler:
    """How neuronx-cc is called (``words``), its version, and the container's image, if any."""

    words: tuple[str, ...]
    version: str
    container: str | None = None

    @classmethod
    def find(cls, container: str | None = None, image: str | None = None) -> NeuronCompiler:
        """The compiler on PATH, or that of ``image`` run by ``container`` (docker or podman)."""
        words: tuple[str, ...] = (COMMAND,)
        if container:
            if not image:
                raise UserError(f"--container needs --image; give it {_IMAGE} behind the registry's name")
            # Shared memory is 64 MB by default, which is reported to be too little for the compiler.
            words = (container, "run", "--network=none", "--shm-size=8g", image, COMMAND)
        if shutil.which(words[0]) is None:
            advice = "install it as docs/neuron.md says, or name --container"
            remedy = f"install {container}" if container else advice
            raise UserError(f"{words[0]} is not on PATH here; {remedy}")
        if container and image and (looked := _answer([container, "image", "inspect", image])).returncode:
            reason = error_line(looked.stderr.decode(errors="replace"))
            raise UserError(f"{image} is not here ({reason}); pull it: {container} pull {image}")
        compiler = cls(words, "", image if container else None)
        return replace(compiler, version=_version(compiler._asking()))

    def _asking(self) -> tuple[str, ...]:
        """The words before a question: its container is removed by itself."""
        return (*self.words[:2], "--rm", *self.words[2:]) if self.container else self.words

    def operators(self) -> str:
        """The operators that XLA may send, from ``list-operators``; UserError for none."""
        call = [*self._asking(), "list-operators", "--framework", "XLA"]
        done = _answer(call)
        answer = done.stdout.decode(errors="replace")
        if done.returncode or not names_in(answer):
            reason = normalise(error_line((done.stdout + done.stderr).decode(errors="replace")))
            ending = f"ended with {done.returncode} and no operators ({reason})"
            raise UserError(f"`{' '.join(call)}` {ending}; run it manually: no outcome means much without it")
        return answer

    def call(
        self, graph: Path, target: Target, flags: Sequence[str], limits: CompilerLimits, name: str
    ) -> list[str]:
        """The command line that compiles ``graph`` into ``NEFF`` beside it."""
        if not self.container:
            return [*self.words, *_arguments(graph, graph.with_name(NEFF), target, flags)]
        runner, run, *options, image, command = self.words
        memory = [f"--memory={limits.gib:g}g", f"--memory-swap={limits.gib:g}g"] if limits.gib else []
        mounted = ["--name", name, "--volume", f"{graph.parent.absolute()}:{_INSIDE}", "--workdir", _INSIDE]
        inside = _arguments(Path(_INSIDE, graph.name), Path(_INSIDE, NEFF), target, flags)
        return [runner, run, *options, *memory, *mounted, image, command, *inside]


def _answer(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """The output of a short command; UserError when it does not end in time."""
    try:
        return subprocess.run(command, capture_output=True, timeout=_ANSWER, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{' '.join(command)}` did not respond ({error}); run it manually") from None


def _version(words: Sequence[str]) -> str:
    """The version that ``words --version`` prints; UserError when it prints none."""
    done = _answer(call := [*words, "--version"])
    answer = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode or not (match := _VERSION.search(answer)):
        ending = f"ended with {done.returncode} and no version ({normalise(error_line(answer))})"
        raise UserError(f"`{' '.join(call)}` {ending}; run it manually")
    return match[1]


def _arguments(graph: Path, neff: Path, target: Target, flags: Sequence[str]) -> list[str]:
    files = ["--framework", "XLA", "--target", target, "--output", str(neff)]
    return ["compile", str(graph), *files, *flags, "--verbose=info"]  # its table of device memory too


@dataclass(frozen=True)
class CompilerEnding:
    """How a compiler ended: its return code, seconds, the peak of its memory, and the limit that it exceeded.

    ``oom_killed``: the kernel's OOM killer ended a process; ``container``: what ran it, if any; ``log``: as
    :func:`without_folders`; ``neff``: None where it wrote none.
    """

    returncode: int
    seconds: float
    peak_mib: float | None
    stopped: Limit | None
    oom_killed: bool
    container: str | None
    log: str
    neff: Neff | None


def run_compiler(
    command: list[str], work: Path, limits: CompilerLimits, container: str | None
) -> CompilerEnding:
    """Run :meth:`NeuronCompiler.call` in ``work`` until it ends or exceeds a limit, and kill what it started.

    Its output is kept in ``COMPILE_LOG``; ``container``: the name of the one that it runs in, if any.
    """
    began, kills, peak = time.monotonic(), out_of_memory_kills(), 0.0
    stopped: Limit | None = None
    oom_killed = False
    with (work / COMPILE_LOG).open("wb") as log, adopted() as kill:
        child = subprocess.Popen(
            command, cwd=work, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while not stopped:
                try:
                    child.wait(_PAUSE)
                    break
                except subprocess.TimeoutExpired:
                    peak = max(peak, _resident_mib(child.pid))
                if time.monotonic() - began > limits.hours * 3600:
                    stopped = "hours"
                elif not container and limits.gib and peak > limits.gib * 1024:
                    stopped = "memory"
        finally:  # at Ctrl-C too: the compiler is in a session of its own
            if container:
                oom_killed = _removed(command[0], container)
            kill()
            child.wait()
    seconds = time.monotonic() - began
    if oom_killed and limits.gib and child.returncode and not stopped:
        stopped = "memory"
    oom_killed = oom_killed or out_of_memory_kills() > kills
    text = without_folders(_whole_log(work))
    (work / COMPILE_LOG).write_text(text, encoding="utf-8", newline="\n")
    return CompilerEnding(
        returncode=child.returncode,
        seconds=seconds,
        peak_mib=None if container else round(peak, 1),
        stopped=stopped,
        oom_killed=oom_killed,
        container=command[0] if container else None,
        log=text,
        neff=_neff(work / NEFF),
    )


def _whole_log(work: Path) -> bytes:
    """The output of the compiler, and the log that it wrote beside it; of a large one both ends."""
    printed, own = (work / COMPILE_LOG).read_bytes(), work / _OWN_LOG
    if own.is_file():
        written = own.read_bytes()
        if len(written) > 2 * _LOG_END:
            written = written[:_LOG_END] + b"\n[...]\n" + written[-_LOG_END:]
        printed = written + f"\n== {_OWN_LOG} above, what was printed below ==\n".encode() + printed
    return printed


def _removed(runner: str, container: str) -> bool:
    """Kill and remove a container; return whether the OOM killer ended a process of it."""
    asked = [runner, "inspect", "--format", "{{.State.OOMKilled}}", container]
    answers = []
    for command in (asked, [runner, "rm", "--force", container]):
        with suppress(UserError):
            answers.append(_answer(command).stdout.strip())
    return answers[:1] == [b"true"]


def _resident_mib(pid: int) -> float:
    """The resident memory of a process and its descendants; 0 for those that have ended."""
    total = 0
    with suppress(psutil.Error):
        family = psutil.Process(pid)
        for process in (family, *family.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return total / 2**20


def _neff(path: Path) -> Neff | None:
    size = path.stat().st_size if path.is_file() else 0
    return Neff(bytes=size, sha256=sha256_file(path)) if size else None


def outcome_of(ending: CompilerEnding, limits: CompilerLimits, name: str) -> tuple[Outcome, Failure | None]:
    """The outcome of a compilation and why it failed; NotEvidence for a machine fault."""
    if ending.returncode == 0 and ending.neff and not ending.stopped:
        return "ok", None
    status: Outcome = "compile_failed"
    if ending.stopped == "hours":
        status, kind, fingerprint = "timed_out", f"stopped after {limits.hours:g} h", "time limit"
    elif ending.stopped:
        status, kind = "out_of_memory", "above the memory limit (host)"
        fingerprint = f"{limits.gib:g} GiB"
    elif fault := _machine_fault(ending):
        raise NotEvidence(f"{name}: {fault}")
    elif code := classify(ending.log):
        kind, fingerprint = code.kind, code.fingerprint
        status = code.status if code.status in ("out_of_memory", "crashed") else status
    else:
        ended = "ended without a NEFF" if ending.returncode == 0 else f"ended with {ending.returncode}"
        kind, fingerprint = f"the compiler {ended}", normalise(error_line(ending.log))
    return status, Failure.of(kind, fingerprint, ending.returncode, ending.log)


def _machine_fault(ending: CompilerEnding) -> str | None:
    """The way in which the machine, and not the graph, ended the compiler, or None."""
    again = "run this again, on a larger machine"
    killed_by = signal.Signals(-ending.returncode).name if ending.returncode < 0 else None
    if ending.oom_killed:
        return f"the compiler was killed by the kernel's OOM killer; {again}"
    if ending.returncode == 137 or (killed_by and killed_by not in OWN_SIGNALS):
        return f"the compiler was killed by {killed_by or 'SIGKILL'}; {again}"
    if ending.container and ending.returncode in _NOT_STARTED:
        reason = normalise(error_line(ending.log))
        return f"{ending.container} could not run the image ({reason}); run it manually"
    if (code := classify(ending.log)) and code.remedy:
        remedy = again if code.status == "out_of_memory" else code.remedy
        return f"{code.kind}: {code.fingerprint}; {remedy}"
    return None
