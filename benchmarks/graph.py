"""How long Snakemake takes to plan a large study, in a folder where all outputs are empty files."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cxrbench.study.errors import UserError
from cxrbench.study.files import write_json, write_text
from cxrbench.training.host import measured_now
from cxrbench.training.plan import ARCHITECTURES

SEEDS = 10
_COUNT = re.compile(r"^train\s+(\d+)$", re.M)


def bench_graph(cells: int, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the seconds of a dry run and of an idle build of ``cells`` cells; ``root`` is a checkout."""
    if not (root / "Snakefile").exists():
        raise UserError(f"{root}: there is no Snakefile here; run this in a checkout of the repository")
    row: dict[str, Any] = {**measured_now(), "cells": cells}
    with tempfile.TemporaryDirectory(prefix="cxrbench-graph-") as name:
        folder = Path(name)
        _write_study(folder, cells, root.resolve())
        say(f"dry run of {cells} cells")
        found = _COUNT.search(_timed(row, "dry_run", folder, "--dry-run"))
        row["train_jobs"] = int(found[1]) if found else 0
        say("making the files of a finished build")
        _finish(folder)
        say("a build with nothing to do")
        if "] Training " in (text := _timed(row, "nothing_to_do", folder)):
            raise UserError(f"the graph trains again although nothing changed:\n{text[-2000:]}")
    return row


def _write_study(folder: Path, cells: int, root: Path) -> None:
    """Write a study of ``cells`` cells, all to be trained, and link what rules read from the checkout."""
    known = ARCHITECTURES.read_text(encoding="utf-8").split()  # the graph refuses other names
    if cells > SEEDS * len(known):
        raise UserError(f"{cells} cells: a study of this benchmark has at most {SEEDS * len(known)}")
    # Included rules name their paths relative to the working folder, so the Snakefile may lie elsewhere.
    for linked in ("data", "docs", "environment.yml", "README.md", "Snakefile"):
        (folder / linked).symlink_to(root / linked)
    write_text(folder / "paper/main.tex", "")  # the graph looks for its sources there
    block, starts = {"dataset": "phantom", "platforms": ["cpu"]}, range(0, cells, SEEDS)
    study = {
        "pathvars": {"packed": "packed"},
        "datasets": {"phantom": {"source": "phantom", "pixels": 32, "recipe": "any"}},
        "recipes": {"any": {"epochs": 1, "batch": 64}},
        "cells": [
            block | {"architectures": [name], "seeds": list(range(min(SEEDS, cells - start)))}
            for name, start in zip(known, starts, strict=False)
        ],
        "run": ["*"],
    }
    write_json(folder / "config/config.yaml", study)  # JSON is YAML


def _snakemake(folder: Path, *words: str) -> str:
    """Return the output of Snakemake, called as the Makefile calls it."""
    snakefile = str((folder / "Snakefile").resolve())
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakefile, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"snakemake {' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def _timed(row: dict[str, Any], name: str, folder: Path, *words: str) -> str:
    """Run Snakemake; add wall and processor seconds (which a busy machine changes less) to ``row``."""
    before = os.times()
    text = _snakemake(folder, *words)
    _, _, user, system, seconds = np.subtract(os.times(), before).tolist()
    row |= {f"{name}_seconds": seconds, f"{name}_cpu_seconds": user + system}
    row[f"{name}_ms_per_cell"] = 1000 * seconds / row["cells"]
    return text


def _finish(folder: Path) -> None:
    """Make every output of the graph as an empty file that Snakemake takes for its own."""
    summary = _snakemake(folder, "--summary").partition("output_file")[2]
    for line in summary.splitlines()[1:]:
        path = folder / line.partition("\t")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _snakemake(folder, "--touch", "--quiet", "all")
