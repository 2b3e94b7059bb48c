"""torch_xla on its CPU device: the same loop, few compilations, no fallbacks, the same numbers."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import QUICK_XLA, ROOT, TINY, must_work, pack_phantoms, ran
from cxrbench.common.errors import UserError
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.store import STEP_TOLERANCE, TESTED_STEPS, EvidenceStore, check_evidence
from cxrbench.paper.latex import xla_listing
from cxrbench.paper.results import read_measurements
from cxrbench.statistics.predictions import scores_of
from cxrbench.study import platforms
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.platforms import ENTRIES
from cxrbench.training.supervisor import run

from .trainers import wall_seconds

DIFFERENCES = ("loss_difference", "gradient_norm_difference", "weights_difference")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer phantoms than elsewhere: graphs count here, and XLA's CPU device is slow."""
    return pack_phantoms(tmp_path_factory.mktemp("packed"), {"train": 320, "val": 280, "test": 280})


@pytest.fixture(autouse=True)
def quick_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", QUICK_XLA)


@pytest.fixture
def recipe() -> Recipe:
    """Two epochs of five steps: epochs end, are evaluated and go on."""
    return Recipe(epochs=2, batch=64, averaging=0.9)


@pytest.mark.parametrize(("architecture", "functionalization"), [(TINY, False), ("test_convnext", True)])
@pytest.mark.slow
def test_the_step_compiles_twice_and_nothing_falls_back(
    architecture, functionalization, make_job, tmp_path, monkeypatch
) -> None:
    if not functionalization:  # as on Neuron
        monkeypatch.setenv("XLA_DISABLE_FUNCTIONALIZATION", "1")
    job = make_job(architecture=architecture, platform="xla_cpu")
    record = run(job, tmp_path / "out")
    assert record.status == "ok", record.failure
    check_evidence(tmp_path / "out", job.cell)
    assert record.timing.compiles == 3
    assert record.platform["fallback_operators"] == []
    # Compiling is not counted in the other phases too: together they are no longer than the run.
    assert record.timing.compile_seconds > 0 and record.timing.total_seconds <= wall_seconds(record) + 1


def test_the_recorded_networks_compiled_as_often_and_fell_back_on_nothing() -> None:
    store = EvidenceStore(ROOT / "data/recorded")
    ran = [record for cell, record in store.records().items() if cell.platform == "xla_cpu"]
    assert {"resnet18", "convnext_pico", "convnext_atto"} <= {record.cell.split("/")[1] for record in ran}
    assert {(record.timing.compiles, *record.platform["fallback_operators"]) for record in ran} == {(3,)}


@pytest.mark.slow
def test_batches_that_a_thread_sends_ahead_are_the_right_ones(make_job, tmp_path, monkeypatch) -> None:
    """Twice the same bits and no graph more; resident images are gathered in another graph, which rounds."""
    once = Recipe(epochs=1, batch=64, averaging=0.9, threads=1)
    memory = {"resident": Limits(), "streamed": Limits(resident_gib=0), "again": Limits(resident_gib=0)}
    records, scores = {}, {}
    for name, limits in memory.items():
        job = make_job(name, platform="xla_cpu", recipe=once, limits=limits)
        records[name] = run(job, tmp_path / name)
        assert records[name].status == "ok", records[name].failure
        scores[name] = scores_of(read_predictions(tmp_path / name / "predictions.parquet"))
    assert [record.platform["resident_input"] for record in records.values()] == [True, False, False]
    assert [record.timing.compiles for record in records.values()] == [3, 3, 3]
    assert records["streamed"].predictions_sha256 == records["again"].predictions_sha256
    np.testing.assert_allclose(scores["streamed"], scores["resident"], atol=1e-4)


