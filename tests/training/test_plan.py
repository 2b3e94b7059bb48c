"""What a job asks for: time and memory from recorded runs, the nearest first, with stated margins."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.evidence.store import EvidenceStore
from cxrbench.evidence.sums import write_sums
from cxrbench.study.config import Study, parse_study
from cxrbench.study.names import Cell
from cxrbench.training.plan import JobNeeds, Plan

PHANTOM = {"source": "phantom", "pixels": 32, "recipe": "r"}


def study(**changes: Any) -> Study:
    """Two datasets of ten epochs, three networks, on a cluster of three platforms."""
    cells = {"architectures": ["a", "b", "c"], "platforms": ["cpu", "cuda", "neuron"], "seeds": [0, 1]}
    value = {
        "datasets": {"phantom-d": PHANTOM, "phantom-e": PHANTOM},
        "recipes": {"r": {"epochs": 10, "batch": 64, "threads": 2}},
        "cells": [{"dataset": "phantom-d", **cells}, {"dataset": "phantom-e", **cells}],
        "run": ["*"],
        "limits": {"hours": 3},
        "cluster": {"platforms": ["cpu", "cuda"], "partitions": {"cuda": "g5"}},
    }
    return parse_study(value | changes)


def record(folder: Path, cell: str, status: str = "ok", seconds: float = 1200) -> None:
    """A run of ``seconds`` in twenty epochs after a minute of setting up and compiling."""
    model = json.loads((ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0/record.json").read_text())
    timing = {"setup_seconds": 20, "compile_seconds": 40}
    timing |= {"train_seconds": seconds - 60, "evaluate_seconds": 60}
    values = {"cell": cell, "status": status, "history": model["history"][:20], "timing": timing}
    values |= {"predictions_sha256": None, "log_sha256": None, "peak_memory_mib": 2048}
    (folder / cell).mkdir(parents=True)
    if status == "ok":
        (folder / cell / "predictions.parquet").write_bytes(b"")
        values["predictions_sha256"] = hashlib.sha256(b"").hexdigest()
    (folder / cell / "record.json").write_text(json.dumps(model | values))
    write_sums(folder)


def minutes(recorded: Path, cell: str, attempt: int = 1) -> int:
    return JobNeeds(study(), EvidenceStore(recorded)).of(Cell.parse(cell), attempt)["minutes"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], 10 + 3 * 60),  # what its runner may take
        (["phantom-d/a/cpu/seed1"], 10 + 2 * 11),  # a minute once and a minute per epoch, ten epochs, twice
        (["phantom-d/b/cpu/seed0"], 10 + 4 * 11),  # another network: four times
        (["phantom-e/a/cpu/seed0"], 10 + 4 * 11),
        (["phantom-e/b/cpu/seed0"], 10 + 4 * 11),
        (["phantom-d/a/cuda/seed0"], 190),  # another platform says nothing
        (["phantom-d/a/cpu/seed1", "phantom-d/b/cpu/seed0", "phantom-e/c/cpu/seed0"], 10 + 2 * 11),
    ],
)
def test_time_is_that_of_the_nearest_recorded_run_and_a_margin(runs, expected, tmp_path: Path) -> None:
    for run in runs:
        record(tmp_path, run)
    assert minutes(tmp_path, "phantom-d/a/cpu/seed0") == expected


def test_the_longest_of_equally_near_runs_counts_and_failed_or_damaged_ones_do_not(tmp_path: Path) -> None:
    record(tmp_path, "phantom-d/a/cpu/seed1")
    record(tmp_path, "phantom-d/a/cpu/seed2", seconds=2400)
    record(tmp_path, "phantom-d/a/cpu/seed3", seconds=24_000, status="crashed")
    record(tmp_path, "phantom-d/a/cpu/seed4")
    (tmp_path / "phantom-d/a/cpu/seed4/record.json").write_text("{")
    assert minutes(tmp_path, "phantom-d/a/cpu/seed0") == 10 + 2 * 21


def test_each_retry_asks_for_twice_as_long_but_never_more_than_a_runner_may_take(tmp_path: Path) -> None:
    record(tmp_path, "phantom-d/a/cpu/seed1")
    asked = [minutes(tmp_path, "phantom-d/a/cpu/seed0", attempt) for attempt in (1, 2, 3, 4)]
    assert asked == [32, 64, 128, 190]


def test_memory_is_the_recorded_peak_and_a_margin_on_a_cpu_and_stated_for_an_accelerator(tmp_path) -> None:
    record(tmp_path, "phantom-d/a/cpu/seed1")
    record(tmp_path, "phantom-d/a/cuda/seed1")
    needs = JobNeeds(study(), EvidenceStore(tmp_path))
    assert needs.of(Cell("phantom-d", "a", "cpu", 0))["memory_mib"] == 2048 + 1.5 * 2048
    assert needs.of(Cell("phantom-d", "b", "cpu", 0))["memory_mib"] == 8 * 1024
    assert needs.of(Cell("phantom-d", "a", "cuda", 0))["memory_mib"] == 12 * 1024  # its peak is the GPU's
    limited = JobNeeds(study(limits={"memory_gib": 3, "processes": 2}), EvidenceStore(tmp_path))
    assert limited.of(Cell("phantom-d", "a", "cuda", 0))["memory_mib"] == (2 * 3 + 2) * 1024


def test_devices_cores_and_partition_follow_platform_recipe_and_processes(tmp_path: Path) -> None:
    def asked(platform: str, **changes: Any) -> tuple[str, str, int, str]:
        needs = JobNeeds(study(**changes), EvidenceStore(tmp_path)).of(Cell("phantom-d", "a", platform, 0))
        return tuple(needs[what] for what in ("gres", "partition", "cores", "extra"))

    assert asked("cuda", limits={"processes": 4}) == ("gpu:4", "g5", 8, "--exclusive")
    assert asked("neuron") == ("", "", 2, "--exclusive")
    assert asked("cpu", cluster={"platforms": ["cpu"], "exclusive": False})[3] == ""


def test_a_seed_that_is_not_planned_gets_those_that_are(tmp_path: Path) -> None:
    cells = [{"dataset": "phantom-d", "architectures": ["a"], "platforms": ["cpu"], "seeds": [0, 1, 2, 7]}]
    plan = Plan(study(cells=cells), EvidenceStore(tmp_path))
    with pytest.raises(UserError, match="it has seeds 0 to 2, 7 of this, not 99; add it to 'cells'"):
        plan.must_be_known(Cell("phantom-d", "a", "cpu", 99))
    with pytest.raises(UserError, match=r"it has no dataset 'phantom-e'; did you mean 'phantom-d'\?$"):
        plan.must_be_known(Cell("phantom-e", "a", "cpu", 0))  # a slip is no new cell
    with pytest.raises(UserError, match="it has no cell on torchneuron; add it to 'cells' in the config"):
        plan.must_be_known(Cell("phantom-d", "a", "torchneuron", 0))
    with pytest.raises(UserError, match="it has no architecture 'b'"):
        plan.must_be_known(Cell("phantom-d", "b", "cpu", 99))


def test_with_a_cluster_its_nodes_platforms_count_and_not_this_machines(tmp_path: Path) -> None:
    plan = Plan(study(), EvidenceStore(tmp_path))
    assert plan.why_not_here(Cell("phantom-d", "a", "cuda", 0)) is None
    assert "nodes have no platform neuron" in plan.why_not_here(Cell("phantom-d", "a", "neuron", 0))
    alone = Plan(study(cluster=None), EvidenceStore(tmp_path))
    assert "no Neuron device on this machine" in alone.why_not_here(Cell("phantom-d", "a", "neuron", 0))


def test_the_overlay_of_the_slurm_profile_makes_a_valid_study_with_a_cluster() -> None:
    texts = ((ROOT / f"config/{name}.yaml").read_text() for name in ("config", "slurm"))
    config, overlay = map(yaml.safe_load, texts)
    study = parse_study({**config, **overlay})
    assert study.cluster is not None and set(study.cluster.platforms) <= set(study.cluster.partitions)
    profile = yaml.safe_load((ROOT / "workflow/profiles/slurm/profile.yaml").read_text())
    assert profile["configfile"] == "config/slurm.yaml" and profile["executor"] == "slurm"
