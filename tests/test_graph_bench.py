"""The graph of a thousand cells: `cxrbench bench graph` trains all of them once, and none twice."""

import json
from pathlib import Path

import pytest

from conftest import cxrbench


@pytest.mark.slow
def test_a_dry_run_of_a_thousand_cells_names_a_thousand_trainings(tmp_path: Path) -> None:
    done = cxrbench("bench", "graph", "--cells", 1000, "--out", tmp_path / "graph.json")
    assert done.returncode == 0, done.stderr  # it fails when a finished study is trained again
    (measured,) = json.loads((tmp_path / "graph.json").read_text())
    assert (measured["cells"], measured["train_jobs"]) == (1000, 1000)
    assert measured["dry_run_seconds"] > 0 and measured["nothing_to_do_seconds"] > 0
    assert "train_jobs: 1000\n" in done.stdout


def test_outside_a_checkout_it_says_where_to_run_it(tmp_path: Path) -> None:
    done = cxrbench("bench", "graph", cwd=tmp_path)
    assert done.returncode == 1 and "there is no Snakefile here" in done.stderr
    assert "Traceback" not in done.stderr
