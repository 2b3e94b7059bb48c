"""The phantom dataset: real rows, the same bytes however they are drawn, findings that can be seen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.phantom import choose_rows, contact_sheet, draw
from cxrbench.study.errors import UserError

SIZES = {"train": 700, "val": 450, "test": 500}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return choose_rows(read_nih_table(), SIZES, seed=3, min_patients=20)


def pictures(rows: pd.DataFrame, pixels: int = 32, **how: int) -> np.ndarray:
    return np.concatenate(list(draw(rows, pixels, **{"seed": 3, "workers": 1, **how})))


def one_row(finding: str | None, image: str = "phantom_test.png", view: str = "PA") -> pd.DataFrame:
    labels = {f: np.uint8(f == finding) for f in FINDINGS}
    return pd.DataFrame([{"image": image, "patient": 7, "view": view, "sex": "M", "age": 50, **labels}])


# ---------------------------------------------------------------------------------------- rows


def test_each_split_has_the_images_asked_for_and_no_image_twice(rows):
    assert rows.groupby("split").size().to_dict() == SIZES
    assert rows["image"].is_unique and rows["image"].is_monotonic_increasing
    assert list(rows.columns) == ["image", "patient", "split", "view", "sex", "age", *FINDINGS]


def test_no_patient_is_in_two_splits_and_some_have_several_images(rows):
    assert (rows.groupby("patient")["split"].nunique() == 1).all()
    for split in SPLITS:
        images = rows[rows["split"] == split].groupby("patient").size()
        assert 0.1 < (images > 1).mean() < 0.7


def test_every_finding_has_its_patients_in_every_split(rows):
    for split in SPLITS:
        part = rows[rows["split"] == split]
        for finding in FINDINGS:
            assert part.loc[part[finding] == 1, "patient"].nunique() >= 20, (split, finding)
        assert (part[list(FINDINGS)].sum(axis=1) == 0).mean() > 0.1  # and No Finding is there


def test_rows_are_those_of_the_nih_table(rows):
    assert rows["image"].str.startswith("phantom_").all()
    real = read_nih_table().set_index("image").loc[rows["image"].str.removeprefix("phantom_")]
    kept = [column for column in rows.columns if column not in ("image", "split")]
    pd.testing.assert_frame_equal(rows[kept], real[kept].reset_index(drop=True))


def test_rows_depend_on_the_seed_only(rows):
    again = choose_rows(read_nih_table(), SIZES, seed=3, min_patients=20)
    other = choose_rows(read_nih_table(), SIZES, seed=4, min_patients=20)
    pd.testing.assert_frame_equal(rows, again)
    assert set(rows["image"]) != set(other["image"])


def test_too_many_patients_asked_names_the_finding_and_the_remedy():
    with pytest.raises(UserError, match=r"Hernia has 134 patients.*lower min_patients to 44"):
        choose_rows(read_nih_table(), {"train": 5000, "val": 5000, "test": 5000}, seed=0, min_patients=50)


def test_too_few_images_names_the_split_and_the_number_needed():
    with pytest.raises(UserError, match=r"val has 100 images.*give val at least \d+"):
        choose_rows(read_nih_table(), {**SIZES, "val": 100}, seed=0)


def test_an_unknown_split_is_refused():
    with pytest.raises(UserError, match="valid"):
        choose_rows(read_nih_table(), {"train": 700, "valid": 450, "test": 500}, seed=0)


def test_more_images_than_nih_has_is_refused():
    with pytest.raises(UserError, match="too few patients for 200000 images in train"):
        choose_rows(read_nih_table(), {**SIZES, "train": 200_000}, seed=0)


# ---------------------------------------------------------------------------------------- pictures


def test_workers_and_chunks_do_not_change_a_byte(rows):
    some = rows.iloc[:50]
    alone = pictures(some, chunk=50)
    np.testing.assert_array_equal(pictures(some, chunk=7), alone)
    np.testing.assert_array_equal(pictures(some, chunk=9, workers=2), alone)
    np.testing.assert_array_equal(pictures(some.iloc[::-1])[::-1], alone)


def test_chunks_have_the_promised_shape_and_type(rows):
    chunks = list(draw(rows.iloc[:10], 64, seed=0, workers=1, chunk=4))
    assert [chunk.shape for chunk in chunks] == [(4, 64, 64), (4, 64, 64), (2, 64, 64)]
    assert all(chunk.dtype == np.uint8 for chunk in chunks)


def test_the_seed_and_the_name_change_a_picture():
    first = pictures(one_row(None))
    assert (pictures(one_row(None), seed=4) != first).mean() > 0.5
    assert (pictures(one_row(None, image="phantom_other.png")) != first).mean() > 0.5


def test_images_of_one_patient_resemble_each_other_more_than_others(rows):
    healthy = rows[(rows[list(FINDINGS)].sum(axis=1) == 0) & (rows["view"] == "PA")].iloc[:24]
    first, again = (
        pictures(healthy).astype(float),
        pictures(healthy.assign(image=healthy["image"] + "b")).astype(float),
    )
    own = np.abs(first - again).mean(axis=(1, 2))
    others = np.abs(first - np.roll(again, 1, axis=0)).mean(axis=(1, 2))
    assert np.median(own) < np.median(others)


@pytest.mark.parametrize("pixels", [28, 128, 224, 512])
def test_a_radiograph_at_any_size(pixels):
    """Lungs darker than mediastinum and belly, the corners beside the neck darkest, the whole range used."""
    batch = pd.concat([one_row(None, image=f"phantom_{i}.png") for i in range(3)])
    for picture in pictures(batch, pixels).astype(float):
        part = picture.reshape(pixels, pixels)
        third = pixels // 3
        lung = part[third : 2 * third, pixels // 5 : 2 * pixels // 5].mean()
        spine = part[third : 2 * third, 19 * pixels // 40 : 21 * pixels // 40].mean()
        belly = part[-pixels // 8 :, third : 2 * third].mean()
        corner = part[pixels // 40 : pixels // 14, pixels // 12 : pixels // 6].mean()
        assert corner < 0.6 * lung < lung < 0.75 * min(spine, belly)
        assert part.min() < 40 and part.max() > 170


REGIONS = {  # rows and columns, in fractions of the picture, in which most of the change lies
    "Cardiomegaly": (0.4, 0.9, 0.2, 0.85),
    "Effusion": (0.35, 1.0, 0.0, 1.0),
    "Pneumothorax": (0.05, 0.8, 0.05, 0.95),
    "Edema": (0.15, 0.85, 0.1, 0.9),
    "Fibrosis": (0.3, 0.9, 0.05, 0.95),
    "Hernia": (0.45, 0.95, 0.25, 0.75),
}


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_finding_changes_the_picture_where_it_belongs(finding):
    names = [f"phantom_{i}.png" for i in range(12)]
    with_it = pictures(pd.concat([one_row(finding, name) for name in names]), 64).astype(float)
    without = pictures(pd.concat([one_row(None, name) for name in names]), 64).astype(float)
    change = np.abs(with_it - without)
    assert (change.max(axis=(1, 2)) > 4).all()
    top, bottom, left, right = (round(64 * x) for x in REGIONS.get(finding, (0.08, 0.92, 0.05, 0.95)))
    assert change[:, top:bottom, left:right].sum() > 0.9 * change.sum()
    assert change[:, :4].mean() < 1 and change.mean() < 40  # the rest of the picture is as it was


@pytest.mark.parametrize("finding", ["Effusion", "Pneumothorax", "Nodule", "Consolidation", "Hernia"])
def test_a_finding_has_no_fixed_side(finding):
    names = [f"phantom_{i}.png" for i in range(40)]
    with_it = pictures(pd.concat([one_row(finding, name) for name in names]), 32).astype(float)
    without = pictures(pd.concat([one_row(None, name) for name in names]), 32).astype(float)
    change = np.abs(with_it - without)
    left = change[:, :, :16].sum(axis=(1, 2)) > change[:, :, 16:].sum(axis=(1, 2))
    assert 0.15 < left.mean() < 0.85


def test_ap_is_drawn_otherwise_than_pa():
    assert (pictures(one_row(None, view="AP")) != pictures(one_row(None, view="PA"))).mean() > 0.5


@pytest.mark.parametrize("pixels", [8, 5000])
def test_a_useless_size_is_refused(pixels):
    with pytest.raises(UserError, match=f"not {pixels}"):
        next(draw(one_row(None), pixels, seed=0))


def test_the_contact_sheet_shows_every_finding_twice(tmp_path):
    contact_sheet(tmp_path / "sheet.png", pixels=48)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.mode == "L" and sheet.width == 8 * 48 and sheet.height > 4 * 48
