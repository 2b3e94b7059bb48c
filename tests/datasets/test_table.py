"""Anybody's radiographs: a table of any findings is read right, or refused with line and remedy."""

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tarballs import member, tar, write_tar

from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import Packed, must_be_packed_from, pack, read_packed
from cxrbench.datasets.table_rows import read_image_table
from cxrbench.study.config import TableSource
from own_images import ODD, a_source, drawn, encoded, picture, written

IN_PLACE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)


PLAIN = b"image,patient,split,Mass\na.png,1,train,1\n"


def packed_from(source: TableSource, folder: Path) -> Packed:
    pack("own", source, folder / "packed")
    return read_packed(folder / "packed/own")


def test_images_get_their_rows_and_any_findings(tmp_path: Path) -> None:
    table = drawn()
    packed = packed_from(written(tmp_path, table), tmp_path)
    assert packed.findings == tuple(ODD)
    rows = table.set_index("image").loc[packed.index["image"]]
    assert (packed.labels() == rows[ODD].to_numpy()).all()
    given = ["patient", "split", "sex"]
    assert packed.index[given].to_numpy().tolist() == rows[given].to_numpy().tolist()
    assert packed.index.dtypes[ODD].unique().tolist() == [np.dtype("uint8")]
    assert packed.manifest["patients_known"] and packed.manifest["missing_labels"] == dict.fromkeys(ODD, 0)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip", "names", "the folder's name", "parquet", "jpeg"])
def test_archives_names_and_formats_give_the_same_dataset(kind: str, tmp_path: Path) -> None:
    table = drawn()
    if kind == "jpeg":
        table["image"] = table["image"].str.replace("png", "jpg")
    source = written(tmp_path, table)
    direct = packed_from(source, tmp_path)
    if kind == "jpeg":
        assert direct.manifest["source_modes"] == {"L": 60}
        return
    files = sorted((tmp_path / "images").rglob("*.png"))
    inside = [(path.relative_to(tmp_path).as_posix(), path.read_bytes()) for path in files]
    if kind == "zip":
        shutil.rmtree(tmp_path / "images")
        (tmp_path / "images").mkdir()
        with zipfile.ZipFile(tmp_path / "images/all.zip", "w") as archive:
            for name, data in inside:
                archive.writestr(name.removeprefix("images/"), data)
    elif kind.startswith("tar"):
        shutil.rmtree(tmp_path / "images")
        members = [member(f"./{name.removeprefix('images/')}", data) for name, data in inside]
        write_tar(tmp_path / f"images/all.{kind}", tar([*members, member("./notes.txt", b"text")]))
    elif kind == "parquet":
        table.to_parquet(tmp_path / "labels.parquet")
        source = a_source(tmp_path, table=tmp_path / "labels.parquet")
    else:
        before = "images/" if kind == "the folder's name" else ""
        table["image"] = before + (table["image"] if before else table["image"].str.rpartition("/")[2])
        table.to_csv(tmp_path / "labels.csv", index=False)
    again = packed_from(source, tmp_path)
    if kind in ("zip", "tar"):
        alone = source.model_copy(update={"folder": tmp_path / f"images/all.{kind}"})
        assert packed_from(alone, tmp_path).manifest["packed"] == again.manifest["packed"]
    assert again.images.tobytes() == direct.images.tobytes()
    assert (again.labels() == direct.labels()).all()


def test_a_split_by_patient_is_drawn_where_the_table_has_none(tmp_path: Path) -> None:
    table = drawn(400).drop(columns="split")
    source = written(tmp_path, table)
    rows = read_image_table(source)
    assert rows.groupby("patient")["split"].nunique().max() == 1
    patients = rows.drop_duplicates("patient")["split"].value_counts()
    assert patients["train"] == pytest.approx(121, abs=20)
    assert (read_image_table(a_source(tmp_path, seed=1))["split"] != rows["split"]).any()
    even = read_image_table(a_source(tmp_path, fractions={"train": 0.4, "val": 0.3, "test": 0.3}))
    assert (even["split"] == "train").sum() < (rows["split"] == "train").sum()


