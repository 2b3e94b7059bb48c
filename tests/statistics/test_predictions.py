import resource
from contextlib import suppress
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from columns import LABELS, SCORES
from conftest import ROOT, must_fail, must_work
from cxrbench.common.errors import UserError
from cxrbench.evidence.predictions import macro_auroc
from cxrbench.evidence.record import read_record
from cxrbench.results.scoring import evaluate_file
from cxrbench.statistics.evaluate import evaluate
from cxrbench.statistics.predictions import load_predictions
from synthetic import draw_predictions


@pytest.fixture
def table() -> pd.DataFrame:
    return draw_predictions(2, {"val": 30, "test": 30}, np.full(14, 0.3))


@pytest.fixture
def load(tmp_path):
    def write_and_load(table):
        table.to_parquet(tmp_path / "foreign.parquet")
        return load_predictions(tmp_path / "foreign.parquet")

    return write_and_load


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60, deadline=None)
def test_the_learning_curves_auroc_is_the_mean_of_scikit_learns(seed: int, kinds: int, wide: type) -> None:
    """With ties, unknown labels and findings of one class."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 1, np.nan], (30, 4), p=[0.6, 0.3, 0.1])
    labels[:, 3] = rng.integers(2)
    logits = rng.integers(-kinds, kinds, labels.shape).astype(wide) / 3
    known = ~np.isnan(labels)
    pairs = [(labels[rows, k], logits[rows, k]) for k, rows in enumerate(known.T)]
    both = [roc_auc_score(*pair) for pair in pairs if len(np.unique(pair[0])) == 2]
    assert macro_auroc(labels, logits) == (pytest.approx(np.mean(both)) if both else None)


ODD = [
    ("patient", [[1]], "patient has the type list<"),
    ("split", [["test"]], "split has the type list<"),
    ("patient", [{"a": 1}], "patient has the type struct<"),
    ("image", [{"a": 1}], "image has the type struct<"),
    ("image", [b"a"], "image has the type binary"),
    ("label_Mass", [timedelta(0)], "label_Mass has the type duration"),
    ("score_Mass", [datetime(2026, 1, 1)], "score_Mass has the type timestamp"),
    ("score_Mass", ["9" * 5000], "scores are probabilities"),
]


@pytest.mark.fault("predictions with columns of odd types", "file, column and type in one message")
@pytest.mark.parametrize(("column", "value", "message"), ODD)
def test_a_column_of_an_odd_type_is_named(table, tmp_path, column, value, message):
    whole = pa.Table.from_pandas(table, preserve_index=False)
    odd = whole.set_column(whole.column_names.index(column), column, pa.array(value * len(table)))
    pq.write_table(odd, tmp_path / "odd.parquet")
    with pytest.raises(UserError, match=rf"odd\.parquet: .*{message}"):
        load_predictions(tmp_path / "odd.parquet")


@pytest.mark.fault("broken notes of pandas in a Parquet file", "the predictions are read without them")
@pytest.mark.parametrize("note", [b"{", b"[]", b"{}", b'{"index_columns": ["gone"], "columns": []}'])
def test_what_pandas_noted_is_not_needed(table, tmp_path, note):
    whole = pa.Table.from_pandas(table).replace_schema_metadata({b"pandas": note})
    pq.write_table(whole, tmp_path / "noted.parquet")
    assert len(load_predictions(tmp_path / "noted.parquet")[0]) == len(table)


SMALL = b"image,patient,label_Mass,score_Mass\na.png,1,1,0.5\nb.png,2,0,0.25\n"


@pytest.mark.fault("a CSV of predictions with odd bytes, numbers or names", "the place in one message")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"1,1,0.5", b"\0,1,0.5", r"not a readable CSV file \(a NUL byte in line 2\); write it again"),
        (b"0.5\nb.png,2,0,0.25", b"0x1\nb.png,2,0,0x0", "score_Mass is '0x1' in line 2 .*, '0x0' in line 3"),
        (b"1,1,0.5", b"1,0X1,0.5", "label_Mass is '0X1' in line 2"),
        (b"a.png", b'""', "image is empty in line 2"),
        (b"a.png", b'\n""', "image is empty in line 3"),
        (b"_Mass", b"_\x1b[31mMass", r"no finding can have the name '\\x1b\[31mMass', which cannot be"),
        (b"_Mass", b"_every", "no finding can have the name every, which stands for several of them"),
        (b"1,0.5", b"0x1,0.5\n0x.png,3,1,0.5", "label_Mass is '0x1'"),
    ],
)
def test_odd_values_of_a_csv_are_no_numbers_and_no_names(tmp_path, old, new, message):
    assert old in SMALL
    (tmp_path / "p.csv").write_bytes(SMALL.replace(old, new))
    with pytest.raises(UserError, match=message):
        load_predictions(tmp_path / "p.csv")


def test_a_name_may_hold_what_looks_hexadecimal(tmp_path):
    (tmp_path / "p.csv").write_bytes(SMALL.replace(b"a.png", b"0x1a.png"))
    table = load_predictions(tmp_path / "p.csv")[0]
    assert table["score_Mass"].tolist() == [0.5, 0.25] and table["label_Mass"].tolist() == [1, 0]


def test_an_empty_name_in_a_parquet_file_is_named(load, table):
    with pytest.raises(UserError, match="image is empty in row 3"):
        load(table.assign(image=table["image"].where(table.index != 2, " ")))


@pytest.mark.fault(
    "predictions that fit no memory, or of thousands of findings", "refused before they are read"
)
def test_sizes_beyond_the_bounds_are_refused_from_what_the_file_says(tmp_path):
    path = tmp_path / "many.parquet"
    rows = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**20, np.int8)), ["a"])
    with pq.ParquetWriter(path, pa.schema({"image": rows.type})) as writer:
        for _ in range(96):
            writer.write_batch(pa.record_batch([rows], ["image"]))
    assert path.stat().st_size < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="100,663,296 rows of 1 columns, more than 100,000,000 values; keep"):
        load_predictions(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB
    wide = [f"{kind}_f{k}" for kind in ("label", "score") for k in range(3000)]
    pd.DataFrame(0.5, index=[0, 1], columns=wide).to_parquet(path)
    with pytest.raises(UserError, match=r"many\.parquet: 3,000 findings, more than 1,000; leave some out"):
        load_predictions(path)
    with open(tmp_path / "large.csv", "wb") as file:
        file.truncate((2 << 30) + 1)  # sparse
    with pytest.raises(UserError, match=r"large\.csv: 2,147,483,649 bytes, more than 2,147,483,648; keep"):
        load_predictions(tmp_path / "large.csv")


def test_what_takes_minutes_says_so_before(tmp_path, table, monkeypatch):
    table.to_parquet(tmp_path / "p.parquet")
    said = []
    for most in (14, 13):
        monkeypatch.setattr("cxrbench.results.scoring.MANY_FINDINGS", most)
        evaluate_file(tmp_path / "p.parquet", 2, 10, said.append)
    assert said == [f"scoring 14 findings of {len(table)} images: this may take minutes"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("p.txt", "neither Parquet nor CSV by its name; name a .parquet or .csv file"),
        (".", "a folder without predictions"),
    ],
)
def test_what_is_no_predictions_file_is_said_with_what_to_do(tmp_path, name, message):
    (tmp_path / "p.txt").write_bytes(SMALL)
    assert message in must_fail("evaluate", tmp_path / name)


@pytest.mark.fault("random bytes in a Parquet file", "one message or a table, no traceback")
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_bytes_are_a_table_or_a_message(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "mutated.parquet"
    draw_predictions(2, {"val": 5, "test": 5}, np.full(14, 0.3)).to_parquet(path)
    content = bytearray(path.read_bytes())
    for at, byte in changes:
        content[-1 - at % len(content)] = byte
    path.write_bytes(content)
    with suppress(UserError):
        load_predictions(path)


def put(table, column, rows, value):
    table[column] = table[column].astype(object if isinstance(value, str) else float)
    table.loc[table.index[rows], column] = value
    return table


def test_a_sound_table_comes_back_without_notes(load, table):
    loaded, notes = load(table)
    assert notes == [] and len(loaded) == len(table)
    assert evaluate(loaded, replicates=2).table["value"].notna().any()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: put(t, "score_Mass", [4], np.nan), r"score_Mass is 'nan' in row 5 \(image .*png\)"),
        (lambda t: put(t, "score_Mass", [4], np.inf), "score_Mass is 'inf' in row 5"),
        (lambda t: put(t, "score_Edema", [2, 3, 5, 7], 1.5), "row 3 .* row 4 .* row 6 .* and 1 more; scores"),
        (lambda t: put(t, "score_Edema", [2], -0.1), "score_Edema is '-0.1' in row 3"),
        (lambda t: put(t, "score_Mass", [0], "x").astype({"score_Mass": str}), "score_Mass is 'x' in row 1"),
        (lambda t: put(t, "label_Hernia", [1], 2), "label_Hernia is '2.0' in row 2 .*; labels are 0 or 1"),
        (lambda t: pd.concat([t, t.iloc[[5]]]), "image occurs more than once in row 6 .*keep one"),
        (lambda t: put(t, "patient", t["split"] == "test", 1), "patient 1.0 is in test, val .*1 such"),
        (lambda t: put(t, "patient", [3], np.nan), "patient is empty in row 4 .*leave the column out"),
        (lambda t: t.drop(columns=["label_Mass", "score_Hernia"]), "are missing: label_Mass, score_Hernia"),
        (
            lambda t: t.rename(columns={"label_Edema": "label_edema"}),
            "label_Edema, score_edema; did you mean .*_edema'",
        ),
        (lambda t: t.drop(columns="label_Mass"), "columns are missing: label_Mass; add them"),
        (lambda t: t.drop(columns="image"), "columns are missing: image"),
        (lambda t: t[["image", "patient", "split"]], "there are no columns label_NAME and score_NAME"),
        (lambda t: t.rename(columns=lambda name: name.replace("Mass", "all")), "can have the name all"),
        (lambda t: t.iloc[:0], "there are no rows"),
        (lambda t: t.assign(split="dev"), "split is 'dev' in row 1 .*use one of train, val, test"),
        (lambda t: t.assign(split="train"), "all rows are train rows"),
    ],
)  # fmt: skip
def test_bad_input_names_column_and_first_rows(load, table, spoil, message):
    with pytest.raises(UserError, match=message) as raised:
        load(spoil(table))
    assert "foreign.parquet: " in str(raised.value) and "\n" not in str(raised.value)


def test_absent_and_unreadable_files(tmp_path):
    path = tmp_path / "foreign.parquet"
    with pytest.raises(UserError, match="no such file"):
        load_predictions(path)
    for content, why in {
        b"PAR1 not really": "its end is missing: it was cut short",
        b"PAR1 nor this PAR1": "[A-Z].*",
        b"": "it is empty",
        SMALL: "it has another format; give a CSV file a name in .csv",
    }.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"not a readable Parquet file \({why}\); write it again"):
            load_predictions(path)


def test_missing_split_is_test_and_train_rows_are_left_out(load, table):
    loaded, notes = load(table.drop(columns="split"))
    assert set(loaded["split"]) == {"test"} and "no split column" in notes[0]
    first = table["patient"] == table["patient"].iloc[0]
    loaded, notes = load(table.assign(split=table["split"].mask(first, "train")))
    assert len(loaded) == (~first).sum() and "train rows are left out" in notes[0]


def test_other_types_are_read_right(load, table):
    before = evaluate(table, replicates=2).table
    for types in (
        {**dict.fromkeys(LABELS, bool), "patient": str},
        dict.fromkeys(LABELS, str),  # "0" is not true
        dict.fromkeys(SCORES, "float64"),
    ):
        loaded, _ = load(table.astype(types))
        assert evaluate(loaded, replicates=2).table["value"].equals(before["value"])


def test_other_findings_and_a_csv_are_read_alike(load, table, tmp_path):
    few = table[["image", "patient", "split", "label_Mass", "score_Mass", "label_Edema", "score_Edema"]]
    few = few.rename(columns=lambda name: name.replace("Edema", "Tube tip")).assign(age=40)
    whole, _ = load(few)
    few.to_csv(tmp_path / "few.csv", index=False)
    assert list(whole) == list(few)[:-1]
    text, notes = load_predictions(tmp_path / "few.csv")
    assert notes == []
    pd.testing.assert_frame_equal(text, whole, check_dtype=False)
    scored = evaluate(text, replicates=2).table
    assert set(scored["label"]) == {"Mass", "Tube tip", "macro", "endpoint", "all"}


@pytest.mark.fault("a CSV of predictions that is no table", "one message with the file and the reason")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file; write the predictions again"),
        (b"image,label_A,score_A\na,1,0.5,3,4\nb\n", "not a readable CSV file|columns"),
        (b'image,label_A,score_A\n"a,1,0.5\n', "not a readable CSV file|label_A"),
        (b"\xff\xfe\x00", "not a readable CSV file"),
        (b"image,label_A,score_A\na,yes,0.5\n", "label_A is 'yes' in line 2"),
        (b"image;label_A;score_A\na;1;0.5\n", "its columns are separated by ';'; separate them by commas"),
        (b"image,label_A,score_B,label_B\na,1,0.5,1\n", "columns are missing: score_A; add them"),
    ],
)
def test_a_csv_that_is_no_table_is_named(tmp_path, content, message):
    (tmp_path / "p.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_predictions(tmp_path / "p.csv")


def test_a_folder_of_a_cell_stands_for_its_predictions() -> None:
    folder = ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0"
    table, _ = load_predictions(folder)
    pd.testing.assert_frame_equal(table, load_predictions(folder / "predictions.parquet")[0])


def test_a_file_with_other_names_is_scored_by_a_map_of_them(tmp_path, table) -> None:
    """The message of `evaluate` named an option that `compare` alone had."""
    table.to_csv(tmp_path / "ours.csv", index=False)
    table.rename(columns={"image": "dicom_id"}).to_csv(tmp_path / "theirs.csv", index=False)
    assert "or map yours with --columns image=NAME" in must_fail("evaluate", tmp_path / "theirs.csv")
    ours, theirs = (
        must_work("evaluate", tmp_path / name, *words, "--json").stdout
        for name, words in (("ours.csv", ()), ("theirs.csv", ("--columns", "image=dicom_id")))
    )
    assert ours == theirs
    bad = must_fail("evaluate", tmp_path / "ours.csv", "--columns", "dicom_id=")
    assert "write our name, an equals sign and yours" in bad


def test_a_finding_without_labels_is_scored_without_a_warning_of_numpy(tmp_path, table) -> None:
    name = next(name for name in table if name.startswith("label_"))
    table.assign(**{name: np.nan}).to_csv(tmp_path / "p.csv", index=False)
    said = must_work("evaluate", tmp_path / "p.csv").stderr
    assert "Warning" not in said and name.removeprefix("label_") in said


def test_the_folder_of_a_failed_run_names_its_status(tmp_path) -> None:
    finished = read_record(ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0")
    record = finished.model_copy(update={"status": "out_of_memory"})
    (tmp_path / "record.json").write_text(record.model_dump_json())
    with pytest.raises(UserError, match="no predictions, the run ended as out_of_memory"):
        evaluate_file(tmp_path, 2, 10)
    done = must_work("evaluate", tmp_path / "record.json")
    assert done.stdout == "" and "there is nothing to score" in done.stderr


def test_patients_whose_ids_differ_in_leading_zeros_are_two(tmp_path) -> None:
    (tmp_path / "p.csv").write_text("image,patient,label_A,score_A\na,007,1,0.5\nb,7,0,0.4\n")
    assert load_predictions(tmp_path / "p.csv")[0]["patient"].tolist() == ["007", "7"]


def test_a_long_table_in_which_an_image_changes_its_patient_or_split_is_refused(tmp_path) -> None:
    """The last row's value was dropped unsaid, and with it the check of a patient in two splits."""
    rows = [(image, image, "test", finding, 0, 0.5) for image in "ab" for finding in ("Mass", "Edema")]
    table = pd.DataFrame(rows, columns=["image", "patient", "split", "finding", "label", "score"])
    for name, other in (("patient", "c"), ("split", "val")):
        wrong = table.assign(**{name: [*table[name][:-1], other]})
        wrong.to_csv(tmp_path / "long.csv", index=False)
        with pytest.raises(UserError, match=r"an image has two values of .*\(image b\).*; correct them"):
            load_predictions(tmp_path / "long.csv")
    table.to_csv(tmp_path / "long.csv", index=False)
    assert list(load_predictions(tmp_path / "long.csv")[0]["image"]) == ["a", "b"]
