"""Folders and tarballs of NIH-named images: read right, or refused with one message."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from tarballs import png, source

from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack, read_packed
from cxrbench.study.errors import UserError


@pytest.fixture
def names() -> list[str]:
    """Images of NIH's table with some in each part of the chexnet split."""
    return read_nih_table()["image"].iloc[:400].tolist()


@pytest.fixture
def folder(tmp_path: Path, names: list[str]) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(png(rng.integers(0, 256, (48, 48), dtype=np.uint8)))
    return folder


def packed_from(folder: Path, tmp_path: Path, **changes: object):
    pack("d", source(folder, **{"pixels": 32} | changes), tmp_path / "packed")
    return read_packed(tmp_path / "packed/d")


def test_images_get_their_rows_of_the_label_table(folder: Path, tmp_path: Path, names: list[str]) -> None:
    packed = packed_from(folder, tmp_path)
    assert packed.images.shape == (len(names), 32, 32) and packed.images.dtype == np.uint8
    truth = read_nih_table().set_index("image").loc[packed.index["image"]]
    assert (packed.index["patient"].to_numpy() == truth["patient"].to_numpy()).all()
    assert (packed.labels()[:, 0] == truth["Atelectasis"].to_numpy()).all()
    assert packed.index.groupby("patient")["split"].nunique().max() == 1
    train = packed.images[packed.rows("train")] / 255
    assert packed.manifest["pixel_mean"] == pytest.approx(train.mean())
    assert packed.manifest["pixel_std"] == pytest.approx(train.std())


def test_a_tarball_gives_the_same_bytes_as_a_folder(folder: Path, tmp_path: Path, names: list[str]) -> None:
    tarballs = tmp_path / "tarballs"
    tarballs.mkdir()
    with tarfile.open(tarballs / "images_001.tar.gz", "w:gz") as archive:
        for name in names:
            archive.add(folder / name, f"images/{name}")
    first, second = packed_from(folder, tmp_path / "1"), packed_from(tarballs, tmp_path / "2")
    assert first.manifest["packed"] == second.manifest["packed"]


def test_resizing_is_antialiased(folder: Path, tmp_path: Path, names: list[str]) -> None:
    checkers = (np.indices((256, 256)).sum(axis=0) % 2 * 255).astype(np.uint8)
    (folder / names[0]).write_bytes(png(checkers))
    image = packed_from(folder, tmp_path).images[0].astype(float)
    assert np.abs(image - 127.5).max() < 4, "a fine pattern must become grey, not a coarse pattern"


def truncated(folder: Path, names: list[str]) -> str:
    (folder / names[3]).write_bytes((folder / names[3]).read_bytes()[:200])
    return names[3]


def foreign_name(folder: Path, names: list[str]) -> str:
    (folder / names[3]).rename(folder / "holiday.png")
    return "holiday.png"


def too_small(folder: Path, names: list[str]) -> str:
    (folder / names[3]).write_bytes(png(np.zeros((16, 16), dtype=np.uint8)))
    return names[3]


def not_an_image(folder: Path, names: list[str]) -> str:
    (folder / names[3]).write_text("<html>404</html>")
    return names[3]


def twice(folder: Path, names: list[str]) -> str:
    (folder / "copy").mkdir()
    (folder / "copy" / names[3]).write_bytes((folder / names[3]).read_bytes())
    return names[3]


def damaged_tarball(folder: Path, names: list[str]) -> str:
    (folder / "images_001.tar.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    return "images_001.tar.gz"


@pytest.mark.parametrize("damage", [truncated, foreign_name, too_small, not_an_image, twice, damaged_tarball])
def test_what_cannot_be_read_is_named_and_nothing_is_left(
    damage, folder: Path, tmp_path: Path, names
) -> None:
    culprit = damage(folder, names)
    with pytest.raises(UserError) as error:
        packed_from(folder, tmp_path)
    assert culprit in str(error.value)
    assert not list((tmp_path / "packed").rglob("*"))


def test_an_empty_or_missing_folder_says_what_to_put_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no PNG file and no tarball"):
        packed_from(tmp_path / "empty", tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        packed_from(tmp_path / "none", tmp_path)


def test_a_download_that_is_not_finished_is_not_packed(folder: Path, tmp_path: Path) -> None:
    (folder / ".images_002.tar.gz.part").write_bytes(b"the first of 4 GB")
    with pytest.raises(UserError, match=r"\.images_002\.tar\.gz\.part: an unfinished download"):
        packed_from(folder, tmp_path)


def test_a_linked_folder_is_looked_into_and_one_that_leads_back_is_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/nih").symlink_to(folder)
    (folder / "again").symlink_to(tmp_path / "raw")
    linked, direct = packed_from(tmp_path / "raw", tmp_path / "a"), packed_from(folder, tmp_path / "b")
    assert linked.manifest["packed"] == direct.manifest["packed"]


def test_counts_that_are_expected_are_asserted(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is the folder complete"):
        packed_from(folder, tmp_path, expect_images={"train": 1, "val": 1, "test": 1})


@pytest.mark.parametrize(
    ("split", "images", "patients"),
    [
        ("chexnet", {"train": 7077, "val": 938, "test": 1985}, {"train": 1821, "val": 257, "test": 510}),
        ("official", {"test": 1492}, {"test": 91}),
    ],
)
def test_the_real_radiographs_fall_into_the_published_parts(
    nih128, tmp_path, split, images, patients
) -> None:
    packed = packed_from(nih128, tmp_path, split=split)
    assert len(packed.images) == 10_000 and packed.index["patient"].nunique() == 2_588
    assert images.items() <= packed.manifest["images"].items()
    assert patients.items() <= packed.manifest["patients"].items()
    if split == "chexnet":
        assert packed.manifest["positive_images"]["Hernia"]["test"] == 4
    else:
        assert packed.manifest["images"]["train"] + packed.manifest["images"]["val"] == 8_508
