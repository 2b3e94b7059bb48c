"""A final name never stands on half-written content, and what is written is read again."""

from pathlib import Path

import pandas as pd
import pytest

from cxrbench.common.files import read_csv, write_csv, write_text, written_aside


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), written_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_commit_that_looks_like_a_huge_number_is_read_as_text(tmp_path: Path) -> None:
    """pandas' own parser of numbers ended the process: it reads past its powers of ten."""
    commits = ["70522e89776423859854a5c6ccf843102466d31d", "1e99999999999999999999999999999999999999"]
    for number, commit in enumerate(commits):
        table = pd.DataFrame({"commit": [commit], "measured": [commit], "seconds": [0.1]})
        write_csv(tmp_path / f"{number}.csv", table)
        read = read_csv(tmp_path / f"{number}.csv")
        assert read.loc[0, "commit"] == commit and read.loc[0, "seconds"] == 0.1
