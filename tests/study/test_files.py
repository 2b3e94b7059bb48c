"""A final name never stands on half-written content, and what is written is read again."""

import os
import threading
from pathlib import Path

import pandas as pd
import pytest

from cxrbench.common.errors import UserError
from cxrbench.common.files import read_csv, write_csv, write_text, written_aside


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), written_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (target := tmp_path / "a.txt").write_text("old")
    for link, name in ((tmp_path / "link", target), (tmp_path / "new", tmp_path / "b.txt")):
        link.symlink_to(name.name)
        write_text(link, "new")
        assert link.is_symlink() and name.read_text() == "new"


def test_a_pipe_and_a_device_are_written_to_and_stay(tmp_path: Path) -> None:
    """They were replaced by a file: as root, /dev/null itself."""
    os.mkfifo(pipe := tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "passed on")
    reader.join()
    assert read == ["passed on"] and pipe.is_fifo()
    (null := tmp_path / "null").symlink_to("/dev/null")
    write_text(null, "gone")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full on this system")
def test_a_device_that_takes_no_more_is_named() -> None:
    with pytest.raises(UserError, match="/dev/full: the disk is full"):
        write_text("/dev/full", "too much")
    assert Path("/dev/full").is_char_device()


def test_a_commit_that_looks_like_a_huge_number_is_read_as_text(tmp_path: Path) -> None:
    """pandas' own parser of numbers ended the process: it reads past its powers of ten."""
    commits = ["70522e89776423859854a5c6ccf843102466d31d", "1e99999999999999999999999999999999999999"]
    for number, commit in enumerate(commits):
        table = pd.DataFrame({"commit": [commit], "measured": [commit], "seconds": [0.1]})
        write_csv(tmp_path / f"{number}.csv", table)
        read = read_csv(tmp_path / f"{number}.csv")
        assert read.loc[0, "commit"] == commit and read.loc[0, "seconds"] == 0.1