def test_images_that_are_only_scored_need_no_training_part(tmp_path: Path) -> None:
    """Another hospital's images had to give up a part to training, and needed positives there."""
    table = drawn(60).assign(split="test")
    table[ODD[0]] = 0
    written(tmp_path, table)
    with pytest.raises(UserError, match="no image with a label is in part train"):
        read_image_table(a_source(tmp_path))
    packed = packed_from(a_source(tmp_path, fractions={"test": 1}), tmp_path)
    assert packed.manifest["images"] == {"train": 0, "val": 0, "test": 60}
    written(tmp_path, table.drop(columns="split"))
    split = read_image_table(a_source(tmp_path, fractions={"val": 0.5, "test": 0.5}))["split"]
    assert set(split) == {"val", "test"}
    assert a_source(tmp_path, fractions={"train": 0, "val": 0, "test": 1}).scored_only
    for fractions in ({"test": 0.9}, {"val": 1}, {"train": 0.5, "test": 0.5}):
        with pytest.raises(ValueError, match="fractions"):
            a_source(tmp_path, fractions=fractions)


def test_uncertain_and_blank_labels_mean_what_the_config_says(tmp_path: Path) -> None:
    table = drawn().astype(dict.fromkeys(ODD, "Int64"))
    table.loc[:9, ODD[0]] = -1
    table.loc[5:14, ODD[1]] = pd.NA
    source = written(tmp_path, table)
    with pytest.raises(
        UserError, match=r"labels.csv:2: column Nodule/Mass: a label is -1, .*'uncertain: mask'"
    ):
        read_image_table(source)
    with pytest.raises(
        UserError, match=r":7: column Lead.*: a label is empty; .*'blank: mask'.*\(10 such rows\)"
    ):
        read_image_table(a_source(tmp_path, uncertain="positive"))
    source = a_source(tmp_path, uncertain="positive", blank="mask")
    packed = packed_from(source, tmp_path)
    first = packed.index.set_index("image").loc[table["image"][:15]]
    assert first[ODD[0]].tolist()[:10] == [1] * 10
    assert first[ODD[1]].isna().tolist() == [False] * 5 + [True] * 10
    assert np.isnan(packed.labels()).sum() == 10
    assert packed.manifest["missing_labels"][ODD[1]] == 10
    must_be_packed_from(source, packed.folder)
    with pytest.raises(UserError, match="packed with blank mask, the study says negative"):
        must_be_packed_from(a_source(tmp_path, uncertain="positive", blank="negative"), packed.folder)
    with pytest.raises(UserError, match="packed with findings None, the study says"):
        must_be_packed_from(source.model_copy(update={"findings": [ODD[0]]}), packed.folder)
    source.table.write_text(source.table.read_text() + "\n")
    with pytest.raises(UserError, match=r"packed from another version of .*labels\.csv"):
        must_be_packed_from(source, packed.folder)


def test_without_patients_each_image_counts_and_none_is_known(tmp_path: Path) -> None:
    written(tmp_path, drawn().drop(columns="patient"))
    with pytest.raises(UserError, match=r"there is no column patient; .*'patient: none'.*too narrow"):
        read_image_table(a_source(tmp_path))
    packed = packed_from(a_source(tmp_path, patient="none"), tmp_path)
    assert packed.index["patient"].isna().all() and packed.manifest["patients_known"] is False


def test_chosen_findings_leave_other_columns_alone(tmp_path: Path) -> None:
    written(tmp_path, drawn().assign(hospital="north"))
    with pytest.raises(UserError, match=r"column hospital: 'north' is not a label; .*'findings'"):
        read_image_table(a_source(tmp_path))
    assert packed_from(a_source(tmp_path, findings=ODD[:2]), tmp_path).findings == tuple(ODD[:2])
    with pytest.raises(UserError, match="finding 'Nodule/Mas' is not a column; did you mean 'Nodule/Mass'"):
        read_image_table(a_source(tmp_path, findings=["Nodule/Mas"]))


