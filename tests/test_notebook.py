"""The notebook runs from top to bottom, as it stands, in a clone that it makes."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

from conftest import ROOT, keep_recorded, ran
from test_workflows import checkout, commit

NOTEBOOK = ROOT / "notebooks/train_a_cell.ipynb"
# As a kernel does: the cells one after the other in one namespace. There is no magic in them.
RUN = """if True:
    import sys, nbformat
    cells = nbformat.read(sys.argv[1], 4).cells
    namespace = {"__name__": "__main__"}
    for cell in cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, cell.id, "exec"), namespace)
"""
CELL = "phantom-32px/resnet18/cpu/seed0"


def test_it_has_five_cells_of_plain_python_and_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 5 and not any(cell.outputs or cell.execution_count for cell in cells)
    for number, cell in enumerate(cells, start=1):
        assert cell.source.startswith(f"# {number}. ") and not re.search(r"^\s*[!%]", cell.source, re.M)
    assert "accelerator" in json.loads(NOTEBOOK.read_text())["metadata"]  # Colab then lends a GPU


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU here, and the notebook would train on it")
    origin = checkout(tmp_path / "origin")
    keep_recorded(origin, CELL)
    commit(origin, "Keep one cell")
    (place := tmp_path / "place").mkdir()
    shutil.copy(NOTEBOOK, place)
    names = {"REPOSITORY": str(origin), "VENV": str(origin / ".venv"), "MPLBACKEND": "Agg"}
    done = ran(sys.executable, "-c", RUN, NOTEBOOK.name, cwd=place, env=os.environ | names)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (archive,) = (place / "cxrbench/results").glob("contribution-*.tar.gz")
    assert f"{archive} (" in done.stdout
    shown = " ".join(done.stdout.split())  # lines are wrapped
    for words in (f"to train: {CELL}", "finding yours cpu/seed0", "wall time ", " USD ("):
        assert words in shown, words
    scores = re.findall(r"^(\w+) +(0[.]\d{3})  (0[.]\d{3})$", done.stdout, re.M)
    assert {"Hernia", "macro", "endpoint"} <= {finding for finding, *_ in scores} and len(scores) == 16
    assert ran("git", "status", "--porcelain", cwd=place / "cxrbench").stdout == ""
