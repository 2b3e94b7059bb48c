"""The phantom dataset: real rows, the same bytes however they are drawn, findings that can be seen."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from conftest import SIZES, must_work
from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.datasets.phantom import draw
from cxrbench.datasets.split import choose_rows


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return choose_rows(read_nih_table(), SIZES, seed=3)


def pictures(rows: pd.DataFrame, pixels: int = 32, **how: int) -> np.ndarray:
    return np.stack(list(draw(rows, pixels, **{"seed": 3, "workers": 1, **how})))


def made_up(count: int, finding: str | None = None, view: str = "PA") -> pd.DataFrame:
    labels = {name: np.uint8(name == finding) for name in FINDINGS}
    row = {"patient": 7, "view": view, "sex": "M", "age": 50, **labels}
    return pd.DataFrame([{"image": f"phantom_{number}.png", **row} for number in range(count)])


def test_rows_are_those_of_the_nih_table_in_the_numbers_asked_for(rows):
    assert rows.groupby("split").size().to_dict() == SIZES
    assert rows["image"].is_unique and rows["image"].is_monotonic_increasing
    assert list(rows.columns) == ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
    assert rows["image"].str.startswith("phantom_").all()
    real = read_nih_table().set_index("image").loc[rows["image"].str.removeprefix("phantom_")]
    kept = [column for column in rows.columns if column not in ("image", "split")]
    pd.testing.assert_frame_equal(rows[kept], real[kept].reset_index(drop=True))


def test_patients_are_in_one_split_and_every_finding_has_some_in_each(rows):
    assert (rows.groupby("patient")["split"].nunique() == 1).all()
    for _, part in rows.groupby("split"):
        assert 0.1 < (part.groupby("patient").size() > 1).mean() < 0.7
        assert all(part.loc[part[finding] == 1, "patient"].nunique() >= 30 for finding in FINDINGS)
        assert (part[list(FINDINGS)].sum(axis=1) == 0).mean() > 0.1  # and No Finding is there


def test_rows_depend_on_the_seed_only(rows):
    again, other = (choose_rows(read_nih_table(), SIZES, seed) for seed in (3, 4))
    pd.testing.assert_frame_equal(rows, again)
    assert set(rows["image"]) != set(other["image"])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (SIZES | {"val": 100}, r"val has 100 images.*give val at least \d+"),
        ({"train": 700, "valid": 450, "test": 500}, "valid"),
        (SIZES | {"train": 200_000}, "too few patients for 200000 images in train"),
    ],
)
def test_what_nih_does_not_have_is_refused_with_the_remedy(images, message):
    with pytest.raises(UserError, match=message):
        choose_rows(read_nih_table(), images, seed=0)


def test_pixels_stay_the_same_however_they_are_drawn(rows):
    first = rows.iloc[:50]
    whole = pictures(first)
    assert hashlib.sha256(whole).hexdigest()[:16] == "4dc86a92d46d3165"
    np.testing.assert_array_equal(pictures(first, workers=2), whole)
    np.testing.assert_array_equal(pictures(first.iloc[::-1])[::-1], whole)


def test_seed_name_and_view_change_a_picture():
    first, named = pictures(made_up(2))[:, None]
    for other in (named, pictures(made_up(1, view="AP")), pictures(made_up(1), seed=4)):
        assert (other != first).mean() > 0.5


def test_images_of_one_patient_resemble_each_other_more_than_others(rows):
    healthy = rows[(rows[list(FINDINGS)].sum(axis=1) == 0) & (rows["view"] == "PA")].iloc[:24]
    renamed = healthy.assign(image=healthy["image"] + "b")
    first, again = (pictures(drawn).astype(float) for drawn in (healthy, renamed))
    own = np.abs(first - again).mean(axis=(1, 2))
    others = np.abs(first - np.roll(again, 1, axis=0)).mean(axis=(1, 2))
    assert np.median(own) < np.median(others)


@pytest.mark.parametrize("pixels", [28, 128, 224, 512])
def test_a_radiograph_at_any_size(pixels):
    """Lungs darker than mediastinum and belly, the corners beside the neck darkest, the whole range used."""
    for part in pictures(made_up(3), pixels).astype(float):
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


def changes(finding: str, count: int, pixels: int) -> np.ndarray:
    """How much a finding changes each pixel of ``count`` pictures."""
    with_it, without = (pictures(made_up(count, label), pixels) for label in (finding, None))
    return np.abs(with_it.astype(float) - without)


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_finding_changes_the_picture_where_it_belongs(finding):
    change = changes(finding, 12, 64)
    assert (change.max(axis=(1, 2)) > 4).all()
    top, bottom, left, right = (round(64 * x) for x in REGIONS.get(finding, (0.08, 0.92, 0.05, 0.95)))
    assert change[:, top:bottom, left:right].sum() > 0.9 * change.sum()
    assert change[:, :4].mean() < 1 and change.mean() < 40  # the rest of the picture is as it was


@pytest.mark.parametrize("finding", ["Effusion", "Pneumothorax", "Nodule", "Consolidation", "Hernia"])
def test_a_finding_has_no_fixed_side(finding):
    change = changes(finding, 40, 32)
    left = change[:, :, :16].sum(axis=(1, 2)) > change[:, :, 16:].sum(axis=(1, 2))
    assert 0.15 < left.mean() < 0.85


@pytest.mark.slow
def test_the_contact_sheet_shows_every_finding_twice(tmp_path: Path) -> None:
    must_work("data", "sheet", "--out", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 8 * 150 and sheet.height > 4 * 150
        columns = np.array_split(np.asarray(sheet.convert("L")), 8, axis=1)
    assert min(column.std() for column in columns) > 40  # pictures in each
