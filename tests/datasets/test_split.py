"""Splits keep a patient together and say what is wrong with a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split, check_disjoint, part_hash
from cxrbench.study.errors import UserError

PUBLISHED = {
    "chexnet": {"train": 78_468, "val": 11_219, "test": 22_433},
    "official": {"test": 25_596},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_splits_have_the_published_counts(name: str) -> None:
    table = read_nih_table()
    parts = assign_split(table, name)
    assert PUBLISHED[name].items() <= parts.value_counts().to_dict().items()
    assert set(parts) == {"train", "val", "test"}
    assert table.assign(split=parts).groupby("patient")["split"].nunique().max() == 1


def test_validation_of_the_official_split_does_not_depend_on_what_else_is_there() -> None:
    table = read_nih_table()
    whole = assign_split(table, "official")
    assert assign_split(table.iloc[:5000], "official").equals(whole.iloc[:5000])


def test_a_seeded_split_keeps_patients_together_and_does_not_depend_on_what_else_is_there() -> None:
    table = read_nih_table()
    parts = assign_split(table, "seeded-7")
    assert table.assign(split=parts).groupby("patient")["split"].nunique().max() == 1
    patients = table.assign(split=parts).drop_duplicates("patient")["split"].value_counts(normalize=True)
    assert patients.to_dict() == pytest.approx({"train": 0.7, "val": 0.1, "test": 0.2}, abs=0.01)
    assert assign_split(table.iloc[5000:9000], "seeded-7").equals(parts.iloc[5000:9000])
    assert (assign_split(table, "seeded-8") != parts).mean() > 0.3


def test_the_hash_of_a_part_is_that_of_the_published_list(nih128: Path) -> None:
    """NIH's own test_list.txt, sorted, has the hash that the manifest would give the official test part."""
    table = read_nih_table()
    test = table["image"][assign_split(table, "official") == "test"]
    published = sorted((nih128 / "test_list.txt").read_text().split())
    assert part_hash(test) == hashlib.sha256(("\n".join(published) + "\n").encode()).hexdigest()


def table():
    return read_nih_table().iloc[:6]


def from_file(folder: Path, rows: list[str]):
    (folder / "mine.csv").write_text("\n".join(["image,split", *rows]) + "\n")
    return assign_split(table(), "mine.csv", folder)


def test_a_file_may_say_the_split(tmp_path: Path) -> None:
    parts = ["test" if patient == 1 else "train" for patient in table()["patient"]]
    rows = [f"{image},{part}" for image, part in zip(table()["image"], parts, strict=True)]
    assert from_file(tmp_path, rows).tolist() == parts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [*rows, "99999999_000.png,test"], ":8: column image: 99999999_000.png"),
        (lambda rows: rows[:-1], "are in no part"),
        (
            lambda rows: [rows[0].replace("train", "tset"), *rows[1:]],
            ":2: column split: unknown value 'tset'",
        ),
        (lambda rows: [*rows, rows[0]], "second row for"),
        (lambda rows: [rows[0].replace("train", "test"), *rows[1:]], "patient 1 is in two parts"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_image(change, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        from_file(tmp_path, change([f"{image},train" for image in table()["image"]]))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        "image,split\nM\xfcller,test\n".encode("latin-1"),
        b'image,split\n"a,test\n',
        b"image,split\na,test,val\n",
    ],
)
def test_what_is_no_table_is_a_message(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"my\.csv:[12]:"):
        assign_split(table(), str(tmp_path / "my.csv"))


def test_an_unknown_split_names_the_published_ones() -> None:
    with pytest.raises(UserError, match="did you mean 'official'"):
        assign_split(table(), "offical")


def test_a_patient_in_two_parts_is_an_error() -> None:
    rows = table().assign(split=["train", "test", "train", "train", "train", "train"])
    with pytest.raises(UserError, match="patient 1 is in two parts"):
        check_disjoint(rows, "here")
