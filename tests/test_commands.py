"""Commands about money and claims, as users call them."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import ROOT, cxrbench

RECORDED = ROOT / "data/recorded"


def test_cost_of_recorded_cells_is_a_table_and_json() -> None:
    done = cxrbench("cost", "table", RECORDED)
    assert done.returncode == 0, done.stderr
    assert "proxy" in done.stdout and "c7a.large" in done.stdout
    rows = json.loads(cxrbench("cost", "table", RECORDED, "--json").stdout)
    assert {"usd_total", "region", "basis", "as_of", "kind"} <= set(rows[0])


def test_decide_answers_with_the_arithmetic() -> None:
    words = "--spend 1000 --architecture cnn --porting 5000 --horizon 12 --capacity 1"
    done = cxrbench("cost", "decide", *words.split())
    assert done.returncode == 0, done.stderr
    assert "saved per month" in done.stdout and "published" in done.stdout


def test_refresh_without_credentials_is_one_line(monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    done = cxrbench("cost", "refresh")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert "unchanged" in done.stderr


def test_the_ledger_prints_a_computed_verdict_for_every_claim() -> None:
    rows = json.loads(cxrbench("claims", "--json").stdout)
    assert len(rows) > 70 and all(row["verdict"] for row in rows)


def test_a_platform_that_is_not_here_and_a_folder_without_measurements_are_told(tmp_path: Path) -> None:
    if not Path("/dev/neuron0").exists():
        done = cxrbench("train", "nih128-64px/resnet18/neuron/seed0", "--out", tmp_path / "record.json")
        assert done.returncode == 3 and "platform neuron cannot run here" in done.stderr
    done = cxrbench("bench", "record", "--source", tmp_path, "--recorded", tmp_path / "recorded")
    assert done.returncode == 1 and f"{tmp_path}: nothing was measured there" in done.stderr
    assert not (tmp_path / "recorded").exists()


def test_help_names_every_command() -> None:
    shown = cxrbench("--help").stdout
    for command in ("data", "train", "evaluate", "cost", "claims", "verify", "record", "report", "bench"):
        assert command in shown
