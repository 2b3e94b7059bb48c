"""ChestMNIST through the medmnist package: the same packed form, and the same AUC as MedMNIST's Evaluator."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cxrbench.analysis.auroc import auroc
from cxrbench.analysis.evaluate import evaluate
from cxrbench.analysis.sample import sample_of
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.packed import data_present, pack, read_packed
from cxrbench.evidence.predictions import LABELS, SCORES, read_predictions, write_predictions
from cxrbench.study.config import ChestMnistSource, parse_study
from cxrbench.study.errors import UserError

PARTS = {"train": 78_468, "val": 11_219, "test": 22_433}


def arrays(pixels: int) -> dict[str, np.ndarray]:
    """As many made-up images and labels as ChestMNIST has; every finding is in every part."""
    rng = np.random.default_rng(0)
    made = {}
    for part, count in PARTS.items():
        made[f"{part}_images"] = rng.integers(0, 256, (count, pixels, pixels), dtype=np.uint8)
        made[f"{part}_labels"] = (rng.random((count, 14)) < np.linspace(0.02, 0.2, 14)).astype(np.uint8)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chestmnist")
    np.savez(folder / "chestmnist.npz", **arrays(28))
    return folder


def source(folder: Path, pixels: int = 28) -> ChestMnistSource:
    return ChestMnistSource(source="chestmnist", pixels=pixels, recipe="x", folder=folder)


@pytest.fixture(scope="module")
def packed(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("packed")
    pack("c", source(folder), root)
    return read_packed(root / "c")


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
    assert packed.manifest["as_published"] is False, "made-up pixels are not passed off as MedMNIST's"


@pytest.fixture(scope="module")
def predictions(packed) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = np.concatenate([packed.rows("val"), packed.rows("test")])
    table = packed.index.iloc[rows][["image", "split"]].reset_index(drop=True)
    table[LABELS] = packed.labels()[rows]
    table[SCORES] = np.clip(packed.labels()[rows] * 0.1 + rng.random((len(rows), 14)), 0, 1)
    return table


def test_medmnists_evaluator_agrees_with_our_auroc(predictions, folder: Path) -> None:
    from medmnist import Evaluator

    scores = predictions.loc[predictions["split"] == "test", SCORES].to_numpy()
    theirs = Evaluator("chestmnist", "test", root=str(folder)).evaluate(scores).AUC
    assert auroc(sample_of(predictions, "test")).value.mean() == pytest.approx(theirs, abs=1e-12)


def test_evidence_without_patients_is_kept_and_its_intervals_are_by_image(predictions, tmp_path) -> None:
    write_predictions(tmp_path / "predictions.parquet", predictions)
    kept = read_predictions(tmp_path / "predictions.parquet")
    assert "patient" not in kept
    methods = set(evaluate(kept, replicates=20).table["ci_method"])
    assert "delong-image" in methods and "delong-patient" not in methods


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda made: made | {"val_images": made["val_images"][:-1]}, id="shortened"),
        pytest.param(lambda made: made | {"train_images": made["train_images"][:, :14, :14]}, id="size"),
        pytest.param(lambda made: made | {"test_labels": made["test_labels"] + 1}, id="bad labels"),
        pytest.param(lambda made: {k: v for k, v in made.items() if k != "test_labels"}, id="nameless"),
        pytest.param(lambda made: made | {"train_labels": np.array([object()])}, id="pickled"),
    ],
)
def test_what_is_not_chestmnist_is_refused(damage, tmp_path: Path) -> None:
    np.savez(tmp_path / "chestmnist.npz", **damage(arrays(28)))
    with pytest.raises(UserError, match=r"chestmnist.npz: .*not ChestMNIST at 28 px; see what is wrong"):
        pack("c", source(tmp_path), tmp_path / "packed")
    assert not list((tmp_path / "packed").iterdir())


@pytest.mark.fault("a ChestMNIST file unpacks to more than ChestMNIST", "refused before it is unpacked")
def test_a_bomb_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "chestmnist.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train_images.npy", bytes(200 << 20))
    with pytest.raises(UserError, match=r"chestmnist.npz: it unpacks to 209,715,200 bytes: not ChestMNIST"):
        pack("c", source(tmp_path), tmp_path / "packed")


def test_a_cut_or_missing_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "chestmnist.npz").write_bytes((folder / "chestmnist.npz").read_bytes()[:50_000_000])
    with pytest.raises(UserError, match=r"chestmnist.npz: damaged"):
        pack("c", source(tmp_path), tmp_path / "packed")
    assert not data_present(source(tmp_path, 64))
    with pytest.raises(UserError, match=r"cxrbench data download chestmnist --only chestmnist_64.npz"):
        pack("c", source(tmp_path, 64), tmp_path / "packed")


def test_the_study_knows_its_four_sizes() -> None:
    dataset = {"source": "chestmnist", "pixels": 64, "recipe": "r"}
    study = {"datasets": {"c": dataset}, "recipes": {"r": {"epochs": 1, "batch": 1}}, "cells": []}
    assert parse_study(study).dataset("c").folder == Path("data/raw/chestmnist")
    dataset["pixels"] = 32
    with pytest.raises(
        UserError, match=r"datasets.c.pixels: unknown value '32'; use one of 28, 64, 128 or 224"
    ):
        parse_study(study)
