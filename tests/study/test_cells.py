"""Cells and their one name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrbench.common.errors import UserError
from cxrbench.study.names import Cell, expand_braces

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


def test_braces_expand_like_a_shell() -> None:
    assert expand_braces("a/{b,c}/{d,e}") == ["a/b/d", "a/b/e", "a/c/d", "a/c/e"]
