"""What a failed trainer's last words mean: a table of patterns, each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrbench.evidence import Phase, Status


@dataclass(frozen=True)
class Pattern:
    """Lines that ``regex`` finds mean ``status``; a group named ``code`` is the fingerprint."""

    status: Status
    kind: str
    regex: re.Pattern[str]
    source: str


def _pattern(status: Status, kind: str, regex: str, source: str) -> Pattern:
    return Pattern(status, kind, re.compile(regex), source)


PATTERNS = (
    _pattern(
        "out_of_memory",
        "out of memory (GPU)",
        r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory",
        "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
    ),
    _pattern(
        "out_of_memory",
        "out of memory (host)",
        r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|\bMemoryError\b"
        r"|Cannot allocate memory",
        "PyTorch, c10/core/impl/alloc_cpu.cpp; libstdc++; CPython; errno ENOMEM",
    ),
    _pattern(
        "load_failed",
        "network cannot be built for this input",
        r"AssertionError: (Input (image )?(height|width|size).*|Image (height|width|size).*)",
        "timm, layers/patch_embed.py",
    ),
)


def classify(log: str) -> tuple[Status, str, str] | None:
    """(status, kind, fingerprint) of the last known pattern in a trainer's log, or None."""
    for line in reversed(log.splitlines()):
        for pattern in PATTERNS:
            if match := pattern.regex.search(line):
                code = match.groupdict().get("code")
                return pattern.status, pattern.kind, code or normalise(line)
    return None


def unknown(log: str, phase: Phase, signal: str | None) -> tuple[Status, str, str]:
    """(status, kind, fingerprint) of a failure that no pattern knows."""
    kind = f"killed by {signal} in phase {phase}" if signal else f"error in phase {phase}"
    return "crashed", kind, signal or first_error_line(log)


def first_error_line(log: str) -> str:
    """The line that names the exception of the last traceback, else the last line; normalised."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Interrupt)\b", line)]
    return normalise((errors or lines or ["no output"])[-1])


def normalise(line: str) -> str:
    """A line without what changes from run to run: addresses, numbers, paths; at most 160 characters."""
    line = re.sub(r"0x[0-9a-fA-F]+", "0x", line.strip())
    line = re.sub(r"(/[\w.\-+]+)+/", "", line)
    return re.sub(r"\d+(\.\d+)?", "#", line)[:160]
