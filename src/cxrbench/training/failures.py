"""What the last lines of a failed trainer mean, from the table of patterns in failures.toml."""

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


def _runtime_codes(names: str, numbers: str) -> str:
    """Match status codes of Neuron's runtime by name and, after a call that is no load, by number."""
    call = rf"(?:nrt_(?!load)\w+:?|execute the model) status=(?:{numbers})\b"
    return rf"\b(?P<name>NRT_(?:{names}))\b|(?P<call>{call})"


def _regex(entry: dict[str, Any]) -> re.Pattern[str]:
    """Return one regular expression for the lines and the status codes of an entry."""
    codes = [_runtime_codes(**entry["runtime"])] if "runtime" in entry else []
    return re.compile("|".join([*entry.get("lines", []), *codes]))


def _patterns(weight: str) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return the entries of failures.toml that have a weight, with their regular expressions."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["pattern"]
    return [(_regex(entry), entry) for entry in entries if entry.get("weight", "") == weight]


_BY_WEIGHT = _patterns("decisive"), _patterns(""), _patterns("weak")


def classify(log: str) -> Diagnosis | None:
    """Return the meaning of the weightiest known pattern in a trainer's log, the last of equals; or None."""
    for patterns in _BY_WEIGHT:
        for line in reversed(log.splitlines()):
            for regex, entry in patterns:
                if match := regex.search(line):
                    code = next(filter(None, match.groupdict().values()), None) or normalise(line)
                    return Diagnosis(entry.get("status"), entry["kind"], code, entry.get("remedy", ""))
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
