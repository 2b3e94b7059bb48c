"""Public collections, packed as they come by the recipes of docs/collections.md; other forms of tables."""

import gzip
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import wheel_file
from cxrbench.datasets.packed import Packed, pack, read_packed
from cxrbench.datasets.table_rows import read_image_table
from cxrbench.study.config import TableSource
from own_images import a_source, dicom, drawn, encoded, picture, written

PAGE = (ROOT / "docs/collections.md").read_text(encoding="utf-8")
PADCHEST = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"


@cache
def recipes() -> dict[str, dict]:
    """The entries of the page by name, each of at most ten lines."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.partition("## Collections as they come")[2], re.M | re.S)
    assert all(block.count("\n") <= 10 for block in blocks[:-1]) and len(blocks) == 7
    return {name: entry for block in blocks for name, entry in yaml.safe_load(block).items()}


SAID: list[str] = []  # while the last collection was packed


def packed_by_recipe(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Packed:
    """The dataset that the page's entry makes of the collection in ``folder``, of 16 pixels."""
    monkeypatch.chdir(folder)
    SAID.clear()
    source = TableSource(**recipes()[name] | {"pixels": 16} | changes)
    pack(name, source, Path("packed"), workers=1, say=SAID.append)
    return read_packed(Path("packed") / name)


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def labels_of(packed: Packed) -> pd.DataFrame:
    return packed.index.set_index("image")[list(packed.findings)].astype(float)


def test_chexpert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = recipes()["chexpert"]["findings"]
    rows = pd.read_csv(wheel_file("chexpert_train.csv.gz"), nrows=150, dtype=str)
    val = rows[-30:].assign(
        Path=lambda t: t["Path"].str.replace(r"train/patient0", "valid/patient6", regex=True)
    )
    val.loc[:, findings] = np.random.default_rng(0).choice(["0.0", "1.0"], (30, 5))
    put(tmp_path / "CheXpert-v1.0-small/train/patient00000/study1/view1_frontal.jpg", b"of no row")
    for name, part in (("train", rows[:-30]), ("valid", val)):
        for k, path in enumerate(part["Path"]):
            put(tmp_path / path, encoded(picture(k, 20), "JPEG"))
        part.to_csv(tmp_path / f"CheXpert-v1.0-small/{name}.csv", index=False)
    packed = packed_by_recipe("chexpert", tmp_path, monkeypatch)
    whole = pd.concat([rows[:-30], val]).set_index("Path")
    frontal = whole[whole["Frontal/Lateral"] == "Frontal"]
    assert sorted(packed.index["image"]) == sorted(frontal.index)
    left_out = [text for text in SAID if text.startswith("left out")]
    dropped = f"left out of CheXpert-v1.0-small: {len(whole) - len(frontal)} images dropped by 'keep'"
    assert left_out == [dropped, "left out of CheXpert-v1.0-small: 1 image without a row"]
    given = frontal.loc[packed.index["image"], findings].fillna("0").astype(float).replace(-1, np.nan)
    pd.testing.assert_frame_equal(labels_of(packed), given, check_names=False)
    assert (packed.index["patient"] == packed.index["image"].str.extract(r"(patient\d+)")[0]).all()
    assert packed.index["split"][packed.index["image"].str.contains("/valid/")].eq("val").all()
    drawn_parts = packed.index[packed.index["image"].str.contains("/train/")]
    assert set(drawn_parts["split"]) == {"train", "test"}
    assert packed.index.groupby("patient")["split"].nunique().max() == 1


