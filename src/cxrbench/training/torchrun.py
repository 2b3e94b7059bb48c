"""One process, or several under torchrun: how they start, and what it says of their end. Imports no torch.

Its own exit code is 1 whatever ended a process, and also after SIGTERM, which it passes on and follows with
SIGKILL thirty seconds later. How a process ended stands in the report that it prints last
(torch 2.9, torch/distributed/elastic/multiprocessing/errors/__init__.py).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from cxrbench.training.job import Job

_EXIT_CODE = re.compile(r"^ +exitcode +: (-\d+) \(pid: \d+\)$")
_HOST = re.compile(r"^( +host +: ).*$", re.MULTILINE)
_LAST_WORDS = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*"
    r"torch\.distributed\.elastic\.multiprocessing\.(?:api\.SignalException|errors\.ChildFailedError):.*\n?"
    r"(?:(=+)\n(?:.*\n)*?\1(?:\n|\Z))?",
    re.MULTILINE,
)


def launcher(job: Job) -> list[str]:
    """Python's words for one process, or torchrun's for several; the module's name comes after them."""
    if job.limits.processes == 1:
        return ["-m"]
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.limits.processes}", "-m"]


def environment(job: Job) -> dict[str, str]:
    """What the processes are told: their threads, and where the tools are that came with the interpreter."""
    threads = str(job.recipe.threads)
    # Neuron's compiler lies there, and the interpreter may have been called by its path.
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.pathsep.join(places)}


def killed(line: str) -> int | None:
    """-N in the line of torchrun's report that says that signal N ended a process, else None.

    Whom torchrun stopped because another had failed is not in its report.
    """
    found = _EXIT_CODE.match(line)
    return int(found[1]) if found else None


def without_last_words(log: str) -> str:
    """A log without torchrun's own tracebacks and report: what the processes said stands before them."""
    return _LAST_WORDS.sub("", log)


def without_host(log: str) -> str:
    """A log in whose report the machine has no name: on a cloud it is an address."""
    return _HOST.sub(r"\1<host>", log)
