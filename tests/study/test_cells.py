"""Cells and their one name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrbench.study.cells import Cell, expand_braces, find_cells
from cxrbench.study.errors import UserError

names = st.from_regex(r"[a-z][\w.\-]{0,20}", fullmatch=True).filter(str.isascii)


@given(names, names, st.sampled_from(["cpu", "cuda", "xla_cpu"]), st.integers(0, 999))
def test_a_cell_is_its_path(dataset: str, architecture: str, platform: str, seed: int) -> None:
    cell = Cell(dataset, architecture, platform, seed)
    assert Cell.parse(str(cell)) == cell
    assert Cell.parse(f"{cell}/record.json") == cell


WRONG = ("", "a/b/c", "a/b/c/seed", "a/b/c/d/seed0", "a/b/../seed1", "../b/cpu/seed0", "a/-b/cpu/seed0")


@pytest.mark.parametrize("text", [*WRONG, "a/b/cpu/seed" + "9" * 5000, "a/b/cpu/seed0\n"])
def test_what_is_no_cell_says_how_one_looks(text: str) -> None:
    with pytest.raises(UserError, match="dataset/architecture/platform/seedN"):
        Cell.parse(text)


def test_cells_are_found_by_their_records(tmp_path: Path) -> None:
    for cell in (Cell("a", "b", "cpu", 1), Cell("a", "b", "cpu", 0)):
        cell.folder(tmp_path).mkdir(parents=True)
        (cell.folder(tmp_path) / "record.json").touch()
    assert [cell.seed for cell in find_cells(tmp_path)] == [0, 1]


def test_braces_expand_like_a_shell() -> None:
    assert expand_braces("a/{b,c}/{d,e}") == ["a/b/d", "a/b/e", "a/c/d", "a/c/e"]
