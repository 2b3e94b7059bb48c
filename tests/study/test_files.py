"""A final name never stands on half-written content."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT, cxrbench
from cxrbench.study.errors import UserError
from cxrbench.study.files import sha256_file, write_text, written_aside


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), written_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(tmp_path / "a") == expected


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of two megabytes, where one may mount it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let one mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_an_error_that_names_the_file(small_disk: Path) -> None:
    with pytest.raises(UserError, match=r"big: the disk is full"), written_aside(small_disk / "big") as aside:
        aside.write_bytes(bytes(4 << 20))
    assert list(small_disk.iterdir()) == []


def test_a_full_disk_while_packing_leaves_nothing_half_written(small_disk: Path) -> None:
    out = small_disk / "phantom-64px/manifest.json"
    done = cxrbench("data", "pack", "phantom-64px", "--study", ROOT / "config/config.yaml", "--out", out)
    assert done.returncode == 1
    assert "the disk is full" in done.stderr and "Traceback" not in done.stderr
    assert list(small_disk.rglob("*")) == []