def set_cell(row: int, column: str, value: object):
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.fault("a user's own table has a wrong row", "its line, its column and a remedy; no dataset")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_cell(3, "image", "/etc/passwd.png"), ":5: column image: '/etc/passwd.png' is not a path below"),
        (set_cell(3, "image", "../a.png"), ":5: column image: '../a.png' is not a path below the folder"),
        (set_cell(3, "image", "a\\b.png"), r":5: column image: .* is not a path below the folder; .*with /"),
        (set_cell(3, "image", "C:/a.png"), ":5: column image: 'C:/a.png' is not a path below the folder"),
        (set_cell(3, "image", ""), ":5: column image: is empty"),
        (set_cell(3, "image", "p0/absent.png"), ":5: there is no image p0/absent.png"),
        (lambda t: pd.concat([t, t[3:4]]), r":62: column image: second row for .* \(first in .*:5\); keep"),
        (set_cell(3, "patient", ""), ":5: column patient: is empty"),
        (
            set_cell(0, "split", "test"),
            r"patient P-000 is in test \(.*:2\) and train \(.*:3\); 1 such patient in all",
        ),
        (set_cell(3, "split", "valid"), ":5: column split: 'valid' is none of train, val, test"),
        (set_cell(3, ODD[0], "yes"), ":5: column Nodule/Mass: 'yes' is not a label; write 0, 1, -1"),
        (set_cell(3, ODD[0], "0_1"), ":5: column Nodule/Mass: '0_1' is not a label"),
        (set_cell(3, "patient", "P\0"), "a NUL byte in line 5"),
        (set_cell(3, ODD[0], 2), ":5: column Nodule/Mass: '2' is not a label"),
        (lambda t: t.assign(Never=0), "column Never: no training image is positive; .*'findings'"),
        (lambda t: t[t["split"] != "val"], "no image with a label is in part val"),
        (lambda t: t.drop(columns=ODD), "there is no column of labels"),
        (lambda t: t.rename(columns={"image": "Image"}), "no column image; did you mean 'Image'"),
        (lambda t: t.rename(columns={ODD[0]: "macro"}), "no finding can be called 'macro'"),
        (lambda t: t.rename(columns={ODD[0]: ODD[1]}), "two columns have the name 'Lead & wire"),
        (lambda t: t[:0], "the table has no rows"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_left(change, message: str, tmp_path: Path) -> None:
    table = drawn()
    written(tmp_path, table)
    change(table).to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(UserError, match=message) as error:
        packed_from(a_source(tmp_path), tmp_path)
    assert "labels.csv" in str(error.value)
    assert not list((tmp_path / "packed").rglob("*"))


@pytest.mark.fault("a user's own image is not a radiograph", "refused by name, with a remedy; no dataset")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable PNG or JPEG"),
        (encoded(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)), "a colour picture"),
        (encoded(picture(0, 8)), "8 x 8 px, less than the 16 px asked for"),
    ],
)
def test_a_wrong_image_is_named_and_nothing_is_left(content: bytes, message: str, tmp_path: Path) -> None:
    table = drawn()
    source = written(tmp_path, table)
    (tmp_path / "images" / table["image"][7]).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        packed_from(source, tmp_path)
    assert table["image"][7] in str(error.value)
    assert not list((tmp_path / "packed").rglob("*"))


def test_two_images_for_one_row_and_grey_saved_as_colour(tmp_path: Path) -> None:
    table = drawn()
    source = written(tmp_path, table)
    grey = np.repeat(picture(7)[..., None], 3, axis=2)
    grey[:3, :3] = (255, 0, 0)  # a mark
    (tmp_path / "images" / table["image"][7]).write_bytes(encoded(grey))
    said: list[str] = []
    (tmp_path / "images/other.png").write_bytes(b"of no row")
    pack("own", source, tmp_path / "packed", say=said.append)
    assert f"left out of {tmp_path / 'images'}: 1 image without a row" in said
    table["image"] = table["image"].str.rpartition("/")[2]
    table.to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "images" / table["image"][7]).write_bytes(encoded(grey))
    with pytest.raises(UserError, match=f"image {table['image'][7]} was already read from"):
        pack("own", source, tmp_path / "packed")


