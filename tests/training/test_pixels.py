"""What a network sees and drops is decided by the seed: on every platform, and when resumed."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import QUICK_XLA, pack_phantoms, ran
from cxrbench.study.config import Augmentation, Limits, Recipe

SCRIPT = Path(__file__).parent / "own_process.py"
AUGMENTED = Recipe(epochs=1, batch=64, augmentation=Augmentation(flip=0.5, shift=0.1, scale=0.1), threads=1)
DROPPED = Recipe(epochs=2, batch=64, averaging=0.9, drop_path=0.5)  # two epochs of four steps


def run(what: str, job, folder: Path) -> list[dict[str, np.ndarray]]:
    """What each process of the script writes."""
    folder.mkdir()
    (folder / "job.json").write_text(job.model_dump_json())
    count = job.limits.processes
    many = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
    words = (*many, SCRIPT, what, folder / "job.json", folder)
    done = ran(sys.executable, *words, env=os.environ | {"XLA_FLAGS": QUICK_XLA})
    assert done.returncode == 0, done.stderr
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(count)]


@pytest.mark.slow
def test_pixels_do_not_depend_on_platform_processes_or_memory(make_job, tmp_path) -> None:
    def pixels(name: str, **changes: object) -> list[np.ndarray]:
        written = run("pixels", make_job(recipe=AUGMENTED, **changes), tmp_path / name)
        return [of_process["images"][:, :, 0] for of_process in written]

    (one,) = pixels("one")
    assert (pixels("streamed", limits=Limits(resident_gib=0))[0] == one).all()
    two = pixels("two", micro_batch=32, limits=Limits(processes=2))
    np.testing.assert_allclose(np.concatenate(two, axis=1), one, atol=1e-5)
    (xla,) = pixels("xla", platform="xla_cpu")
    np.testing.assert_allclose(xla, one, atol=1e-4)  # sums of products in another order


@pytest.mark.parametrize("platform", ["cpu", "xla_cpu"])
@pytest.mark.slow
def test_the_seed_decides_what_is_dropped(platform: str, make_job, tmp_path: Path) -> None:
    """On few phantoms: XLA's CPU device is slow, and nothing is learnt here."""
    packed = pack_phantoms(tmp_path / "packed", {"train": 256, "val": 280, "test": 280})
    job = make_job(platform=platform, recipe=DROPPED, packed=packed)
    (scores,) = run("drop_paths", job, tmp_path / "out")
    assert (scores["resumed"] == scores["whole"]).all()
    assert (scores["often_read"] == scores["whole"]).all()  # of the clock, which waits for the device
    assert (scores["other_draws"] != scores["whole"]).any()
    assert scores["compiles"] == (3 if platform == "xla_cpu" else 0)  # two of the step, one of evaluation
