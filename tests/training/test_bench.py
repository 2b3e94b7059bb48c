"""The benchmark runs as users run it, and its ratios follow from its blocks."""

import itertools
import json
import statistics
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import TINY, must_fail, must_work
from cxrbench.cli import app
from cxrbench.evidence.store import STEP_DIFFERENCES
from cxrbench.evidence.verify import verify_recorded
from cxrbench.paper.results import read_measurements
from cxrbench.study.platforms import LacksPrecision

SMALL = ["--pixels", "32", "--batch", "16"]


def recording(folder: Path) -> list[str]:
    """The command that records what was measured in ``folder``."""
    return ["bench", "record", "--source", f"{folder}/measured", "--recorded", f"{folder}/recorded"]


@pytest.mark.slow
def test_a_row_has_the_ratios_of_its_blocks_and_is_kept_under_the_machines_name(tmp_path: Path) -> None:
    measured, recorded = tmp_path / "measured/train.json", tmp_path / "recorded"
    done = must_work("bench", "train", TINY, *SMALL, "--blocks", "2", "--steps", "1", "--out", measured)
    assert "of the limit" in done.stdout, done.stderr
    (row,) = json.loads(measured.read_text())
    blocks = row["blocks_of_each"]
    timms = ["timm", "timm_best", "timm_kept", "timm_best_kept"]
    assert set(blocks) == {"ours", "null", "limit", *timms}
    assert all(row[f"ratio_to_{name}"] > 0 for name in timms) and 0 < row["matrix_share"] < 1
    assert row["ratio_to_null"] > 0 and row["null_spread"] >= 0
    for name, values in blocks.items():
        assert row[name] == pytest.approx(statistics.median(values)) and row[name] > 0 and len(values) == 2
    paired = [a / b for a, b in zip(blocks["ours"], blocks["limit"], strict=True)]
    assert row["share_of_limit"] == pytest.approx(statistics.median(paired))
    assert row["model_flops_per_image"] > 1e6 and 0 < row["share_of_matmul_peak"] < 1
    must_work(*recording(tmp_path))
    (kept,) = recorded.glob("bench/*/train.json")
    assert kept.read_bytes() == measured.read_bytes() and kept.parent.name == row["machine"]
    assert str(kept.relative_to(recorded)) in (recorded / "SHA256SUMS").read_text()
    assert verify_recorded(recorded).problems == []


