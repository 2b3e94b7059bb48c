"""A final name never stands on half-written content."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cxrbench.study.errors import UserError
from cxrbench.study.files import write_text, written_aside


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), written_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """On a file system of two megabytes, where it may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a tmpfs here")
    try:
        with (
            pytest.raises(UserError, match=r"big: the disk is full"),
            written_aside(tmp_path / "big") as aside,
        ):
            aside.write_bytes(bytes(4 << 20))
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