def test_a_finding_of_one_class_in_the_test_part_is_said(tmp_path: Path) -> None:
    table = drawn()
    table.loc[table["split"] == "test", ODD[2]] = 0
    said: list[str] = []
    pack("own", written(tmp_path, table), tmp_path / "packed", say=said.append)
    assert "Hühnerbrust: no test image is positive, so what needs one is undefined" in said


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no column image"),
        (b"image,patient,A\na.png,1,1,1\n", "not a readable CSV file .*Row #2: Expected 3 columns, got 4"),
        (b"image,patient,A\na\xff.png,1,1\n", "not a readable CSV"),
        (b"\xff\xfe", "not a readable CSV"),
    ],
)
def test_a_damaged_table_is_one_message(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_image_table(a_source(tmp_path))
    (tmp_path / "labels.parquet").write_bytes(data)
    why = "it has another format; give a CSV file a name in .csv" if data else "it is empty"
    with pytest.raises(UserError, match=rf"not a readable Parquet file \({why}\); save it as Parquet"):
        read_image_table(a_source(tmp_path, table=tmp_path / "labels.parquet"))


def npz(**arrays: np.ndarray) -> bytes:
    np.savez(data := io.BytesIO(), **arrays)
    return data.getvalue()


def workbook() -> bytes:
    with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (gzip.compress(PLAIN, mtime=0), "labels.csv", r"it is gzipped; call it labels\.csv\.gz$"),
        (PLAIN, "labels.csv.gz", r"it is not gzipped; take \.gz off its name$"),
        (npz(a=np.zeros(99)), "labels.csv", r"it holds arrays of NumPy; give it a name in \.npz"),
        (workbook(), "labels.csv", r"it is an Excel file; save it as CSV in UTF-8$"),
        (b"\xd0\xcf\x11\xe0" + bytes(99), "labels.csv", r"it is an Excel file; save it as CSV in UTF-8$"),
        (b"PK\3\4" + bytes(99), "labels.csv", r"it is a zip file; unpack it$"),
        (b"PAR1" + bytes(99) + b"PAR1", "labels.csv", r"it is a Parquet file; give it a name in \.parquet$"),
        (PLAIN.decode().encode("utf-16"), "labels.csv", r"it is in UTF-16; save it as CSV in UTF-8$"),
    ],
)
def test_a_file_of_another_format_is_said_to_be_one(
    data: bytes, name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=rf"{name}: not a readable CSV file: {message}"):
        read_image_table(a_source(tmp_path, table=tmp_path / name))


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/\\~.:"),
    min_size=1,
    max_size=8,
)
LABELS = st.sampled_from([0, 1, -1, None])


@IN_PLACE
@given(
    rows=st.lists(
        st.tuples(NAMES, NAMES, LABELS, LABELS), min_size=1, max_size=30, unique_by=lambda row: row[0]
    ),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["csv", "parquet"]),
)
def test_any_table_comes_back_and_no_patient_is_in_two_parts(
    rows, seed: int, kind: str, tmp_path: Path
) -> None:
    # one patient of each part and class, so that the table is one that can be trained on
    anchors = [(f"anchor{k}", f"patient{k}", k % 2, k % 2) for k in range(200)]
    table = pd.DataFrame([*rows, *anchors], columns=["image", "patient", "A", "B"]).drop_duplicates("image")
    table = table.astype({"A": "Int64", "B": "Int64"})
    path = tmp_path / f"labels.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    found = read_image_table(a_source(tmp_path, table=path, uncertain="mask", blank="mask", seed=seed))
    assert found["image"].tolist() == table["image"].tolist()
    assert found["patient"].tolist() == table["patient"].tolist()
    assert found.groupby("patient")["split"].nunique().max() == 1
    for name in ("A", "B"):
        known = table[name].isin([0, 1]).to_numpy(dtype=bool, na_value=False)
        assert found[name].isna().tolist() == (~known).tolist()
        assert found[name][known].tolist() == table[name][known].tolist()
