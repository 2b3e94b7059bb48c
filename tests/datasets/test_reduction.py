"""NIH's radiographs of 1024 px, reduced as the study says: the recorded pixels, or which images differ."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from tarballs import names, source

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_json
from cxrbench.datasets.decoding import in_steps
from cxrbench.datasets.nih import check_value, checks_file, read_checks
from cxrbench.datasets.packed import must_be_packed_from, pack, read_packed
from cxrbench.study.config import NihSource, read_study
from own_images import encoded

REDUCED = "opencv-bilinear-256-128"
RECORDED = ROOT / "data/recorded"


def reduced_source(folder: Path, pixels: int = 64, **changes: Any) -> NihSource:
    return source(folder, pixels=pixels, reduced=REDUCED, split="seeded-0", **changes)


@pytest.fixture(scope="module")
def small(nih128: Path, originals: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same radiographs as the originals, as the reduced archive has them."""
    folder, wanted = tmp_path_factory.mktemp("small"), {path.name for path in originals}
    with tarfile.open(nih128 / "images_002.tar.gz") as archive:
        for member in archive:
            if (name := Path(member.name).name) in wanted:
                (folder / name).write_bytes(archive.extractfile(member).read())
    assert len(list(folder.iterdir())) == len(originals) > 0
    return folder


@pytest.mark.parametrize(("mode", "pixels"), [("L", 128), ("RGB", 64), ("RGBA", 32)])
def test_the_originals_give_the_recorded_pixels_in_every_mode(
    mode, pixels, originals, small, tmp_path
) -> None:
    for path in originals:
        Image.open(path).convert(mode).save(tmp_path / path.name, compress_level=0)
    truth = pack("d", reduced_source(small, pixels), tmp_path / "truth", recorded=RECORDED)
    found = pack("d", reduced_source(tmp_path, pixels), tmp_path / "packed", recorded=RECORDED)
    assert found["source_modes"] == {mode: len(originals)} and found["source_sizes"] != truth["source_sizes"]
    assert found["packed"] == truth["packed"] and found["sha256"] == truth["sha256"]
    assert found["unlike_recorded"] == truth["unlike_recorded"] == []


@given(arrays(np.uint8, (1024, 8)))
def test_each_pixel_is_the_mean_of_the_four_in_the_middle_rounded_half_up(columns: np.ndarray) -> None:
    image = np.tile(columns, 128)
    means = image.reshape(256, 4, 256, 4)[:, 1:3, :, 1:3].sum(axis=(1, 3), dtype=int)
    step = (means + 2) // 4
    means = (step.reshape(128, 2, 128, 2).sum(axis=(1, 3)) + 2) // 4
    assert (in_steps(Image.fromarray(image), (256, 128), 1024, "") == means).all()


@given(st.integers(0, 127), st.integers(0, 127), st.integers(0, 255))
def test_an_image_of_the_reduced_size_is_taken_as_it_is(row: int, column: int, value: int) -> None:
    image = np.zeros((128, 128), np.uint8)
    image[row, column] = value
    assert (in_steps(Image.fromarray(image), (256, 128), 1024, "") == image).all()


def test_images_that_differ_from_the_recorded_ones_are_named(small, tmp_path) -> None:
    folder = shutil.copytree(small, tmp_path / "raw")
    first, second, *_ = sorted(path.name for path in folder.iterdir())
    changed = np.array(Image.open(folder / second))
    changed[3, 5] ^= 1
    (folder / second).write_bytes(encoded(changed))
    done = pack("d", reduced_source(folder), tmp_path / "packed", recorded=RECORDED)
    assert done["unlike_recorded"] == [second]
    (folder / first).unlink()
    with pytest.raises(UserError, match=r"\(00001336_000\.png and 9,98\d more of the recorded ones are m"):
        pack("e", reduced_source(folder, expect_images={"train": 13}), tmp_path / "packed", recorded=RECORDED)
    assert [path.name for path in (tmp_path / "packed").iterdir()] == ["d"]


def test_an_image_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / names(1)[0]).write_bytes(encoded(np.zeros((512, 512), np.uint8)))
    with pytest.raises(UserError, match="512 x 512 px; the reduction takes images of 1024 x 1024 px, as NIH"):
        pack("d", reduced_source(tmp_path / "raw"), tmp_path / "packed")
    with pytest.raises(ValueError, match="leaves 128 pixels; choose no more"):
        reduced_source(tmp_path, pixels=129)


def test_what_older_versions_packed_fits_only_if_it_needed_no_reduction(small, originals, tmp_path) -> None:
    for number, place in enumerate((small, originals[0].parent)):
        manifest = pack(f"d{number}", source(place, pixels=64, split="seeded-0"), tmp_path)
        del manifest["settings"]["reduced"]
        write_json(tmp_path / f"d{number}/manifest.json", manifest)
    must_be_packed_from(reduced_source(small), tmp_path / "d0")
    with pytest.raises(UserError, match=f"packed with reduced None, the study says {REDUCED}"):
        must_be_packed_from(reduced_source(small), tmp_path / "d1")


@pytest.mark.slow
def test_every_image_of_the_reduced_archive_has_the_recorded_check_value(
    nih128: Path, tmp_path: Path
) -> None:
    config = read_study(ROOT / "config/config.yaml").dataset("nih128-128px")
    manifest = pack("d", config.model_copy(update={"folder": nih128}), tmp_path, recorded=RECORDED)
    checks, packed = read_checks(checks_file(RECORDED, REDUCED)), read_packed(tmp_path / "d")
    assert manifest["unlike_recorded"] == [] and checks.keys() == set(packed.index["image"])
    assert [checks[name] for name in packed.index["image"]] == list(map(check_value, packed.images))