def test_mimic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, findings = np.random.default_rng(0), recipes()["mimic"]["findings"]
    images = pd.DataFrame({"dicom_id": [f"{k:08x}-aaaa-bbbb-{k:08x}" for k in range(120)]})
    images["study_id"] = [str(50_000_000 + k // 2) for k in range(120)]
    images["subject_id"] = [str(10_000_000 + k // 4) for k in range(120)]
    images["split"] = np.repeat(["train", "validate", "test"], 40)
    studies = images[["subject_id", "study_id"]].drop_duplicates()[1:]  # the first study has no labels
    studies[findings] = rng.choice(["1.0", "0.0", "-1.0", ""], (len(studies), len(findings)))
    metadata = images[["dicom_id", "subject_id", "study_id"]].assign(
        PerformedProcedureStepDescription="CHEST (PA AND LAT)",
        ViewPosition=["PA", "LATERAL", "AP", "PA"] * 30,
        Rows="3056",
    )
    (tmp_path / "mimic-cxr-jpg").mkdir()
    for name, table in (("split", images), ("chexpert", studies), ("metadata", metadata)):
        table.to_csv(tmp_path / f"mimic-cxr-jpg/mimic-cxr-2.0.0-{name}.csv.gz", index=False)
    for k, row in enumerate(images.itertuples()):
        study = f"p{row.subject_id[:2]}/p{row.subject_id}/s{row.study_id}"
        put(tmp_path / f"mimic-cxr-jpg/files/{study}/{row.dicom_id}.jpg", encoded(picture(k, 20), "JPEG"))
    packed = packed_by_recipe("mimic", tmp_path, monkeypatch)
    whole = images.merge(studies).merge(metadata).set_index("dicom_id")
    whole = whole[whole["ViewPosition"] != "LATERAL"].loc[packed.index["image"]]
    labels, split = (f"mimic-cxr-jpg/mimic-cxr-2.0.0-{name}.csv.gz" for name in ("chexpert", "split"))
    assert f"2 rows of {split} without one in {labels}: left out" in SAID
    assert [text for text in SAID if text.startswith("left out")] == [
        "left out of mimic-cxr-jpg/files: 29 images dropped by 'keep'",
        f"left out of mimic-cxr-jpg/files: 2 images without a row in {labels}",
    ]
    assert len(whole) == 89  # of 90 frontal images one is of the study without labels
    given = whole[findings].replace({"": "0", "-1.0": "nan"}).astype(float)
    pd.testing.assert_frame_equal(labels_of(packed), given, check_names=False)
    assert (packed.index["split"] == whole["split"].replace("validate", "val").to_numpy()).all()
    assert (packed.index["patient"] == whole["subject_id"].to_numpy()).all()


def test_padchest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pd.read_csv(wheel_file(f"{PADCHEST}.gz"), nrows=200, dtype=str)
    rows.to_csv(tmp_path / PADCHEST, index=False)
    for k, name in enumerate(rows["ImageID"]):
        put(tmp_path / "padchest" / name, encoded(picture(k, 20).astype(np.uint16) * 257))
    packed = packed_by_recipe("padchest", tmp_path, monkeypatch)
    kept = rows[rows["Projection"] != "L"].set_index("ImageID").loc[packed.index["image"]]
    for finding in packed.findings:
        given = kept["Labels"].str.contains(f"'{finding}'", regex=False).astype(float)
        assert (labels_of(packed)[finding] == given.to_numpy()).all() and given.sum() > 3
    assert (packed.index["patient"] == kept["PatientID"].to_numpy()).all()  # of 36 digits
    positive = packed.manifest["positive_patients"]["pleural effusion"]
    assert positive["test"] in (1, 2, 3) and positive["train"] > positive["test"]


def test_vindr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, rows = np.random.default_rng(0), {"train": [], "test": []}
    findings = ["Aortic enlargement", "Cardiomegaly", "Pleural effusion", "Other diseases", "No finding"]
    for k in range(45):
        name, part = f"{k * 0x9E3779B9 % 2**32:08x}{k:024x}", "train" if k < 36 else "test"
        put(
            tmp_path / f"vindr-cxr/{part}/{name}.dicom",
            dicom(picture(k, 20), WindowCenter=128, WindowWidth=256),
        )
        for reader in ("R1", "R2", "R3") if part == "train" else ("",):
            rows[part].append([name, *([reader] if reader else []), *(rng.random(5) < 0.5).astype(int)])
    (tmp_path / "vindr-cxr/annotations").mkdir()
    train = pd.DataFrame(rows["train"], columns=["image_id", "rad_id", *findings])
    test = pd.DataFrame(rows["test"], columns=["image_id", *findings]).rename(
        columns={"Other diseases": "Other disease"}
    )
    for name, table in (("train", train), ("test", test)):
        table.to_csv(tmp_path / f"vindr-cxr/annotations/image_labels_{name}.csv", index=False)
    packed = packed_by_recipe("vindr", tmp_path, monkeypatch)
    votes = pd.concat(
        [train.drop(columns="rad_id").groupby("image_id").sum() >= 2, test.set_index("image_id") == 1]
    )
    given = votes.loc[packed.index["image"], findings[:3]].astype(float)
    pd.testing.assert_frame_equal(labels_of(packed), given, check_names=False)
    assert packed.manifest["images"]["test"] == 9 and 0 < packed.manifest["images"]["val"] < 20
    assert packed.index["patient"].isna().all() and packed.manifest["patients_known"] is False


def test_rsna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pd.read_csv(wheel_file("kaggle_stage_2_train_labels.csv.zip"), nrows=60, dtype=str)
    rows.to_csv(tmp_path / "stage_2_train_labels.csv", index=False)
    for k, name in enumerate(rows["patientId"].unique()):
        put(tmp_path / f"stage_2_train_images/{name}.dcm", dicom(picture(k, 20)))
    assert rows["patientId"].duplicated().any()  # boxes
    packed = packed_by_recipe("rsna", tmp_path, monkeypatch)
    given = rows.astype({"Target": float}).groupby("patientId")["Target"].max()
    assert (labels_of(packed)["Pneumonia"] == given.loc[packed.index["image"]].to_numpy()).all()
    assert packed.findings == ("Pneumonia",) and len(packed.index) == rows["patientId"].nunique()
    with pytest.raises(UserError, match=r"labels.csv:7: column image: second row for .*'merge: any'"):
        packed_by_recipe("rsna", tmp_path, monkeypatch, merge=None)


def test_nihs_own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(wheel_file("Data_Entry_2017_v2020.csv.gz"), "rt") as whole:
        (tmp_path / "Data_Entry_2017_v2020.csv").write_text("".join(next(whole) for _ in range(120)))
    rows = pd.read_csv(tmp_path / "Data_Entry_2017_v2020.csv").set_index("Image Index")
    for k, name in enumerate(rows.index):
        put(tmp_path / "images" / name, encoded(picture(k, 20)))
    packed = packed_by_recipe("nih14", tmp_path, monkeypatch)
    listed = rows["Finding Labels"].loc[packed.index["image"]].str.get_dummies("|")
    given = listed[list(packed.findings)].astype(float)
    pd.testing.assert_frame_equal(labels_of(packed), given, check_names=False)
    columns = recipes()["nih14"]["columns"] | {"Heart": "Cardiomegaly"}
    changes = {"pixels": 16, "columns": columns, "findings": ["Heart"]}
    heart = read_image_table(TableSource(**recipes()["nih14"] | changes)).set_index("image")["Heart"]
    assert (heart == rows["Finding Labels"].str.contains("Cardiomegaly").loc[heart.index]).all()
    assert (
        packed.index["patient"].astype(int).tolist() == rows["Patient ID"].loc[packed.index["image"]].tolist()
    )


def test_a_folder_per_class_and_medmnists_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for k in range(30):
        part, kind = ("train", "val", "test")[k % 3], ("NORMAL", "PNEUMONIA")[k % 2]
        put(tmp_path / f"chest_xray/{part}/{kind}/IM-{k:04}.jpeg", encoded(picture(k, 20), "JPEG"))
    classes = packed_by_recipe("classes", tmp_path, monkeypatch)
    assert (
        labels_of(classes)["PNEUMONIA"] == classes.index["image"].str.contains("PNEUMONIA").to_numpy()
    ).all()
    assert (classes.index["split"] == classes.index["image"].str.partition("/")[0]).all()
    both = packed_by_recipe("classes", tmp_path, monkeypatch, findings=None)
    assert both.findings == ("NORMAL", "PNEUMONIA")
    put(tmp_path / "chest_xray/loose.png", encoded(picture(0, 20)))
    with pytest.raises(UserError, match=r"loose\.png: not in the folder of a class"):
        packed_by_recipe("classes", tmp_path, monkeypatch)

    arrays = {
        f"{part}_images": rng.integers(0, 256, (8, 28, 28), dtype=np.uint8)
        for part in ("train", "val", "test")
    }
    arrays |= {f"{part}_labels": np.arange(8)[:, None] % 2 for part in ("train", "val", "test")}
    np.savez(tmp_path / "pneumoniamnist.npz", **arrays)
    medmnist = packed_by_recipe("medmnist", tmp_path, monkeypatch, pixels=28)
    assert (medmnist.images[8:16] == arrays["val_images"]).all() and medmnist.index["image"][
        8
    ] == "val_000000"
    assert labels_of(medmnist)["Pneumonia"].tolist() == [0, 1] * 12
    (tmp_path / "pneumoniamnist.npz").write_bytes(b"PK\3\4 cut short")
    with pytest.raises(UserError, match="no npz of MedMNIST's form"):
        packed_by_recipe("medmnist", tmp_path, monkeypatch)


@pytest.mark.parametrize("form", ["csv.gz", "semicolons", "tsv", "stems"])
def test_other_forms_of_a_table_give_the_same_rows(form: str, tmp_path: Path) -> None:
    table = drawn()
    written(tmp_path, table)
    plain = read_image_table(a_source(tmp_path))
    name, separator = {"csv.gz": ("l.csv.gz", ","), "semicolons": ("l.csv", ";"), "tsv": ("l.tsv", "\t")}.get(
        form, ("l.csv", ",")
    )
    if form == "stems":
        table["image"] = table["image"].str.partition("/")[2].str.partition(".")[0]
    table.to_csv(tmp_path / name, sep=separator, index=False)
    source = a_source(tmp_path, table=tmp_path / name)
    if form == "stems":
        pack("own", source, tmp_path / "packed")
        assert read_packed(tmp_path / "packed/own").index["image"].sort_values().tolist() == sorted(
            table["image"]
        )
        plain["image"] = table["image"]
    pd.testing.assert_frame_equal(read_image_table(source), plain)


@pytest.mark.parametrize(
    ("rule", "labels", "expected"),
    [
        ("any", [0, 1, 0], 1),
        ("any", [0, 0], 0),
        ("any", [None, 1], 1),
        ("any", [None, None], None),
        ("majority", [1, 1, 0], 1),
        ("majority", [1, 0], 0),  # no more than half
        ("majority", [1, None, None], 1),  # of those who gave a label
    ],
)
def test_rows_of_an_image_are_merged_by_the_stated_rule(rule, labels, expected, tmp_path: Path) -> None:
    table = drawn().astype({"Nodule/Mass": "Int64"})
    more = pd.concat([table[:1].assign(**{"Nodule/Mass": pd.array([label], "Int64")}) for label in labels])
    pd.concat([more, table[1:]]).to_csv(tmp_path / "labels.csv", index=False)
    rows = read_image_table(a_source(tmp_path, merge=rule, blank="mask"))
    assert len(rows) == 60 and rows["image"].iloc[0] == table["image"][0]
    found = rows["Nodule/Mass"].iloc[0]
    assert pd.isna(found) if expected is None else found == expected
    assert (rows["Nodule/Mass"].iloc[1:].to_numpy() == table["Nodule/Mass"][1:].to_numpy()).all()


def test_a_stratified_split_gives_each_part_its_share_of_a_rare_finding(tmp_path: Path) -> None:
    table = drawn(300).drop(columns="split")
    rare = table["patient"].isin(table["patient"].unique()[:20])
    table["Nodule/Mass"] = rare.astype(int)
    table.to_csv(tmp_path / "labels.csv", index=False)
    spread = {}
    for stratify in (False, True):
        counts = []
        for seed in range(4):
            rows = read_image_table(a_source(tmp_path, stratify=stratify, seed=seed))
            assert rows.groupby("patient")["split"].nunique().max() == 1
            counts.append(
                rows[rows["Nodule/Mass"] == 1]
                .drop_duplicates("patient")["split"]
                .value_counts()
                .get("val", 0)
            )
        spread[stratify] = counts
    assert set(spread[True]) == {2} and len(set(spread[False])) > 1  # a tenth of 20 patients


@pytest.mark.fault("a table of another form is mapped wrongly", "the table, the key and a remedy; no dataset")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {"image": "Path"}}, r"no column 'Path', which the config has for image"),
        ({"keep": {"sexe": "F"}}, r"no column 'sexe', which the config keeps rows by; did you mean 'sex'"),
        ({"keep": {"sex": "f"}}, r"no row has sex f; it has [FM], [FM]: correct 'keep'"),
        ({"labels": "Labels"}, r"no column 'Labels', the config's labels"),
        ({"labels": "sex", "findings": ["X"]}, r"no image has the config's finding 'X'"),
        ({"patient_pattern": r"q\d+"}, r":2: the path p0/0000.png has nothing of 'patient_pattern'"),
        ({"parts": {"train": "val"}}, r"no image with a label is in part train"),
        ({"join": [Path("absent.csv")]}, r"absent.csv: there is no such table"),
    ],
)
def test_a_wrong_key_is_named(changes, message: str, tmp_path: Path) -> None:
    written(tmp_path, drawn())
    with pytest.raises(UserError, match=message):
        read_image_table(a_source(tmp_path, **changes))


