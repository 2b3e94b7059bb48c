"""One cell to train, and how; its folder of work.

Imports no torch.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cxrbench.common.files import locked, write_text
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.names import Cell

PRECOMPILED = "precompile.json"  # in the work folder: seconds, graphs, succeeded, failed
WEIGHTS = "weights.safetensors"  # in the work folder, until they are kept
CRASHED = "crashed.json"  # in a work folder that is kept for inspection; the next training starts anew


class Job(BaseModel):
    """One cell to train, and how."""

    model_config = ConfigDict(frozen=True)

    dataset: str
    architecture: str
    platform: str
    seed: int
    recipe: Recipe
    limits: Limits
    packed: Path
    work: Path  # checkpoints, and scratch files of the run
    micro_batch: int  # images per forward pass of one process
    weights: Path | None = None  # where those that are scored are kept; none: nowhere
    without: dict[str, str] = {}  # what the platform leaves out, with the reason why an earlier start failed

    @property
    def checkpoints(self) -> Path:
        """Where the trainer saves its state."""
        return self.work / "checkpoints"

    @property
    def saved(self) -> int:
        """The optimizer steps of the newest checkpoint; -1 without one."""
        return next((steps for steps, _ in checkpoints(self.checkpoints)), -1)

    @property
    def cell(self) -> Cell:
        """The cell that this job trains."""
        return Cell(self.dataset, self.architecture, self.platform, self.seed)

    def command(self, *options: str) -> list[str]:
        """Write this job to its work folder and return the command that trains it."""
        path = self.work / "job.json"
        write_text(path, self.model_dump_json(indent=1))
        return [sys.executable, "-m", "cxrbench.training.child", str(path), *options]

    def environment(self) -> dict[str, str]:
        """The trainer's number of threads, and a PATH with the tools beside the interpreter."""
        threads = str(self.recipe.threads)
        # Neuron's compiler lies there, and the interpreter may have been called by its path.
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.pathsep.join(places)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the work folder and clear what a recorded crash left; UserError names any other holder."""
        self.work.mkdir(parents=True, exist_ok=True)
        with locked(self.work.with_name(f"{self.work.name}.lock"), self.cell, "training it"):
            if (self.work / CRASHED).exists():
                shutil.rmtree(self.work)
                self.work.mkdir()
            yield


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(optimizer steps, file) of the checkpoints in ``folder``, newest first."""
    paths = folder.glob(f"step{'[0-9]' * 9}-*.pt")
    return [(int(path.name[4:13]), path) for path in sorted(paths, reverse=True)]
