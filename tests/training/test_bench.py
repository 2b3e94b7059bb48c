"""The benchmark runs as users run it, and its ratios follow from its blocks."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from conftest import TINY, cxrbench
from cxrbench.evidence.verify import verify_recorded

SMALL = ["--pixels", "32", "--batch", "16", "--blocks", "2", "--steps", "1"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    done = cxrbench("bench", "train", TINY, *SMALL, "--out", folder / "train.json")
    assert done.returncode == 0, done.stderr
    assert "of the limit" in done.stdout
    return folder


@pytest.mark.slow
def test_a_row_has_all_speeds_and_the_ratios_of_its_blocks(measured: Path) -> None:
    (row,) = json.loads((measured / "train.json").read_text())
    blocks = row["blocks_of_each"]
    assert {name: len(values) for name, values in blocks.items()} == dict.fromkeys(
        ("ours", "timm", "timm_best", "limit"), 2
    )
    for name in blocks:
        assert row[name] == pytest.approx(statistics.median(blocks[name])) and row[name] > 0
    paired = [a / b for a, b in zip(blocks["ours"], blocks["limit"], strict=True)]
    assert row["share_of_limit"] == pytest.approx(statistics.median(paired))
    assert row["model_flops_per_image"] > 1e6 and 0 < row["share_of_matmul_peak"] < 1
    assert row["joules"] is None and row["joules_reason"]


@pytest.mark.slow
def test_recording_keeps_it_under_the_machines_name(measured: Path, tmp_path: Path) -> None:
    done = cxrbench("bench", "record", "--source", measured, "--recorded", tmp_path)
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.glob("bench/*/train.json")
    assert kept.read_bytes() == (measured / "train.json").read_bytes()
    assert str(kept.relative_to(tmp_path)) in (tmp_path / "SHA256SUMS").read_text()
    assert verify_recorded(tmp_path).problems == []


@pytest.mark.slow
def test_gains_are_added_one_after_the_other(tmp_path: Path) -> None:
    small = ["--pixels", "32", "--batch", "16", "--blocks", "1"]
    done = cxrbench("bench", "gains", TINY, *small, "--out", tmp_path / "gains.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "gains.json").read_text())
    assert [row["way"] for row in rows] == ["channels_last", "fused AdamW", "torch.compile"]
    assert rows[0]["added_to"] == "plain"