@pytest.mark.slow
def test_gains_are_added_one_after_the_other(tmp_path: Path) -> None:
    must_work("bench", "gains", TINY, *SMALL, "--blocks", "1", "--out", tmp_path / "gains.json")
    rows = json.loads((tmp_path / "gains.json").read_text())
    eager = ["channels_last", "fused AdamW"]
    assert [row["way"] for row in rows] == [*eager, "torch.compile", *eager]
    assert [row["precision"] for row in rows] == ["fp32"] * 3 + ["bf16"] * 2
    assert rows[0]["added_to"] == rows[3]["added_to"] == "plain"
    assert all(row["above_threshold"] == (row["gain"] > row["null"]) and row["null"] > 0 for row in rows)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A function that runs `bench KIND --out FILE` with the given words; what it measures is not timed."""
    numbers = {"ours": 100, "ratio_to_timm": 2, "ratio_to_timm_best": 1.5, "timm_best_flags": "channels_last"}
    numbers |= {"share_of_limit": 0.9, "spread": 0.04}
    count = itertools.count(1)
    monkeypatch.setattr("benchmarks.train.measure", lambda it, *_: vars(it) | numbers | {"run": next(count)})
    monkeypatch.setattr("benchmarks.gains.measure_gains", lambda it, _: [vars(it) | {"way": w} for w in "ab"])
    monkeypatch.setattr(
        "benchmarks.steps.compare_steps",
        lambda name, others, packed, steps, precision, say: [
            {"architecture": name, "platform": others[0], "precision": precision, "step": step}
            | dict.fromkeys(STEP_DIFFERENCES, 0.0)
            for step in range(steps)
        ],
    )
    monkeypatch.setattr("benchmarks.gate.judge_all", lambda *_: [])
    monkeypatch.setattr("benchmarks.train.packed_phantoms", lambda *_: nullcontext(tmp_path))

    def run(kind: str, file: str, *words: object) -> str:
        out = tmp_path / "measured" / file
        done = CliRunner().invoke(app, ["bench", kind, TINY, "--out", str(out), *map(str, words)])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_rows_of_other_settings_are_kept_and_those_of_the_same_replaced(measure, tmp_path: Path) -> None:
    for batch, pixels in [(64, 64), (256, 64), (64, 128), (64, 64)]:
        measure("train", "train.json", "--batch", batch, "--pixels", pixels)
    measure("train", "train-224.json", "--batch", 64, "--pixels", 224)
    for batch in (64, 256, 64):
        measure("gains", "gains.json", "--batch", batch)
    for precision, steps in [("fp32", 5), ("bf16", 2), ("fp32", 3)]:
        measure("steps", "gate.json", "--precision", precision, "--drift", steps)
    recorded = tmp_path / "recorded"
    for _ in range(2):
        assert CliRunner().invoke(app, recording(tmp_path)).exit_code == 0
    rows = read_measurements(recorded, "train")
    found = [(row.batch, row.pixels, row.run) for row in rows.itertuples()]
    assert sorted(found) == [(64, 64, 4), (64, 128, 3), (64, 224, 5), (256, 64, 2)]
    gains = read_measurements(recorded, "gains")
    assert len(gains) == 2 * 2 * 2 and not gains.duplicated().any()  # ways, batches, precisions
    steps = read_measurements(recorded, "steps").groupby("precision").size()
    assert steps.to_dict() == {"bf16": 2, "fp32": 3}


def test_a_batch_that_does_not_fit_is_a_row_and_the_rest_goes_on(
    measure, monkeypatch, tmp_path: Path
) -> None:
    measure("train", "train.json", "--batch", 64)
    unfit = {"does_not_fit": "a step needs about 25.8 GiB, the device has 22.4"}
    monkeypatch.setattr("benchmarks.train.measure", lambda it, *_: vars(it) | unfit)
    assert f"{TINY}: batch 256 does not fit: a step needs" in measure("train", "train.json", "--batch", 256)
    rows = json.loads((tmp_path / "measured/train.json").read_text())
    assert [row.get("does_not_fit") for row in rows] == [None, unfit["does_not_fit"]]
    assert CliRunner().invoke(app, recording(tmp_path)).exit_code == 0
    assert read_measurements(tmp_path / "recorded", "train")["batch"].tolist() == [64]  # it has no speed


def test_gains_leave_out_a_precision_that_the_device_lacks(measure, monkeypatch, tmp_path: Path) -> None:
    def lacks(setting, report):
        if setting.precision == "bf16":
            raise LacksPrecision("platform cuda cannot run bf16 here: Tesla T4 only emulates bf16")
        return [vars(setting) | {"way": "plain"}]

    monkeypatch.setattr("benchmarks.gains.measure_gains", lacks)
    measure("gains", "gains.json", "resnet18")
    rows = json.loads((tmp_path / "measured/gains.json").read_text())
    assert [(row["architecture"], row["precision"]) for row in rows] == [(TINY, "fp32"), ("resnet18", "fp32")]


def test_rows_of_another_machine_are_recorded_under_its_name(tmp_path: Path) -> None:
    rows = [{"platform": "cuda", "architecture": TINY, "machine": f"nvidia-{name}"} for name in ("a", "b")]
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured/train.json").write_text(json.dumps(rows))
    must_work(*recording(tmp_path))
    assert read_measurements(tmp_path / "recorded", "train")["host"].tolist() == ["nvidia-a", "nvidia-b"]


def test_no_measurement_or_one_that_nothing_would_read_is_refused(tmp_path: Path) -> None:
    (folder := tmp_path / "measured").mkdir()
    assert f"{folder}: nothing was measured there" in must_fail(*recording(tmp_path))
    (folder / "speed.json").write_text("[]")
    assert "speed.json: nothing reads a file of this name; rename it" in must_fail(*recording(tmp_path))
    assert not (tmp_path / "recorded").exists()


@pytest.mark.slow
def test_a_damaged_file_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('[{"batch": 64}')
    message = must_fail("bench", "train", TINY, "--out", tmp_path / "train.json")
    assert f"{tmp_path}/train.json: Expecting" in message
