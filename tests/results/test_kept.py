"""Scores are computed once per file of predictions, and what is kept is what was computed."""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from sklearn.metrics import roc_auc_score

from conftest import ROOT, must_work
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import LAST, read_record
from cxrbench.results.kept import CELLS, SCORES, keep, keep_scores, kept, read_scores
from cxrbench.statistics.estimates import estimate_cell
from cxrbench.statistics.predictions import findings_of
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell

STUDY = read_study(ROOT / "config/config.yaml")
ARM = "nih128-32px-arith-tf32/convnext_pico/cpu/seed0"
NAMES = [f"phantom-32px/resnet18/cpu/seed{seed}" for seed in (0, 1)]


class Tree(NamedTuple):
    numbers: np.ndarray
    texts: tuple[str, ...]
    table: pd.DataFrame
    more: dict


@given(
    arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.floats()),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.dictionaries(st.text("ab /", max_size=3), st.none() | st.booleans() | st.integers(0, 9)),
)
def test_a_tree_comes_back_bit_for_bit(tmp_path_factory, numbers, texts, more) -> None:
    table = pd.DataFrame(
        {"text": pd.Series(texts, dtype=object), "count": pd.array([1] * len(texts), "Int64")}
    )
    tree = Tree(numbers, tuple(texts), table, {"names": np.array([*texts, "a"], object), "more": more})
    path = tmp_path_factory.mktemp("tree") / "one.parquet"
    keep(path, tree, "this")
    again = kept(path, "this", {"Tree": Tree})
    assert again.numbers.tobytes() == numbers.tobytes() and again.numbers.shape == numbers.shape
    assert (again.texts, again.more["more"]) == (tree.texts, more)
    assert again.more["names"].tolist() == [*texts, "a"]
    pd.testing.assert_frame_equal(again.table, table)
    assert kept(path, "that", {"Tree": Tree}) is None


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with two adopted cells."""
    for name in NAMES:
        shutil.copytree(ROOT / "data/recorded" / name, tmp_path / CELLS / name)
    return tmp_path


def keep_all(results: Path, names: list[str]) -> list[str]:
    """Score the cells of these ``names`` where that is missing; their notes."""
    return keep_scores([read_record(results / CELLS / name) for name in names], STUDY, results)


def files(results: Path) -> dict[Path, int]:
    """The files of scores, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in (results / SCORES).iterdir()}


def test_a_new_cell_is_the_only_one_that_is_scored(results: Path) -> None:
    notes = keep_all(results, NAMES[:1])
    first = files(results)
    both = keep_all(results, NAMES)
    assert len(first) == 1 and first.items() < files(results).items() and len(files(results)) == 2
    assert notes == [note for note in both if note.startswith(NAMES[0])] and len(both) == 2 * len(notes)
    assert list(json.loads((results / "scores.json").read_text())) == NAMES
    keep_all(results, NAMES[:1])
    assert files(results) == first  # and nothing of a cell that is gone


def test_two_cells_that_predict_the_same_are_not_scored_in_turns(results: Path) -> None:
    """Only one of them kept its last weights, so each has scores of its own."""
    names = [ARM.replace("tf32", "fp32"), "nih128-32px/convnext_pico/cpu/seed0"]
    for name in names:
        shutil.copytree(ROOT / "data/recorded" / name, results / CELLS / name)
    predicted = {sha256_file(results / CELLS / name / "predictions.parquet") for name in names}
    keep_all(results, names)
    once = files(results)
    _, scores = read_scores(STUDY, results)
    assert [scores[Cell.parse(name)].last is None for name in names] == [False, True]
    keep_all(results, names[::-1])
    assert len(predicted) == 1 and len(once) == 2 and files(results) == once


@pytest.mark.slow
def test_kept_scores_are_those_of_the_predictions(results: Path) -> None:
    keep_all(results, NAMES)
    _, scored = read_scores(STUDY, results)
    for cell, scores in scored.items():
        predictions = read_predictions(cell.folder(results / CELLS) / "predictions.parquet")
        fresh = estimate_cell(predictions, STUDY.endpoint.positive_patients)
        assert (scores.estimate.keys, scores.estimate.note) == (fresh.keys, fresh.note)
        for name in ("value", "influence", "freedom"):
            ours, theirs = (getattr(of.estimate, name) for of in (scores.estimate, fresh))
            assert ours.tobytes() == theirs.tobytes() and ours.strides == theirs.strides, name
        assert scores.estimate.same_images(fresh)


def test_the_weights_after_the_last_step_are_scored_beside_the_averaged_ones(results: Path) -> None:
    """Each arm's declaration promises both; older records kept none of the former."""
    shutil.copytree(ROOT / "data/recorded" / ARM, results / CELLS / ARM)
    keep_all(results, [NAMES[0], ARM])
    of_old, of_arm = (read_scores(STUDY, results)[1][Cell.parse(name)] for name in (NAMES[0], ARM))
    assert of_old.last is None
    last = pd.read_parquet(results / CELLS / ARM / LAST)
    patients = {name: last.loc[last[f"label_{name}"] == 1, "patient"].nunique() for name in findings_of(last)}
    many = [name for name, count in patients.items() if count >= STUDY.endpoint.positive_patients]
    areas = [roc_auc_score(last[f"label_{name}"], last[f"score_{name}"]) for name in many]
    unaveraged, averaged = (
        of.estimate.value[of.keys.index(("endpoint", "auroc"))] for of in (of_arm.last, of_arm.estimate)
    )
    assert len(many) == 13 and unaveraged == pytest.approx(np.mean(areas), abs=1e-12) != averaged
    (old,) = (results / SCORES).glob(f"{sha256_file(results / CELLS / ARM / 'predictions.parquet')}*")
    old.unlink()
    last.iloc[::-1].to_parquet(results / CELLS / ARM / LAST)
    with pytest.raises(UserError, match=rf"{LAST}: not what its record has the hash of; build again"):
        keep_all(results, [ARM])


def last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def other_values(path: Path) -> None:
    """A sound Parquet file of other values: nobody made it by scoring."""
    pd.DataFrame({"value": [1.0]}).to_parquet(path)


@pytest.mark.slow
@pytest.mark.fault(
    "kept scores are lost, cut, edited or replaced", "the cell is scored again; the same bytes"
)
@pytest.mark.parametrize("damage", [os.remove, last_byte, other_values, lambda path: os.truncate(path, 99)])
def test_damaged_scores_are_made_again(results: Path, damage) -> None:
    keep_all(results, NAMES[:1])
    (path,) = files(results)
    content = path.read_bytes()
    damage(path)
    dict(read_scores(STUDY, results)[1])
    assert path.read_bytes() == content


def test_predictions_that_are_not_their_records_are_refused(results: Path) -> None:
    path = results / CELLS / NAMES[0] / "predictions.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    words = ["score.py", path.with_name("record.json"), "--results", results]
    with pytest.raises(AssertionError, match="not what its record has the hash of; build again"):
        must_work(*words)


@pytest.mark.parametrize("text", ["[", '{"a": 1}', "7"])
def test_a_list_of_cells_that_is_none_is_one_message(results: Path, text: str) -> None:
    (results / "scores.json").write_text(text)
    with pytest.raises(UserError, match=r"scores\.json"):
        read_scores(STUDY, results)
