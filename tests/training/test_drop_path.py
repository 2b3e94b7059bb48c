"""What stochastic depth drops is decided by the seed, on every platform, and survives an interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import QUICK_XLA, ROOT, pack_phantoms
from cxrbench.study.config import Recipe

SCRIPT = Path(__file__).parent / "drop_paths.py"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few phantoms: XLA's CPU device is slow, and nothing is learnt here."""
    return pack_phantoms(tmp_path_factory.mktemp("packed"), {"train": 256, "val": 280, "test": 280})


@pytest.fixture
def recipe() -> Recipe:
    """Two epochs of four steps."""
    return Recipe(epochs=2, batch=64, averaging=0.9, drop_path=0.5)


@pytest.mark.parametrize("platform", ["cpu", "xla_cpu"])
@pytest.mark.slow
def test_the_seed_decides_what_is_dropped(platform: str, make_job, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(make_job(platform=platform).model_dump_json())
    command = [sys.executable, str(SCRIPT), str(tmp_path / "job.json"), str(tmp_path / "out.npz")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "XLA_FLAGS": QUICK_XLA}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scores = np.load(tmp_path / "out.npz")
    assert (scores["resumed"] == scores["whole"]).all()
    assert (scores["often_read"] == scores["whole"]).all()  # of the clock, which waits for the device
    assert (scores["other_draws"] != scores["whole"]).any()
    assert scores["compiles"] == (3 if platform == "xla_cpu" else 0)  # two of the step, one of evaluation
