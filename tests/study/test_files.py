"""A final name never stands on half-written content."""

from pathlib import Path

import pytest

from cxrbench.study.files import write_text, written_aside


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), written_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