def test_a_missing_column_and_an_image_of_another_format_are_explained(tmp_path: Path) -> None:
    table = drawn()
    source = written(tmp_path, table)
    table.rename(columns={"image": "Path", "sex": "Age"}).to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(
        UserError, match=r"no column image; did you mean 'Path'\? Then state 'columns: \{image: Path\}'"
    ):
        read_image_table(source)
    table.rename(columns={"image": "scan", "sex": "Age"}).to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(UserError, match=r"no column image; add one"):
        read_image_table(source)
    table.to_csv(tmp_path / "labels.csv", index=False)
    first = tmp_path / "images" / table["image"][0]
    first.rename(first.with_suffix(".tiff"))
    with pytest.raises(UserError, match=r"0000\.tiff is there, but not in a format that is read"):
        pack("own", source, tmp_path / "packed")
    table.loc[0, "image"] = table["image"][0].replace(".png", ".bmp")
    table.to_csv(tmp_path / "labels.csv", index=False)
    first.with_suffix(".bmp").write_bytes(b"BM")
    for other in ("tif", "gif", "a"):
        first.with_suffix(f".{other}").write_bytes(b"other")
    with pytest.raises(UserError, match=r"0000\.bmp is there, but not in a format that is read"):
        pack("own", source, tmp_path / "packed")
    for other in ("bmp", "tif", "gif", "a"):
        first.with_suffix(f".{other}").unlink()
    table.loc[0, "image"] = table["image"][0].replace(".bmp", ".png")
    table.to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "images/elsewhere").mkdir()
    first.with_suffix(".tiff").rename(tmp_path / "images/elsewhere" / first.name)
    with pytest.raises(UserError, match=r"elsewhere/0000\.png is there, but elsewhere; write its path from"):
        pack("own", source, tmp_path / "packed")


def test_what_a_study_says_of_a_table_must_fit_together(tmp_path: Path) -> None:
    for changes, message in (
        ({"patient": "none", "patient_pattern": "a"}, "contradict each other"),
        ({"patient_pattern": "("}, "not a regular expression"),
        ({"parts": {"valid": "validation"}}, "parts"),
    ):
        with pytest.raises(ValueError, match=message):
            a_source(tmp_path, **changes)
