"""Splits keep a patient together; a wrong file is named with line and image."""

from pathlib import Path

import pandas as pd
import pytest

from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split

TABLE = read_nih_table()
SIX = TABLE.iloc[:6]
TRAIN = [f"{image},train" for image in SIX["image"]]


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("chexnet", {"train": 78_468, "val": 11_219, "test": 22_433}),
        ("official", {"test": 25_596}),
        ("seeded-7", {}),
        ("fold-2-of-5", {}),
    ],
)
def test_a_split_has_its_counts_keeps_patients_together_and_depends_on_no_other_image(name, images) -> None:
    parts = assign_split(TABLE, name)
    assert images.items() <= parts.value_counts().to_dict().items()
    assert set(parts) == {"train", "val", "test"}
    assert TABLE.assign(split=parts).groupby("patient")["split"].nunique().max() == 1
    assert assign_split(TABLE.iloc[5000:9000], name).equals(parts.iloc[5000:9000])


def test_a_seeded_split_has_its_shares_and_another_seed_other_patients() -> None:
    parts = assign_split(TABLE, "seeded-7")
    patients = TABLE.assign(split=parts).drop_duplicates("patient")["split"].value_counts(normalize=True)
    assert patients.to_dict() == pytest.approx({"train": 0.7, "val": 0.1, "test": 0.2}, abs=0.01)
    assert (assign_split(TABLE, "seeded-8") != parts).mean() > 0.3


def test_each_patient_is_a_test_patient_in_exactly_one_fold() -> None:
    folds = [assign_split(TABLE, f"fold-{k}-of-5") for k in range(1, 6)]
    assert (sum((parts == "test").astype(int) for parts in folds) == 1).all()
    of_rest = [(parts == "val").sum() / (parts != "test").sum() for parts in folds]
    assert of_rest == pytest.approx([0.125] * 5, abs=0.01)


@pytest.mark.parametrize("name", ["fold-0-of-5", "fold-6-of-5", "fold-1-of-1"])
def test_a_fold_that_cannot_be_says_how_to_write_one(name: str) -> None:
    with pytest.raises(UserError, match=f"split '{name}': write fold-K-of-N with K from 1 to N"):
        assign_split(SIX, name)


def from_file(folder: Path, rows: list[str]) -> pd.Series:
    (folder / "mine.csv").write_text("\n".join(["image,split", *rows]) + "\n")
    return assign_split(SIX, "mine.csv", folder)


def test_a_file_may_have_the_split(tmp_path: Path) -> None:
    parts = ["test" if patient == 1 else "train" for patient in SIX["patient"]]
    rows = [",".join(row) for row in zip(SIX["image"], parts, strict=True)]
    assert from_file(tmp_path, rows).tolist() == parts


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*TRAIN, "99999999_000.png,test"], ":8: column image: the image folder lacks 99999999_000.png;"),
        (TRAIN[:-1], "no part has image"),
        ([TRAIN[0].replace("train", "tset"), *TRAIN[1:]], ":2: column split: unknown value 'tset'"),
        ([TRAIN[0].replace("train", "test"), *TRAIN[1:]], "patient 1 is in two parts"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_image(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        from_file(tmp_path, rows)


def test_an_unknown_split_names_the_published_ones() -> None:
    with pytest.raises(UserError, match="did you mean 'official'"):
        assign_split(SIX, "offical")
