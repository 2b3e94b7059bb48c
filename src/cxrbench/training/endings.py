"""How a start of the trainer ended, and what its log says of why.

Imports no torch.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from cxrbench.evidence.record import Status

OWN_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}  # all others come from outside


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
    """The meaning of the weightiest known pattern in a trainer's log, the last of equals; or None."""
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
