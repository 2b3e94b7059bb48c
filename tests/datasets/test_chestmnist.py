"""ChestMNIST through the medmnist package: the same packed form, and the same AUC as MedMNIST's Evaluator."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from medmnist import INFO, Evaluator

from columns import LABELS, SCORES
from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.datasets.packed import data_present, pack, read_packed
from cxrbench.evidence.predictions import read_predictions, write_predictions
from cxrbench.statistics.auroc import auroc
from cxrbench.statistics.evaluate import evaluate
from cxrbench.statistics.sample import sample_of
from cxrbench.study.config import ChestMnistSource, parse_study

PARTS = {"train": 78_468, "val": 11_219, "test": 22_433}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many made-up images and labels as ChestMNIST has, in place of the published file."""
    folder, rng, made = tmp_path_factory.mktemp("chestmnist"), np.random.default_rng(0), {}
    for part, count in PARTS.items():
        made[f"{part}_images"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        made[f"{part}_labels"] = (rng.random((count, 14)) < np.linspace(0.02, 0.2, 14)).astype(np.uint8)
    np.savez(folder / "chestmnist.npz", **made)
    return folder


def source(folder: Path, pixels: int = 28) -> ChestMnistSource:
    return ChestMnistSource(source="chestmnist", pixels=pixels, recipe="x", folder=folder)


@pytest.fixture(scope="module")
def packed(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    root, md5 = tmp_path_factory.mktemp("packed"), hashlib.md5((folder / "chestmnist.npz").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(INFO["chestmnist"], "MD5", md5.hexdigest())
        pack("c", source(folder), root)
    return read_packed(root / "c")


@pytest.fixture(scope="module")
def predictions(packed) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = np.concatenate([packed.rows("val"), packed.rows("test")])
    table = packed.index.iloc[rows][["image", "split"]].reset_index(drop=True)
    table[LABELS] = packed.labels()[rows].astype("uint8")
    table[SCORES] = np.clip(packed.labels()[rows] * 0.1 + rng.random((len(rows), 14)), 0, 1)
    return table


@pytest.mark.slow
def test_images_labels_and_parts_are_those_of_the_file_and_patients_unknown(packed, folder: Path) -> None:
    with np.load(folder / "chestmnist.npz") as file:
        for part, count in PARTS.items():
            rows = packed.rows(part)
            assert len(rows) == count
            assert (packed.images[rows] == file[f"{part}_images"]).all()
            assert (packed.labels()[rows] == file[f"{part}_labels"]).all()
    assert packed.manifest["images"] == PARTS and packed.manifest["pixels"] == 28
    assert list(packed.index.columns[6:]) == list(FINDINGS)
    assert packed.index[["patient", "view", "sex", "age"]].isna().all(axis=None)
    assert packed.manifest["patients_known"] is False


@pytest.mark.slow
def test_medmnists_evaluator_agrees_with_our_auroc(predictions, folder: Path) -> None:
    scores = predictions.loc[predictions["split"] == "test", SCORES].to_numpy()
    theirs = Evaluator("chestmnist", "test", root=str(folder)).evaluate(scores).AUC
    assert auroc(sample_of(predictions, "test")).value.mean() == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
def test_evidence_without_patients_is_kept_and_its_intervals_are_by_image(predictions, tmp_path) -> None:
    write_predictions(tmp_path / "predictions.parquet", predictions)
    kept = read_predictions(tmp_path / "predictions.parquet")
    assert "patient" not in kept
    methods = set(evaluate(kept, replicates=20).table["ci_method"])
    assert "delong-image" in methods and "delong-patient" not in methods


@pytest.mark.slow
@pytest.mark.fault("a ChestMNIST file unpacks to more than ChestMNIST", "refused before it is unpacked")
def test_any_but_the_published_file_is_refused(folder: Path, tmp_path: Path) -> None:
    """By its md5, before a byte is unpacked, so that damage, other data and bombs are alike."""
    with pytest.raises(UserError, match=r"chestmnist.npz: damaged, or not ChestMNIST at 28 px"):
        pack("c", source(folder), tmp_path / "packed")
    assert not data_present(source(folder, 64))
    with pytest.raises(UserError, match=r"cxrbench data download chestmnist --only chestmnist_64.npz"):
        pack("c", source(folder, 64), tmp_path / "packed")
    assert not list((tmp_path / "packed").iterdir())


def test_the_study_knows_its_four_sizes() -> None:
    dataset = {"source": "chestmnist", "pixels": 64, "recipe": "r"}
    study = {"datasets": {"c": dataset}, "recipes": {"r": {"epochs": 1, "batch": 1}}, "cells": []}
    assert parse_study(study).dataset("c").folder == Path("data/raw/chestmnist")
    dataset["pixels"] = 32
    with pytest.raises(UserError, match=r"c.pixels: unknown value '32'; use one of 28, 64, 128 or 224"):
        parse_study(study)
