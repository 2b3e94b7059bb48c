"""The benchmark runs as users run it, and its ratios follow from its blocks."""

import json
import statistics
from pathlib import Path

import pytest

from conftest import TINY, cxrbench
from cxrbench.evidence.verify import verify_recorded

SMALL = ["--pixels", "32", "--batch", "16"]


@pytest.mark.slow
def test_a_row_has_the_ratios_of_its_blocks_and_is_kept_under_the_machines_name(tmp_path: Path) -> None:
    measured, recorded = tmp_path / "measured/train.json", tmp_path / "recorded"
    done = cxrbench("bench", "train", TINY, *SMALL, "--blocks", "2", "--steps", "1", "--out", measured)
    assert "of the limit" in done.stdout, done.stderr
    (row,) = json.loads(measured.read_text())
    blocks = row["blocks_of_each"]
    assert set(blocks) == {"ours", "timm", "timm_best", "limit"}
    for name, values in blocks.items():
        assert row[name] == pytest.approx(statistics.median(values)) and row[name] > 0 and len(values) == 2
    paired = [a / b for a, b in zip(blocks["ours"], blocks["limit"], strict=True)]
    assert row["share_of_limit"] == pytest.approx(statistics.median(paired))
    assert row["model_flops_per_image"] > 1e6 and 0 < row["share_of_matmul_peak"] < 1
    assert row["joules"] is None and row["joules_reason"]
    done = cxrbench("bench", "record", "--source", measured.parent, "--recorded", recorded)
    assert done.returncode == 0, done.stderr
    (kept,) = recorded.glob("bench/*/train.json")
    assert kept.read_bytes() == measured.read_bytes()
    assert str(kept.relative_to(recorded)) in (recorded / "SHA256SUMS").read_text()
    assert verify_recorded(recorded).problems == []


@pytest.mark.slow
def test_gains_are_added_one_after_the_other(tmp_path: Path) -> None:
    done = cxrbench("bench", "gains", TINY, *SMALL, "--blocks", "1", "--out", tmp_path / "gains.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "gains.json").read_text())
    eager = ["channels_last", "fused AdamW"]
    assert [row["way"] for row in rows] == [*eager, "torch.compile", *eager]
    assert [row["precision"] for row in rows] == ["fp32"] * 3 + ["bf16"] * 2
    assert rows[0]["added_to"] == rows[3]["added_to"] == "plain"


def test_measurements_at_other_settings_are_kept_and_at_the_same_replaced(tmp_path: Path) -> None:
    measured, recorded = tmp_path / "measured", tmp_path / "recorded"
    measured.mkdir()
    setting = {"platform": "cuda", "architecture": TINY, "pixels": 64, "batch": 64, "precision": "fp32"}
    for row in (setting | {"ours": 1.0}, setting | {"pixels": 224, "ours": 2.0}, setting | {"ours": 3.0}):
        (measured / "train.json").write_text(json.dumps([row]))
        done = cxrbench("bench", "record", "--source", measured, "--recorded", recorded)
        assert done.returncode == 0, done.stderr
    (kept,) = recorded.glob("bench/*/train.json")
    assert [(row["pixels"], row["ours"]) for row in json.loads(kept.read_text())] == [(224, 2.0), (64, 3.0)]


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    done = cxrbench("bench", "record", "--source", tmp_path, "--recorded", tmp_path / "recorded")
    assert done.returncode == 1 and f"{tmp_path}: nothing was measured there" in done.stderr
    assert not (tmp_path / "recorded").exists()
