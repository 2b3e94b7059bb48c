"""The graph of a thousand cells: `cxrbench bench graph` trains all of them once, and none twice."""

import json
from pathlib import Path

import pytest

from conftest import must_fail, must_work


@pytest.mark.slow
def test_a_dry_run_of_a_thousand_cells_names_a_thousand_trainings(tmp_path: Path) -> None:
    # It fails when a finished study is trained again.
    done = must_work("bench", "graph", "--cells", 1000, "--out", tmp_path / "graph.json")
    (measured,) = json.loads((tmp_path / "graph.json").read_text())
    assert (measured["cells"], measured["train_jobs"]) == (1000, 1000)
    assert measured["dry_run_seconds"] > 0 and measured["nothing_to_do_seconds"] > 0
    assert "train_jobs: 1000\n" in done.stdout


def test_outside_a_checkout_it_says_where_to_run_it(tmp_path: Path) -> None:
    assert "there is no Snakefile here" in must_fail("bench", "graph", cwd=tmp_path)
