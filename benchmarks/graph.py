"""How long Snakemake takes to think about a large study: a dry run, and a build with nothing to do.

What is timed is the graph and not the work, so the trainer is a stand-in: the files of all rules are empty
ones, made here. The graph itself is this checkout's, read in a temporary folder.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cxrbench.study.errors import UserError
from cxrbench.study.files import write_json
from cxrbench.training.host import measured_now
from cxrbench.training.plan import ARCHITECTURES

SEEDS = 10
_LINKED = ("data", "docs", "environment.yml", "README.md")  # what rules read from the checkout
_COUNT = re.compile(r"^train\s+(\d+)$", re.M)


def bench_graph(cells: int, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of a dry run and of a build with nothing to do, for a study of ``cells`` cells.

    ``root`` is a checkout. Raises UserError when it is not, or when Snakemake fails.
    """
    if not (root / "Snakefile").exists():
        raise UserError(
            f"{root}: there is no Snakefile here; run this command in a checkout of the repository"
        )
    with study_of(cells, root) as folder:
        say(f"dry run of {cells} cells")
        dry, dry_cpu, text = _timed(folder, "--dry-run")
        found = _COUNT.search(text)
        trained = int(found[1]) if found else 0
        say("making the files of a finished build")
        _finish(folder)
        say("a build with nothing to do")
        idle, idle_cpu, text = _timed(folder)
        if _COUNT.search(text):
            raise UserError(f"the graph trains again although nothing changed:\n{text[-2000:]}")
    return {
        **measured_now(),
        "cells": cells,
        "train_jobs": trained,
        "dry_run_seconds": dry,
        "nothing_to_do_seconds": idle,
        "dry_run_cpu_seconds": dry_cpu,
        "nothing_to_do_cpu_seconds": idle_cpu,
        "dry_run_ms_per_cell": 1000 * dry / cells,
        "nothing_to_do_ms_per_cell": 1000 * idle / cells,
    }


@contextmanager
def study_of(cells: int, root: Path) -> Iterator[Path]:
    """A temporary folder in which the graph of ``root`` has ``cells`` cells, all to be trained."""
    known = ARCHITECTURES.read_text(encoding="utf-8").split()  # the graph refuses other names
    if cells > SEEDS * len(known):
        raise UserError(f"{cells} cells: a study of this benchmark has at most {SEEDS * len(known)}")
    with tempfile.TemporaryDirectory(prefix="cxrbench-graph-") as name:
        folder = Path(name)
        for linked in _LINKED:
            (folder / linked).symlink_to(root.resolve() / linked)
        for made in ("config", "paper"):  # the graph looks for its sources there
            (folder / made).mkdir()
        (folder / "paper/main.tex").write_text("", encoding="utf-8")
        networks = known[: -(-cells // SEEDS)]
        block = {"dataset": "phantom", "platforms": ["cpu"], "seeds": list(range(SEEDS))}
        blocks = [{**block, "architectures": networks[: cells // SEEDS]}] if cells >= SEEDS else []
        if cells % SEEDS:
            blocks.append({**block, "architectures": networks[-1:], "seeds": list(range(cells % SEEDS))})
        study = {
            "pathvars": {"packed": "packed"},
            "datasets": {"phantom": {"source": "phantom", "pixels": 32, "recipe": "any"}},
            "recipes": {"any": {"epochs": 1, "batch": 64}},
            "cells": blocks,
            "run": ["*"],
        }
        write_json(folder / "config/config.yaml", study)  # JSON is YAML
        # Included rules name their paths relative to the working folder, so the Snakefile may lie elsewhere.
        (folder / "checkout").symlink_to(root.resolve())
        yield folder


def _snakemake(folder: Path, *words: str) -> str:
    """What Snakemake says, called as the Makefile calls it."""
    checkout = (folder / "checkout").resolve()
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(checkout / "Snakefile"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"snakemake {' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def _timed(folder: Path, *words: str) -> tuple[float, float, str]:
    """Wall seconds, processor seconds (which a busy machine changes less), and what Snakemake said."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    text = _snakemake(folder, *words)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, text


def _finish(folder: Path) -> None:
    """Make every output of the graph as an empty file, and let Snakemake take it for its own work."""
    rows = [line.split("\t") for line in _snakemake(folder, "--summary").splitlines()]
    header = next(number for number, row in enumerate(rows) if row[0] == "output_file")
    for name, *_ in rows[header + 1 :]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _snakemake(folder, "--touch", "--quiet", "all")
