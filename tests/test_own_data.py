"""One's own table of findings, from images to tables, through the commands that a build runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from conftest import ROOT, cxrbench
from own_images import ODD, a_study, drawn, written

CELL = "own/test_resnet/cpu/seed0"


def test_own_findings_go_from_images_to_tables(tmp_path: Path) -> None:
    table = drawn(160).astype(dict.fromkeys(ODD, "Int64"))
    table.loc[::7, ODD[1]] = pd.NA
    source = written(tmp_path, table, blank="mask", pixels=32, patient="none")
    table.drop(columns="split").to_csv(tmp_path / "labels.csv", index=False)
    study = a_study(tmp_path, source, paper={"title": "Ours"})

    def run(*words: object) -> str:
        done = cxrbench(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stderr

    packed, results = tmp_path / "packed/own/manifest.json", tmp_path / "results"
    records = [results / name / CELL / "record.json" for name in ("runs", "cells")]
    said = run("data", "pack", "own", "--study", study, "--out", packed)
    assert "packed own:" in said
    run("train", CELL, "--study", study, "--packed", packed, "--out", records[0])
    run("adopt", CELL, *records)
    metrics = results / "metrics.csv"
    assert "every image counts as its own patient" in run("evaluate", records[1], "--out", metrics)
    tables = results / "tables"
    run("report", "metrics", metrics, "--out", tables / "metrics.csv")
    run("report", "cells", records[1], "--study", study, "--out", tables / "cells.csv")
    run(
        "report",
        "statistics",
        "--results",
        results,
        "--study",
        study,
        "--baselines",
        ROOT / "data/baselines.csv",
    )
    shown = pd.read_csv(tables / "metrics.csv")
    assert set(shown["label"]) == {*ODD, "macro", "all"} and shown["n_patients"].isna().all()
    counted = shown[shown["metric"] == "auroc"].set_index("label")["n_images"]
    assert counted[ODD[1]] < counted[ODD[0]] == counted["macro"]
    assert pd.read_csv(tables / "cells.csv", keep_default_na=False)["status"].tolist() == ["ok"]
    assert set(pd.read_csv(tables / "spread.csv")["label"]) == {*ODD, "macro", "all"}
    assert pd.read_csv(tables / "subgroups.csv").empty
