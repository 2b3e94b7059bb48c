"""Yours against recorded: inside for the same training, outside for another result, changes said first."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from columns import LABELS, SCORES
from conftest import ROOT, change_record, must_fail
from cxrbench.cli.train import compared_lines
from cxrbench.common.files import sha256_file
from cxrbench.evidence.predictions import read_predictions, write_predictions
from cxrbench.evidence.store import copy_evidence
from cxrbench.results.reproduction import REPRODUCTIONS, Line, Reproduction, compare_with_record, tolerances
from cxrbench.statistics.evaluate import evaluate
from cxrbench.study.names import Cell

CELL = Cell("phantom-32px", "resnet18", "cpu", 0)
UNKNOWN = "nih128-64px/resnet81/cpu/seed0"


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> Path:
    """Evidence of the cell, as if made here on an idle machine."""
    folder = CELL.folder(tmp_path_factory.mktemp("runs"))
    copy_evidence(CELL.folder(ROOT / "data/recorded"), folder)
    change_record(folder, timing={"others_share": 0.0})
    return folder


def keep(mine: Path, root: Path, seed: int = 0, skill: float | None = None, **values: object) -> Path:
    """Put the evidence of another run below ``root``, with scores that know ``skill`` of the labels."""
    cell = replace(CELL, seed=seed)
    folder = cell.folder(root)
    copy_evidence(mine, folder)
    if skill is not None:
        table = read_predictions(folder / "predictions.parquet")
        noise = np.random.default_rng(seed).random((len(table), len(SCORES)), dtype=np.float32)
        table[SCORES] = ((1 - skill) * noise + skill * table[LABELS].to_numpy()).astype(np.float32)
        write_predictions(folder / "predictions.parquet", table)
        values["predictions_sha256"] = sha256_file(folder / "predictions.parquet")
    change_record(folder, cell=str(cell), ended="2026-01-01T00:00:00+00:00", **values)
    return folder


def again(recorded: Path, cell: Cell = CELL) -> Reproduction:
    """Compare the recorded run of ``cell`` with a second one that gave the same."""
    copy_evidence(cell.folder(recorded), recorded / "again" / str(cell))
    change_record(recorded / "again" / str(cell), attempts=2)
    return compare_with_record(cell, recorded / "again" / str(cell), recorded)


def test_the_same_training_is_inside_even_with_one_recorded_seed(mine: Path, tmp_path: Path) -> None:
    keep(mine, tmp_path)
    found = compare_with_record(CELL, mine, tmp_path)
    assert found.verdict == "inside the tolerance: the predictions are equal to the byte"
    assert found.identical and found.notes == []
    auroc, _, speed = found.lines
    assert auroc.yours == auroc.recorded and "one recorded seed" in auroc.origin
    assert speed.inside is None and "not judged" in compared_lines(found)


def test_another_result_is_outside_and_says_where_the_tolerance_comes_from(mine: Path, tmp_path) -> None:
    for seed in (0, 1):
        keep(mine, tmp_path, seed, skill=0.5)
    chance = keep(mine, tmp_path / "chance", seed=2, skill=0.0)  # a network that learnt nothing
    change_record(chance, cell=str(CELL))
    found = compare_with_record(CELL, chance, tmp_path)
    assert not found.inside and found.lines[0].origin == "spread of 2 recorded seeds"
    assert "OUTSIDE" in compared_lines(found) and found.verdict == "OUTSIDE the tolerance"


def test_what_is_measured_about_processors_is_said_where_bytes_differ(mine: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        keep(mine, tmp_path, seed, skill=0.5)
    shutil.copy(ROOT / "data/recorded" / REPRODUCTIONS, tmp_path)
    for device, why in (("CPU (AVX512)", "the same instructions"), ("CPU (AVX2)", "other instructions")):
        change_record(CELL.folder(tmp_path), host={"device": "CPU (AVX512)"})
        other = keep(mine, tmp_path / device, skill=0.51, host={"device": device})
        found = compare_with_record(CELL, other, tmp_path)
        (note,) = (note for note in found.notes if "not equal to the byte" in note)
        assert why in note and "were equal to the byte; with others macro AUROC moved by up to 0.0" in note
        assert not found.identical and "equal to the byte" not in found.verdict


def test_the_tolerance_is_that_of_two_runs_whatever_the_fresh_one_scored(mine: Path, tmp_path: Path) -> None:
    values = []
    for seed in range(3):
        folder = keep(mine, tmp_path, seed, skill=0.3)
        table = evaluate(read_predictions(folder / "predictions.parquet"), replicates=2).table
        values.append(table.query("label == 'macro' and metric == 'auroc'")["value"].iloc[0])
    expected = 4.302653 * np.std(values, ddof=1) * 2**0.5  # t at 97.5 % with two degrees of freedom
    better = keep(mine, tmp_path / "better", skill=0.9)
    for found in (again(tmp_path), compare_with_record(CELL, better, tmp_path)):
        assert found.lines[0].tolerance == pytest.approx(expected)


def test_five_recorded_seeds_are_a_reference(mine: Path, tmp_path: Path) -> None:
    for seed in range(5):
        keep(mine, tmp_path, seed, skill=0.3)
    runs = {skill: keep(mine, tmp_path / str(skill), seed=7, skill=skill) for skill in (0.3, 0.1)}
    lines = {}
    for skill, folder in runs.items():
        change_record(folder, cell=str(CELL))
        folder.rename(CELL.folder(tmp_path / str(skill)))
        lines[skill] = compare_with_record(CELL, CELL.folder(tmp_path / str(skill)), tmp_path).lines
    assert [line.inside for line in lines[0.3][:2]] == [True, True]
    assert "the mean of 5 recorded runs; detects a change of 0.0" in lines[0.3][0].origin
    assert lines[0.1][0].inside is False


def test_the_spread_of_speed_is_that_of_one_idle_machine(mine: Path, tmp_path: Path) -> None:
    for seed, speed, cpu in ((0, 100.0, "A"), (1, 104.0, "A"), (2, 300.0, "B")):
        keep(mine, tmp_path, seed, timing={"images_per_second": speed}, host={"cpu": cpu})
    speed = again(tmp_path).lines[-1]
    assert speed.tolerance == pytest.approx(12.7062 * np.std([100, 104], ddof=1) * 2**0.5)
    assert speed.origin == "spread of 2 recorded seeds on this machine"
    alone = again(tmp_path, replace(CELL, seed=2)).lines[-1]
    assert "one recorded seed on this machine" in alone.origin
    others = {"timing": {"others_share": 0.481}, "host": {"cpu": "A"}}
    busy = compare_with_record(CELL, keep(mine, tmp_path / "busy", attempts=2, **others), tmp_path)
    assert "yours trained beside other processes: others used 48 % of the cores" in busy.notes
    assert busy.lines[-1].origin == "on a busy machine: not judged"


def test_another_recipe_or_version_is_said_first(mine: Path, tmp_path: Path) -> None:
    keep(mine, tmp_path, recipe={"epochs": 7}, recipe_hash="0" * 12, versions={"timm": "0.9"})
    notes = compare_with_record(CELL, mine, tmp_path).notes
    assert "the recipes differ (epochs)" in notes[0] and any(note.startswith("timm: ") for note in notes)


def test_without_other_evidence_nothing_agrees(mine: Path, tmp_path: Path) -> None:
    found = compare_with_record(CELL, mine, tmp_path)
    assert found.inside and "nothing is recorded of it" in found.notes[0]
    assert found.verdict == "no score was judged" and "not judged" in compared_lines(found)
    copy_evidence(mine, CELL.folder(tmp_path))
    assert [line.yours for line in found.lines] == [line.yours for line in again(tmp_path).lines[:-1]]
    itself = compare_with_record(CELL, mine, tmp_path)
    assert itself.verdict == "this is the recorded run itself: nothing was compared" and itself.lines == []


@pytest.mark.parametrize(("inside", "also"), [(True, ""), (False, ", the speed is OUTSIDE")])
def test_a_speed_alone_is_no_agreement(inside: bool, also: str) -> None:
    score = Line("macro AUROC", 0.7, 0.7, None, "other images: not judged", None)
    speed = Line("images per second", 90.0, 100.0, 12.0, "spread", inside)
    assert Reproduction([], [score, speed]).verdict == f"no score was judged{also}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["check", "nih128-64px/resnet18/neuron/seed0"], 3, "cannot be trained here"),
        (["check", UNKNOWN], 1, "no architecture 'resnet81'; did you mean 'resnet18'"),
        (["compare", UNKNOWN], 1, "no architecture 'resnet81'; did you mean 'resnet18'"),
    ],
)
def test_a_cell_that_cannot_run_here_and_an_unknown_one_are_named(words, code: int, message: str) -> None:
    assert message in must_fail("cell", *words, "--study", ROOT / "config/config.yaml", code=code)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("nih128-32px-fp32/resnet18", 10), ("nih128-64px/resnet18", 3)])
def test_a_tolerance_lies_around_the_mean_of_a_reference_and_else_around_the_record(name, seeds) -> None:
    """ARTIFACT.md printed the recorded value with the tolerance that is around the mean of ten runs."""
    recorded, values = ROOT / "data/recorded", []
    for seed in range(seeds):
        table = read_predictions(recorded / name / f"cpu/seed{seed}/predictions.parquet")
        table = table[table["split"] == "test"]
        values.append(
            np.mean([roc_auc_score(table[y], table[s]) for y, s in zip(LABELS, SCORES, strict=True)])
        )
    line = tolerances(Cell.parse(f"{name}/cpu/seed1"), recorded)[0]
    around = np.mean(values) if seeds == 10 else values[1]
    assert line.recorded == pytest.approx(values[1]) and line.centre == pytest.approx(around)
    assert abs(np.mean(values) - values[1]) > 1e-4, "the two centres differ"
