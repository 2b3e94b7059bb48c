"""Folders and tarballs of NIH-named images: read right, or refused with one message."""

from pathlib import Path

import numpy as np
import pytest
from tarballs import GOOD, member, names, source, tar, write_tar

from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack, read_packed
from cxrbench.datasets.split import assign_split
from own_images import encoded

RECORDED = "a7584e3f228e06ff85c318a2734ddd7a78d7de22c0f96a39b763d4085d5c2449"  # of nih128-64px's evidence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """400 images of noise, 48 px."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for name in names(400):
        (folder / name).write_bytes(encoded(rng.integers(0, 256, (48, 48), dtype=np.uint8)))
    return folder


def packed_from(folder: Path, tmp_path: Path, **changes: object):
    pack("d", source(folder, **{"pixels": 32} | changes), tmp_path / "packed")
    return read_packed(tmp_path / "packed/d")


def test_images_get_their_rows_of_the_label_table(folder: Path, tmp_path: Path) -> None:
    packed = packed_from(folder, tmp_path)
    assert packed.images.shape == (400, 32, 32) and packed.images.dtype == np.uint8
    truth = read_nih_table().set_index("image").loc[packed.index["image"]]
    assert (packed.index["patient"].to_numpy() == truth["patient"].to_numpy()).all()
    assert (packed.labels() == truth[list(packed.findings)].to_numpy()).all()
    assert packed.index.groupby("patient")["split"].nunique().max() == 1
    train = packed.images[packed.rows("train")] / 255
    assert packed.manifest["pixel_mean"] == pytest.approx(train.mean())
    assert packed.manifest["pixel_std"] == pytest.approx(train.std())


def test_a_tarball_or_a_link_gives_the_same_bytes_as_a_folder(folder: Path, tmp_path: Path) -> None:
    direct = packed_from(folder, tmp_path).manifest["packed"]
    members = [member(f"images/{path.name}", path.read_bytes()) for path in sorted(folder.iterdir())]
    write_tar(tmp_path / "tarballs/images_001.tar.gz", tar(members))
    assert packed_from(tmp_path / "tarballs", tmp_path / "1").manifest["packed"] == direct
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/nih").symlink_to(folder)
    (folder / "again").symlink_to(tmp_path / "raw")  # leads back: each folder is read once
    assert packed_from(tmp_path / "raw", tmp_path / "2").manifest["packed"] == direct


def test_resizing_is_antialiased(folder: Path, tmp_path: Path) -> None:
    checkers = (np.indices((256, 256)).sum(axis=0) % 2 * 255).astype(np.uint8)
    (folder / GOOD).write_bytes(encoded(checkers))
    image = packed_from(folder, tmp_path).images[0].astype(float)
    assert np.abs(image - 127.5).max() < 4, "a fine pattern must become grey, not a coarse pattern"


def test_an_unfinished_download_is_named_and_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    (folder / ".images_002.tar.gz.part").write_bytes(b"the first of 4 GB")
    with pytest.raises(UserError, match=r"\.images_002\.tar\.gz\.part.*an unfinished download"):
        packed_from(folder, tmp_path)
    assert not list((tmp_path / "packed").rglob("*"))


def test_an_empty_missing_or_incomplete_folder_says_what_to_put_there(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no PNG file and no tarball"):
        packed_from(tmp_path / "empty", tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        packed_from(tmp_path / "none", tmp_path)
    with pytest.raises(UserError, match="complete the folder, or correct expect_images"):
        packed_from(folder, tmp_path, expect_images={"train": 1, "val": 1, "test": 1})


@pytest.mark.slow
def test_the_real_radiographs_fall_into_the_published_parts_and_the_recorded_pixels(nih128, tmp_path) -> None:
    packed = packed_from(nih128, tmp_path, split="chexnet", pixels=64)
    assert packed.manifest["packed"] == RECORDED
    assert packed.manifest["images"] == {"train": 7077, "val": 938, "test": 1985}
    assert packed.manifest["patients"] == {"train": 1821, "val": 257, "test": 510}
    assert packed.manifest["positive_images"]["Hernia"]["test"] == 4
    official = assign_split(table := read_nih_table(), "official")
    published = set((nih128 / "test_list.txt").read_text().split())
    assert set(table["image"][official == "test"]) == published
