"""What the last lines of a failed trainer mean, from the table of patterns in failures.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from cxrbench.evidence.record import Phase, Status


class Diagnosis(NamedTuple):
    """The meaning of a log; without a status it is the machine's trouble and no result."""

    status: Status | None
    kind: str
    fingerprint: str
    remedy: str = ""  # what to do where the machine is the cause: not the network, nor the platform


class Pattern(NamedTuple):
    """An entry of failures.toml, which says what the fields mean."""

    status: Status | None
    kind: str
    regex: str
    source: str
    remedy: str
    weak: bool


def _pattern(entry: dict[str, Any]) -> Pattern:
    status, remedy, weak = entry.get("status"), entry.get("remedy", ""), entry.get("weak", False)
    regex = _runtime_codes(**entry["runtime"]) if "runtime" in entry else "|".join(entry["lines"])
    return Pattern(status, entry["kind"], regex, entry["source"], remedy, weak)


def _runtime_codes(names: str, numbers: str) -> str:
    """Match status codes of Neuron's runtime by name and, after a call that is no load, by number."""
    call = rf"(?:nrt_(?!load)\w+:?|execute the model) status=(?:{numbers})\b"
    return rf"\b(?P<name>NRT_(?:{names}))\b|(?P<call>{call})"


_TABLE = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
PATTERNS = tuple(map(_pattern, tomllib.loads(_TABLE)["pattern"]))


def classify(log: str) -> Diagnosis | None:
    """Return the meaning of the last known pattern in a trainer's log, or None."""
    for weak in (False, True):
        patterns = [pattern for pattern in PATTERNS if pattern.weak == weak]
        for line in reversed(log.splitlines()):
            for pattern in patterns:
                if match := re.search(pattern.regex, line):
                    code = next(filter(None, match.groupdict().values()), None)
                    return Diagnosis(pattern.status, pattern.kind, code or normalise(line), pattern.remedy)
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