@pytest.mark.slow
def test_smaller_micro_batches_add_no_graph(make_job, tmp_path, monkeypatch) -> None:
    """Of two in a batch and of four: a first and a later micro-batch, the update, and evaluation."""
    once = Recipe(epochs=1, batch=64, averaging=0.9)
    sizes = {
        size: make_job(str(size), platform="xla_cpu", recipe=once, micro_batch=size) for size in (32, 16)
    }
    records = [run(job, tmp_path / name) for name, job in zip("ab", sizes.values(), strict=True)]
    assert [record.status for record in records] == ["ok", "ok"], records[0].failure
    assert records[0].timing.compiles == records[1].timing.compiles <= 6


@pytest.mark.slow
def test_a_whole_schedule_compiles_no_more_than_its_first_steps(make_job, tmp_path, monkeypatch) -> None:
    """Past step 80, where the average's weight meets AdamW's, and down to where no decay is left in fp32.

    With a learning rate for each layer: these are numbers that change too.
    """
    whole = Recipe(epochs=3, batch=8, layer_decay=0.5, drop_rate=0.1)
    record = run(make_job(platform="xla_cpu", recipe=whole, micro_batch=8), tmp_path / "out")
    assert (record.status, record.timing.compiles) == ("ok", 3), record.failure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "precision"),
    [(name, precision) for name in ("xla_cpu", "cuda") for precision in ENTRIES[name].precisions],
)
def test_a_step_passes_the_gate(platform, precision, tmp_path, monkeypatch) -> None:
    if reason := platforms.unavailable(platform):
        pytest.skip(f"{platform}: {reason}")
    out = tmp_path / "gate.json"
    how = ("--batch", 8, "--platforms", platform, "--precision", precision, "--drift", 2, "--out", out)
    done = must_work("bench", "steps", "test_convnext", *how)
    assert f"test_convnext on {platform}: 0 of " in done.stdout + done.stderr
    (row,) = json.loads(out.read_text())
    assert (row["platform"], row["differences"], row["repeats"]) == (platform, 0, True)
    rows = json.loads(out.with_name("steps.json").read_text())
    assert {row["platform"] for row in rows} == {platform, "cpu, one thread"} and len(rows) == 4


def test_the_recorded_steps_of_the_figure_keep_the_tolerance_that_it_draws() -> None:
    rows = read_measurements(ROOT / "data/recorded", "steps")
    first = rows[rows["step"] <= TESTED_STEPS]
    assert {"resnet18", "convnext_atto"} <= set(first["architecture"]) and "xla_cpu" in set(first["platform"])
    for precision, some in first.groupby("precision"):
        assert (some[list(DIFFERENCES)] < STEP_TOLERANCE[precision]).all(axis=None)


@pytest.mark.slow
def test_each_change_left_out_costs_what_it_says(tmp_path, monkeypatch) -> None:
    out = tmp_path / "ways.json"
    ran(sys.executable, "-m", "benchmarks.xla", TINY, "--steps", 4, "--out", out, cwd=ROOT, check=True)
    ways = {row["way"]: row for row in json.loads(out.read_text())}
    assert (ways["as it is"]["compiles"], ways["as it is"]["fallbacks"]) == (2, [])
    assert ways["no step barrier"]["compiles"] == 1  # one graph of all steps
    assert ways["numbers as scalars"]["compiles"] == 3
    assert ways["host read in the step"]["fallbacks"] == ["aten::_local_scalar_dense"]
    assert ways["ragged last batch"]["compiles"] == 3
    assert ways["changing shapes"]["compiles"] >= 4
    assert ways["grid_sample"]["fallbacks"] == ["aten::grid_sampler_2d"]
    for way in ("no step barrier", "numbers as scalars", "host read in the step"):
        assert ways[way]["loss"] == pytest.approx(ways["as it is"]["loss"], rel=1e-3)


def test_two_processes_are_refused_before_they_meet(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=r"xla_cpu cannot run in 2 processes, only in 1; change limits\.proc"):
        platforms.load("xla_cpu", 1, "fp32")


def test_the_listing_has_every_marked_change() -> None:
    listing = xla_listing()
    assert [f"({number})" in listing for number in range(1, 10)] == [True] * 8 + [False]
    assert "torch_xla.sync()" in listing and "AdamW(groups" in listing
