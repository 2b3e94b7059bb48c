"""`cxrbench evaluate` on predictions from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, cxrbench

RECORDED = ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0/predictions.parquet"
FEW = ("--replicates", 50)


def test_a_readable_table_a_csv_and_json(tmp_path: Path) -> None:
    done = cxrbench("evaluate", RECORDED, *FEW)
    assert done.returncode == 0, done.stderr
    assert "macro" in done.stdout and " to " in done.stdout and "f1_micro" in done.stdout
    done = cxrbench("evaluate", RECORDED, *FEW, "--json", "--out", tmp_path / "m.csv")
    rows = pd.DataFrame(json.loads(done.stdout))
    table = pd.read_csv(tmp_path / "m.csv")
    assert len(rows) == len(table) > 100
    macro = rows[
        (rows["metric"] == "auroc") & (rows["label"] == "macro") & (rows["ci_method"] == "delong-patient")
    ]
    image = rows[
        (rows["metric"] == "auroc") & (rows["label"] == "macro") & (rows["ci_method"] == "delong-image")
    ]
    assert 0.6 < macro["value"].item() < 0.8
    assert macro["ci_high"].item() - macro["ci_low"].item() > image["ci_high"].item() - image["ci_low"].item()


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda table: table.drop(columns="patient"), "cluster"),
        (lambda table: table[table["split"] == "test"], "threshold"),
    ],
)
def test_what_a_file_lacks_is_said_and_left_out(change, note: str, tmp_path: Path) -> None:
    change(pd.read_parquet(RECORDED)).to_parquet(tmp_path / "p.parquet")
    done = cxrbench("evaluate", tmp_path / "p.parquet", *FEW)
    assert done.returncode == 0 and note in done.stderr, done.stderr


def test_bad_scores_are_one_message(tmp_path: Path) -> None:
    table = pd.read_parquet(RECORDED)
    table.loc[3, "score_Mass"] = float("nan")
    table.to_parquet(tmp_path / "p.parquet")
    done = cxrbench("evaluate", tmp_path / "p.parquet", *FEW)
    assert done.returncode == 1 and "score_Mass" in done.stderr and "Traceback" not in done.stderr
