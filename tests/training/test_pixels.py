"""What a network sees is the same on every platform, with any number of processes, resident or streamed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from cxrbench.study.config import Augmentation, Limits, Recipe

SCRIPT = Path(__file__).parent / "dump_pixels.py"


@pytest.fixture
def recipe() -> Recipe:
    """With all of the augmentation."""
    return Recipe(epochs=1, batch=64, augmentation=Augmentation(flip=0.5, shift=0.1, scale=0.1), threads=1)


def pixels(job, folder: Path) -> np.ndarray:
    """(processes, batches, images per process, height, width) of the first epoch."""
    folder.mkdir()
    (folder / "job.json").write_text(job.model_dump_json())
    count = job.limits.processes
    run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
    command = [sys.executable, *run, str(SCRIPT), str(folder / "job.json"), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return np.stack([np.load(folder / f"{rank}.npz")["images"][:, :, 0] for rank in range(count)])


@pytest.mark.slow
def test_pixels_do_not_depend_on_platform_processes_or_memory(make_job, tmp_path) -> None:
    one = pixels(make_job(), tmp_path / "one")[0]
    assert (pixels(make_job(limits=Limits(resident_gib=0)), tmp_path / "streamed")[0] == one).all()
    two = pixels(make_job(micro_batch=32, limits=Limits(processes=2)), tmp_path / "two")
    np.testing.assert_allclose(np.concatenate(two, axis=1), one, atol=1e-5)
    xla = pixels(make_job(platform="xla_cpu"), tmp_path / "xla")[0]
    np.testing.assert_allclose(xla, one, atol=1e-4)  # sums of products in another order
