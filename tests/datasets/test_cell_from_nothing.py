"""A cell from nothing to a verdict: `make cell FETCH=1` in a clone, with an archive on a bad server here."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from bad_server import BadServer, cut, server, status, write_registry
from tarballs import member, tar, write_tar

from conftest import TINY, clone_of_the_tree, keep_recorded, must_work, ran
from cxrbench.evidence.record import read_record

__all__ = ["server"]
pytestmark = pytest.mark.slow
ARCHIVE = "images_002.tar.gz"
CELL = f"originals-64px/{TINY}/cpu/seed0"
# By patient, as a split has to be.
PARTS = {"00001385": "val", "00001458": "test", "00001485": "test", "00001543": "test", "00001549": "val"}


@pytest.mark.fault(
    "a contribution's download ends at 60 %, and the server is gone", "a message; later it goes on from there"
)
def test_a_contribution_goes_on_where_the_connection_was_lost(clone: Path, server: BadServer) -> None:
    size = len(server.files[ARCHIVE])
    server.faults[ARCHIVE] = [cut(size * 6 // 10), status(410)]
    words = (sys.executable, "-m", "cxrbench", "contribute", CELL, "--fetch", "--bench-minutes", "0")
    how = {"cwd": clone, "env": os.environ | {"PYTHONPATH": f"{clone}/src", "CXRBENCH_COMMIT": "0" * 40}}
    lost = ran(*words, **how)
    assert lost.returncode == 1 and "Traceback" not in lost.stderr, lost.stderr
    assert f"{ARCHIVE}: no source had the file" in lost.stderr
    assert not (clone / "results/runs").exists() and not list(clone.glob("results/contribution-*"))
    server.faults.clear()
    done = ran(*words, **how)
    assert done.returncode == 0, done.stderr[-3000:]
    assert server.requests[-1] == (ARCHIVE, size * 6 // 10) and server.sent == size
    assert len(list(clone.glob("results/contribution-*.tar.gz"))) == 1


@pytest.fixture
def clone(tmp_path: Path, server: BadServer, originals: list[Path]) -> Path:
    """A clone whose study is one cell on sixteen of NIH's originals, in an archive on a server here."""
    folder = clone_of_the_tree(tmp_path / "clone")
    keep_recorded(folder, "phantom-32px/resnet18/cpu/seed0")
    members = [member(f"images/{path.name}", path.read_bytes()) for path in originals]
    server.files[ARCHIVE] = write_tar(tmp_path / ARCHIVE, tar(members)).read_bytes()
    write_registry(folder / "data/registry.csv", server, dataset="nih")
    rows = "".join(f"{path.name},{PARTS.get(path.name[:8], 'train')}\n" for path in originals)
    (folder / "config/split.csv").write_text(f"image,split\n{rows}")
    dataset = {"source": "nih", "pixels": 64, "recipe": "r", "folder": "data/raw/originals"}
    dataset |= {"archives": ARCHIVE, "reduced": "opencv-bilinear-256-128", "split": "config/split.csv"}
    cells = {"dataset": "originals-64px", "architectures": [TINY], "platforms": ["cpu"], "seeds": [0]}
    recipe = {"epochs": 1, "batch": 4, "averaging": 0.5}
    study = {"datasets": {"originals-64px": dataset}, "recipes": {"r": recipe}, "cells": [cells]}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(study))
    return folder


def made(clone: Path, *words: str):
    """Run `make cell` as a user does, in the environment of these tests."""
    stamp = f"{sys.prefix}/.cxrbench-full"  # the environment is not installed again
    names = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return ran(
        "make", "cell", f"CELL={CELL}", f"VENV={sys.prefix}", "-o", stamp, *words, cwd=clone, env=names
    )


@pytest.mark.fault("`make cell FETCH=1` with nothing here, over breaks", "images, training, and a verdict")
def test_a_cell_is_fetched_trained_and_compared_by_one_command(clone: Path, server: BadServer) -> None:
    size = len(server.files[ARCHIVE])
    refused = made(clone)
    assert refused.returncode != 0 and f"make cell CELL={CELL} FETCH=1" in refused.stderr
    assert server.requests == []
    server.faults[ARCHIVE] = [cut(size // 2)]
    first = made(clone, "FETCH=1")
    assert first.returncode == 0, first.stderr[-3000:]
    assert f"{CELL}: no score was judged" in first.stdout and server.sent == size
    assert read_record(clone / "results/runs" / CELL).dataset.images == {"train": 10, "val": 3, "test": 3}
    must_work("record", CELL, cwd=clone)
    for place in ("results", "data/packed", "data/raw"):
        shutil.rmtree(clone / place)
    second = made(clone, "FETCH=1", "DISCARD=1")
    assert second.returncode == 0, second.stderr[-3000:]
    assert "are those of the recorded cells" in second.stderr
    assert f"{CELL}: inside the tolerance: the predictions are equal to the byte" in second.stdout
    assert not (clone / "data/raw/originals" / ARCHIVE).exists()
