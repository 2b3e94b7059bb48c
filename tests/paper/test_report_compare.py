"""Yours against recorded: inside for the same training, outside for another result, changes said first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, TINY, cxrbench
from cxrbench.analysis.compare import Comparison, Line, compare, readable
from cxrbench.analysis.evaluate import evaluate
from cxrbench.evidence.predictions import LABELS, SCORES, read_predictions, write_predictions
from cxrbench.evidence.store import copy_evidence
from cxrbench.study.cells import Cell
from cxrbench.study.config import Limits
from cxrbench.study.files import sha256_file
from cxrbench.training.job import Job
from cxrbench.training.runner import run


@pytest.fixture(scope="module")
def runs(tmp_path_factory, packed, recipe) -> Path:
    """Fresh evidence of a cell, and of a second seed that is the same but for its name."""
    root = tmp_path_factory.mktemp("runs")
    job = Job(
        **vars(CELL),
        recipe=recipe,
        limits=Limits(),
        packed=packed,
        work=root / "work",
        micro_batch=recipe.batch,
    )
    quiet = run(job, CELL.folder(root)).timing.model_copy(update={"others_share": 0.0})
    change(CELL.folder(root), timing=quiet.model_dump())  # whatever else this machine does meanwhile
    other = Cell("phantom-32px", TINY, "cpu", 1)
    copy_evidence(CELL.folder(root), other.folder(root))
    change(other.folder(root), cell=str(other))
    return root


CELL = Cell("phantom-32px", TINY, "cpu", 0)


def change(folder: Path, **values: object) -> None:
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(record | values))


def score(folder: Path, skill: float, seed: int) -> None:
    """Give the evidence in ``folder`` scores that know ``skill`` of the labels."""
    table = read_predictions(folder / "predictions.parquet")
    noise = np.random.default_rng(seed).random((len(table), len(SCORES)), dtype=np.float32)
    table[SCORES] = ((1 - skill) * noise + skill * table[LABELS].to_numpy()).astype(np.float32)
    write_predictions(folder / "predictions.parquet", table)
    change(folder, predictions_sha256=sha256_file(folder / "predictions.parquet"))


def test_the_same_training_is_inside_even_with_one_recorded_seed(runs, tmp_path) -> None:
    copy_evidence(CELL.folder(runs), CELL.folder(tmp_path))
    change(CELL.folder(tmp_path), ended="2026-01-01T00:00:00+00:00")
    found = compare(CELL, CELL.folder(runs), tmp_path)
    assert found.verdict == "inside the tolerance" and found.notes == []
    auroc, _, speed = found.lines
    assert auroc.yours == auroc.recorded and "one recorded seed" in auroc.origin
    assert speed.inside is None and "not judged" in readable(found)


def test_another_result_is_outside_and_says_where_the_tolerance_comes_from(runs, tmp_path) -> None:
    for seed in (0, 1):
        one = Cell("phantom-32px", TINY, "cpu", seed)
        copy_evidence(one.folder(runs), one.folder(tmp_path / "recorded"))
        score(one.folder(tmp_path / "recorded"), skill=0.5, seed=seed)
    mine = tmp_path / "mine"
    copy_evidence(CELL.folder(runs), mine)
    score(mine, skill=0.0, seed=2)  # a network that learnt nothing
    found = compare(CELL, mine, tmp_path / "recorded")
    assert not found.inside and found.lines[0].inside is False
    assert found.lines[0].origin == "spread of 2 recorded seeds"
    assert "OUTSIDE" in readable(found) and found.verdict == "OUTSIDE the tolerance"
    copy_evidence(CELL.folder(tmp_path / "recorded"), tmp_path / "again")
    change(tmp_path / "again", attempts=2)
    recorded = compare(CELL, tmp_path / "again", tmp_path / "recorded")
    assert [line.tolerance for line in recorded.lines[:2]] == [line.tolerance for line in found.lines[:2]]


def test_the_tolerance_is_that_of_two_runs_whatever_the_fresh_one_scored(runs, tmp_path) -> None:
    root, values = tmp_path / "recorded", []
    for seed in range(3):
        one = Cell("phantom-32px", TINY, "cpu", seed)
        copy_evidence(CELL.folder(runs), one.folder(root))
        change(one.folder(root), cell=str(one))
        score(one.folder(root), skill=0.3, seed=seed)
        table = evaluate(read_predictions(one.folder(root) / "predictions.parquet"), replicates=2).table
        auroc = table[(table["label"] == "macro") & (table["metric"] == "auroc")]
        values.append(auroc["value"].iloc[0])
    expected = 4.302653 * np.std(values, ddof=1) * 2**0.5  # t at 97.5 % with two degrees of freedom
    assert again(CELL, root).lines[0].tolerance == pytest.approx(expected)
    copy_evidence(CELL.folder(runs), tmp_path / "mine")
    score(tmp_path / "mine", skill=0.9, seed=9)
    assert compare(CELL, tmp_path / "mine", root).lines[0].tolerance == pytest.approx(expected)


def again(cell: Cell, recorded: Path) -> Comparison:
    """The recorded run of ``cell`` beside a second one that gave the same."""
    mine = recorded / "again" / str(cell)
    copy_evidence(cell.folder(recorded), mine)
    change(mine, attempts=2)
    return compare(cell, mine, recorded)


def test_a_run_beside_itself_is_no_agreement(runs, tmp_path) -> None:
    copy_evidence(CELL.folder(runs), CELL.folder(tmp_path))
    found = compare(CELL, CELL.folder(runs), tmp_path)
    assert found.verdict == "this is the recorded run itself: nothing was compared" and found.lines == []


def test_a_busy_machine_is_said_and_its_speed_is_not_judged(runs, tmp_path) -> None:
    for seed in range(3):
        one = Cell("phantom-32px", TINY, "cpu", seed)
        copy_evidence(CELL.folder(runs), one.folder(tmp_path))
        change(one.folder(tmp_path), cell=str(one), ended="2026-01-01T00:00:00+00:00")
    timing = json.loads((CELL.folder(runs) / "record.json").read_text())["timing"]
    mine = tmp_path / "mine"
    copy_evidence(CELL.folder(runs), mine)
    change(mine, timing=timing | {"others_share": 0.481})
    found = compare(CELL, mine, tmp_path)
    assert "yours trained beside other processes: others used 48 % of the cores" in found.notes
    assert found.lines[-1].origin == "on a busy machine: not judged"


def test_the_spread_of_speed_is_that_of_one_machine(runs, tmp_path) -> None:
    for seed, speed, cpu in ((0, 100.0, "A"), (1, 104.0, "A"), (2, 300.0, "B")):
        one = Cell("phantom-32px", TINY, "cpu", seed)
        copy_evidence(CELL.folder(runs), one.folder(tmp_path))
        record = json.loads((one.folder(tmp_path) / "record.json").read_text())
        timing, host = record["timing"] | {"images_per_second": speed}, record["host"] | {"cpu": cpu}
        change(one.folder(tmp_path), cell=str(one), timing=timing, host=host)
    speed = again(CELL, tmp_path).lines[-1]
    assert speed.tolerance == pytest.approx(12.7062 * np.std([100, 104], ddof=1) * 2**0.5)
    assert speed.origin == "spread of 2 recorded seeds on this machine"
    alone = Cell("phantom-32px", TINY, "cpu", 2)
    speed = again(alone, tmp_path).lines[-1]
    assert "one recorded seed on this machine" in speed.origin


def test_another_recipe_or_version_is_said_first(runs, tmp_path) -> None:
    copy_evidence(CELL.folder(runs), CELL.folder(tmp_path))
    folder = CELL.folder(tmp_path)
    record = json.loads((folder / "record.json").read_text())
    recipe = record["recipe"] | {"epochs": 7}
    change(folder, recipe=recipe, recipe_hash="0" * 12, versions=record["versions"] | {"timm": "0.9"})
    notes = compare(CELL, CELL.folder(runs), tmp_path).notes
    assert "another one (epochs)" in notes[0] and any(note.startswith("timm: ") for note in notes)


def test_without_recorded_evidence_it_says_so(runs, tmp_path) -> None:
    found = compare(CELL, CELL.folder(runs), tmp_path)
    assert found.inside and "nothing is recorded of it" in found.notes[0]
    assert found.verdict == "no score was judged"
    copy_evidence(CELL.folder(runs), CELL.folder(tmp_path))
    scored = again(CELL, tmp_path)
    assert [line.yours for line in found.lines] == [line.yours for line in scored.lines[:-1]]
    assert "not judged" in readable(found)


def test_a_speed_alone_is_no_agreement() -> None:
    score = Line("macro AUROC", 0.7, 0.7, None, "other images: not judged", None)
    for inside, said in ((True, "no score was judged"), (False, "no score was judged, the speed is OUTSIDE")):
        speed = Line("images per second", 90.0, 100.0, 12.0, "spread", inside)
        assert Comparison([], [score, speed]).verdict == said


def test_a_cell_that_cannot_run_here_is_one_sentence_and_an_unknown_one_has_a_nearest() -> None:
    study = ROOT / "config/config.yaml"
    done = cxrbench("cell", "check", "nih128-64px/resnet18/neuron/seed0", "--study", study)
    assert done.returncode == 3 and "cannot be trained here" in done.stderr
    done = cxrbench("cell", "check", "nih128-64px/resnet81/cpu/seed0", "--study", study)
    assert (
        done.returncode == 1 and "it has no architecture 'resnet81'; did you mean 'resnet18'" in done.stderr
    )
    assert "Traceback" not in done.stderr
