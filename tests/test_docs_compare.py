"""docs/compare.md: its commands are run on recorded predictions, and print what the page says."""

import re
import shlex

import pytest

from conftest import ROOT, must_work

PAGE = (ROOT / "docs/compare.md").read_text()
EXAMPLES = re.findall(r"```sh\ncxrbench (compare \S*nih128.*)\n```\n(?:\n.*\n)?\n?```\n((?:.+\n)+)```", PAGE)


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("command", "printed"), EXAMPLES)
def test_a_recorded_comparison_prints_what_the_page_says(command: str, printed: str) -> None:
    assert must_work(*shlex.split(command), cwd=ROOT).stdout.startswith(printed)
