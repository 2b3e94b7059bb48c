"""Studies with little to say still become a paper that says so in words where numbers would stand."""

import re
from pathlib import Path

import pandas as pd
import pytest

from conftest import change_record, clone_of_the_tree, keep_recorded, text_of
from cxrbench.common.files import sha256_file
from cxrbench.evidence.predictions import read_predictions, write_predictions
from cxrbench.evidence.sums import write_sums
from test_graph import graph

CELL = "nih128-64px/resnet18/cpu/seed0"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("latex")]


def one_cell(folder: Path, **changes: object) -> Path:
    """A copy of the repository in which a single cell is recorded, its record changed."""
    clone = clone_of_the_tree(folder)
    keep_recorded(clone, CELL)
    change_record(clone / "data/recorded" / CELL, **changes)
    return clone


def paper(clone: Path) -> str:
    """The words of the paper built from recorded evidence."""
    write_sums(clone / "data/recorded")  # what was changed above is meant
    graph(clone, "--config", "run=[]", overlay=False)
    return " ".join(text_of(clone / "paper/paper.pdf", "-layout").split())


def test_one_seed_and_a_finding_without_a_positive_image_in_the_test_part(tmp_path: Path) -> None:
    clone = one_cell(tmp_path)
    path = clone / "data/recorded" / CELL / "predictions.parquet"
    table = read_predictions(path)
    table.loc[table["split"] == "test", "label_Hernia"] = 0
    write_predictions(path, table)
    change_record(path.parent, predictions_sha256=sha256_file(path))
    text = paper(clone)
    assert "one seed was trained, so the spread over seeds is unknown" in text
    assert "The only network yet on nih128-64px is resnet18" in text and "picked" not in text
    assert "No pair of platforms can be compared on real radiographs" in text
    assert "Hernia undefined" in text and not re.search(r"\bnan\b", text, flags=re.I)
    auroc = pd.read_csv(clone / "results/tables/table_auroc.csv").set_index("Finding")
    assert auroc.loc["Hernia"].iloc[0] == "undefined" and auroc.loc["Macro"].iloc[0] != "undefined"


def test_every_cell_failed(tmp_path: Path) -> None:
    clone = one_cell(
        tmp_path,
        status="crashed",
        failure={"kind": "crashed", "fingerprint": r"\input{/etc/passwd} 100% of_it", "last_lines": []},
        predictions_sha256=None,
        history=[],
    )
    (clone / "data/recorded" / CELL / "predictions.parquet").unlink()
    text = paper(clone)
    assert "1 failed" in text and "No cell has run." in text
    assert not re.search(r"\bnan\b", text, flags=re.I)
    cells = pd.read_csv(clone / "results/tables/cells.csv")
    assert (cells["status"] == "crashed").sum() == 1
