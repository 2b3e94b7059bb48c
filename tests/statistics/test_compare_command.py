"""`cxrbench compare` on files: what it accepts in other forms, and one sentence for each bad input."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from columns import LABELS, SCORES
from conftest import ROOT, cxrbench, must_fail, must_work
from cxrbench.statistics.examples import predictions
from cxrbench.statistics.runs import run_number
from synthetic import draw_predictions, network_of

FINDINGS = 4
KEPT = ["image", "patient", "split", *LABELS[:FINDINGS], *SCORES[:FINDINGS]]
REPORTS = Path(__file__).parent / "torchprime.csv"


@pytest.fixture(scope="module")
def sides() -> dict[str, dict[int, pd.DataFrame]]:
    """Three runs of two platforms; a file has 1,000 rows or so."""
    drawn = draw_predictions(3, {"test": 120})
    made = {seed: network_of(drawn, seed, 0.3) for seed in range(3)}
    return {
        "a": {seed: table[KEPT] for seed, table in made.items()},
        "b": {seed: network_of(table, 100 + seed, 0.3)[KEPT] for seed, table in made.items()},
    }


def write(folder: Path, sides) -> None:
    for name, runs in sides.items():
        (folder / name).mkdir()
        for seed, table in runs.items():
            table.to_csv(folder / name / f"seed{seed}.csv", index=False)


@pytest.fixture
def folder(tmp_path: Path, sides) -> Path:
    write(tmp_path, sides)
    return tmp_path


def rows(*words: object, cwd: Path) -> list[dict]:
    return json.loads(must_work("compare", *words, "--json", cwd=cwd).stdout)


# -- what it accepts ------------------------------------------------------------------------------


def test_the_answer_comes_first_in_one_sentence(folder: Path) -> None:
    printed = must_work("compare", "a", "b", cwd=folder).stdout
    first = " ".join(printed.split("\n\n")[0].split())
    number = r"[+-]0\.\d{4}"
    assert re.match(
        rf"(Equivalent|Inconclusive): mean AUROC differs by {number} \(9[05] % interval {number} to "
        rf"{number}\).*"
        r"3 runs each, paired; 120 patients\.",
        first,
    ), first
    assert all(
        word in printed for word in ("macro AUROC", "Atelectasis", "patients x run", "For 80 % it takes")
    )


def test_other_forms_of_the_same_files_give_the_same_rows(folder: Path, sides) -> None:
    expected = rows("a", "b", cwd=folder)
    other = folder / "other"
    for name, runs in sides.items():
        for seed, table in runs.items():
            (other / name / f"seed{seed}").mkdir(parents=True)
            table.to_parquet(other / name / f"seed{seed}/predictions.parquet")
            table.to_csv(other / f"{name}-resnet18-seed{seed}.csv.gz", index=False)
            renamed = table.rename(columns={"image": "dicom_id", "patient": "subject_id"})
            renamed.to_csv(other / f"mapped_{name}_{seed}.csv", index=False)
        pd.concat([t.assign(seed=s) for s, t in runs.items()]).to_csv(other / f"all_{name}.csv", index=False)
    assert rows("other/a", "other/b", cwd=folder) == expected
    assert rows("other/a-*.csv.gz", "other/b-*.csv.gz", cwd=folder) == expected
    mapped = ("--columns", "image=dicom_id,patient=subject_id")
    assert rows("other/mapped_a_*.csv", "other/mapped_b_*.csv", *mapped, cwd=folder) == expected
    only_of_b = ("--columns", "image=image", *mapped)
    assert rows("a", "other/mapped_b_*.csv", *only_of_b, cwd=folder) == expected
    assert rows("other/all_a.csv", "other/all_b.csv", cwd=folder) == expected


def test_a_row_per_image_and_finding_is_read_too(folder: Path, sides) -> None:
    for name, runs in sides.items():
        for seed, table in runs.items():
            long = pd.concat(
                table[["image", "patient"]].assign(
                    finding=label.removeprefix("label_"), label=table[label], score=table[score]
                )
                for label, score in zip(LABELS[:FINDINGS], SCORES[:FINDINGS], strict=True)
            )
            long.to_csv(folder / f"long_{name}_{seed}.csv", index=False)
    assert rows("long_a_*.csv", "long_b_*.csv", cwd=folder) == rows("a", "b", cwd=folder)


def test_only_test_rows_count(folder: Path, sides) -> None:
    (folder / "c").mkdir()
    for seed, table in sides["a"].items():
        train = table.assign(split="train", image="t" + table["image"], patient=1000 + table["patient"])
        pd.concat([train, table]).to_csv(folder / f"c/seed{seed}.csv", index=False)
    assert rows("c", "b", cwd=folder) == rows("a", "b", cwd=folder)


def test_logits_are_scored_by_their_order(folder: Path, sides) -> None:
    (folder / "c").mkdir()
    for seed, table in sides["a"].items():
        odds = np.log(table[SCORES[:FINDINGS]] / (1 - table[SCORES[:FINDINGS]]))
        table.assign(**odds).to_csv(folder / f"c/seed{seed}.csv", index=False)
    found, expected = rows("c", "b", "--scores", "logits", cwd=folder), rows("a", "b", cwd=folder)
    assert [row["difference"] for row in found] == pytest.approx([row["difference"] for row in expected])


def test_runs_are_numbered_by_names_and_not_by_order() -> None:
    names = {
        **{"seed10.csv": 10, "seed2.csv": 2, "x/seed3/predictions.parquet": 3, "resnet18_run4.csv.gz": 4},
        **{
            "fold5/preds.csv": None,
            "resnet18-seed7-v2.parquet": 7,
            "run9/seed1/epoch20.csv": 1,
            "a_6.csv": 6,
        },
    }
    assert {name: run_number(Path(name)) for name in names} == names


@pytest.mark.slow
def test_without_patients_the_first_lines_say_that_intervals_are_of_images(folder: Path, sides) -> None:
    (folder / "c").mkdir()
    for seed, table in sides["b"].items():
        table.drop(columns="patient").to_csv(folder / f"c/seed{seed}.csv", index=False)
    joined = rows("a", "c", cwd=folder)  # patients of a, by image
    assert joined == rows("a", "b", cwd=folder)
    shutil.copytree(folder / "c", folder / "d")
    printed = must_work("compare", "c", "d", cwd=folder).stdout
    assert "no patient column" in " ".join(printed.split("\n\n")[0].split())
    assert {row["patients"] for row in rows("c", "d", cwd=folder)} == {None}


def test_the_public_runs_of_one_image_classifier_on_two_platforms() -> None:
    """torchprime 332: TPU minus GPU by twelve seeds, paired; two seeds were run twice."""
    (row,) = rows(REPORTS, "--by", "platform", cwd=ROOT)
    assert row["difference"] == pytest.approx(0.00308, abs=1e-5)
    assert (row["ci95_low"], row["ci95_high"]) == pytest.approx((-0.0010, 0.0071), abs=1e-4)
    assert (row["verdict"], row["runs_a"], row["paired"], row["patients"]) == ("equivalent", 12, True, None)
    printed = must_work("compare", REPORTS, "--by", "platform", "--margin", "0.005").stdout
    assert printed.startswith("Inconclusive") and "patients are not covered" in " ".join(printed.split())


def test_a_port_is_refused_in_ci_unless_it_is_equivalent(folder: Path) -> None:
    verdict = rows("a", "b", cwd=folder)[0]["verdict"]
    other = "different"
    assert verdict != other
    must_work("compare", "a", "b", "--expect", verdict, cwd=folder)
    said = must_fail("compare", "a", "b", "--expect", other, cwd=folder, code=4)
    assert f"the verdict is {verdict}" in said
    must_fail("compare", "a", "none", "--expect", other, cwd=folder)  # another code than another verdict's
    must_work("compare", "a", "b/seed0.csv", "--expect", "cannot tell", cwd=folder)  # as it is printed
    assert "add --reference" in must_fail("compare", "a", "b", "--expect", "inside", cwd=folder)
    assert "no such verdict; did you mean 'equivalent'" in must_fail(
        "compare", "a", "b", "--expect", "equivalnt"
    )


def test_a_finding_with_one_positive_patient_is_left_out_for_that_reason(folder: Path) -> None:
    """Compared alone it ended in a traceback, and means said that it had no threshold."""
    for path in folder.glob("*/*.csv"):
        table = pd.read_csv(path)
        rare = (table.index == table.index[table["split"] == "test"][0]).astype(int)
        table.assign(label_Rare=rare, score_Rare=table[SCORES[0]]).to_csv(path, index=False)
    alone = must_work("compare", "a", "b", "--findings", "Rare", cwd=folder).stdout
    assert alone.startswith("Cannot tell: ") and "one class has a single patient" in alone
    said = " ".join(must_work("compare", "a", "b", cwd=folder).stdout.split())
    assert re.search(r"macro AUROC: \d+ labels, without [^-]*Rare \(one class has a single patient\)", said)


def test_validation_rows_that_differ_are_named(folder: Path) -> None:
    path = folder / "b/seed1.csv"
    table = pd.read_csv(path)
    val = table.assign(split="val", image=table["image"].astype(str) + "v", patient=table["patient"] + 9999)
    for other in folder.glob("*/*.csv"):
        pd.concat([pd.read_csv(other), val]).to_csv(other, index=False)
    assert "F1 is left out" not in must_work("compare", "a", "b", cwd=folder).stdout
    labels = val.assign(**{LABELS[0]: 1 - val[LABELS[0]]})
    pd.concat([table, labels]).to_csv(path, index=False)
    said = " ".join(must_work("compare", "a", "b", cwd=folder).stdout.split())
    assert "b/seed1.csv has other ones than a/seed0.csv, or other patients or labels" in said


def test_runs_without_a_number_in_common_are_said_to_be_unpaired(folder: Path) -> None:
    for k in range(3):
        (folder / f"b/seed{k}.csv").rename(folder / f"b/seed{k + 10}.csv")
    said = " ".join(must_work("compare", "a", "b", cwd=folder).stdout.split())
    assert "unpaired: A and B have fewer than three numbers of runs in common" in said


def test_a_margin_that_judges_no_row_is_said(folder: Path) -> None:
    """`--label-margin 0.001` of one finding was ignored in silence, and so was any margin of a reference."""
    finding = rows("a", "b", cwd=folder)[-1]["label"]
    alone = ("compare", "a", "b", "--label-margin", "0.03", "--findings", finding)
    said = " ".join(must_work(*alone, cwd=folder).stdout.split())
    assert "--label-margin 0.03 decides nothing here" in said
    assert "decides nothing" not in must_work("compare", "a", "b", "--margin", "0.03", cwd=folder).stdout
    reference = must_work("compare", "a/seed0.csv", "b", "--reference", "--margin", "0.03", cwd=folder).stdout
    assert "--margin 0.03 decides nothing here: a reference has no margin" in " ".join(reference.split())


# -- bad input: one sentence each, with the place and what to do ------------------------------------


def one_sentence(folder: Path, *words: object) -> str:
    message = must_fail("compare", *(words or ("a", "b")), cwd=folder)
    lines = [line for line in message.splitlines() if line.startswith("cxrbench: ")]
    assert len(lines) == 1 and re.search("[;:,] ", lines[0][10:]), message
    return lines[0]


def changed(folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = folder / name
    change(pd.read_csv(path)).to_csv(path, index=False)


def put(column: str, value: object, row: int = 4) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
        return table

    return change


IN_ONE_FILE = {
    "a score is missing": (put(SCORES[0], None), r"score_Atelectasis is 'nan' in line 6 \(image .*\.png\)"),
    "a score is infinite": (put(SCORES[0], np.inf), r"score_Atelectasis is 'inf' in line 6"),
    "scores are logits": (put(SCORES[0], -3.2), r"'-3.2' in line 6 .* --scores logits"),
    "a label is a text": (put(LABELS[0], "Positive"), r"label_Atelectasis is 'Positive' in line 6"),
    "an image comes twice": (lambda t: pd.concat([t, t[:1]]), r"occurs more than once in line 2 \(image"),
    "a finding is missing": (
        lambda t: t.drop(columns=[LABELS[0], SCORES[0]]),
        r"no finding Atelectasis.*--findings Cardiomegaly,",
    ),
    "a label differs": (
        lambda t: put(LABELS[1], 1 - t[LABELS[1]][4])(t),
        r"labels of 1 images .*\(Cardiomegaly\)",
    ),
    "an image is missing": (lambda t: t[1:], r"\d+ test images, \d+ of them among .* --common"),
    "all images have other names": (
        lambda t: t.assign(image="x" + t["image"]),
        r"0 of them .*joined by their names",
    ),
    "a patient differs": (put("patient", 99999), r"images with a different patient than in .*: 1, "),
    "there are no rows": (lambda t: t[:0], "there are no rows"),
}


@pytest.mark.fault(
    "predictions of one run are damaged or do not fit the others", "one sentence with file and place"
)
@pytest.mark.parametrize("fault", IN_ONE_FILE)
@pytest.mark.parametrize("file", ["b/seed1.csv"])
def test_what_is_wrong_in_a_file_is_named(fault: str, file: str, folder: Path) -> None:
    change, expected = IN_ONE_FILE[fault]
    changed(folder, file, change)
    message = one_sentence(folder)
    assert re.search(expected, message) and file in message, message


def test_labels_that_disagree_between_seeds_of_one_side_are_named(folder: Path) -> None:
    changed(folder, "a/seed2.csv", lambda t: put(LABELS[1], 1 - t[LABELS[1]][4])(t))
    assert re.search(
        r"a/seed2.csv: the labels of 1 images are not those of a/seed0.csv", one_sentence(folder)
    )


def test_common_images_are_compared_on_request(folder: Path, sides) -> None:
    changed(folder, "b/seed1.csv", lambda t: t[t["patient"] > 20])
    done = cxrbench("compare", "a", "b", "--common", "--json", cwd=folder)
    assert re.search(r"test images are common to all runs, of up to", " ".join(done.stderr.split()))
    patients = sides["a"][0]["patient"]
    assert json.loads(done.stdout)[0]["patients"] == patients[patients > 20].nunique()


def test_files_that_are_no_predictions_are_named(folder: Path) -> None:
    (folder / "b/seed1.csv").write_text("")
    assert "b/seed1.csv: an empty file" in one_sentence(folder)
    semicolons = (folder / "a/seed1.csv").read_text().replace(",", ";")
    (folder / "b/seed1.csv").write_text(semicolons)
    assert "b/seed1.csv: its columns are separated by ';'" in one_sentence(folder)
    (folder / "b/seed1.csv").unlink()
    (folder / "b/seed1.csv.gz").write_bytes(b"\x1f\x8b\x08no gzip")
    assert "b/seed1.csv.gz: not a readable CSV file" in one_sentence(folder)


def test_what_names_no_runs_is_said(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "empty: a folder without predictions" in one_sentence(folder, "a", "empty")
    assert "c/*.csv: no file matches this pattern" in one_sentence(folder, "a", "c/*.csv")
    assert "nothing: there is no such file or folder" in one_sentence(folder, "a", "nothing")
    near = one_sentence(
        ROOT, "nih128-32px-fp32/resnet18/gpu", folder / "b"
    )  # a recorded name, as README's are
    assert "no such setting is recorded; did you mean 'nih128-32px-fp32/resnet18/cpu'" in near
    assert "two sets of runs" in one_sentence(folder, "a", "b", "a")
    assert "write our name" in one_sentence(folder, "a", "b", "--columns", "image")
    missing = one_sentence(folder, "a", "b", "--columns", "patient=subject")
    assert "there is no column subject for patient; it has image, patient, split and 8 more" in missing
    before_all = one_sentence(folder, "a", "b", "--plot", "x.xyz", "--margin", "nan")
    assert "ends in .png" in before_all
    for margin in ("0", "0.5", "nan"):  # within a half, any two networks are
        assert f"margin {margin}: a margin is above 0 and below 0.5" in one_sentence(
            folder, "a", "b", "--margin", margin
        )
    assert "recorded settings are in the clone alone; run this" in one_sentence(
        folder, "x-32px/resnet18/cpu", "b"
    )
    thrice = one_sentence(folder, "a", "b", *3 * ("--columns", "image=image"))
    assert "--columns is given 3 times; give it once" in thrice
    unknown = one_sentence(folder, "a", "b", "--columns", "photo=image")
    assert "--columns photo: there is no such column to map; use image, " in unknown


def test_equal_scores_are_a_copied_folder_or_said(folder: Path) -> None:
    """Byte-identical predictions in another folder passed as equivalent without a word."""
    shutil.copytree(folder / "a", folder / "copied")
    printed = " ".join(must_work("compare", "a", "copied", cwd=folder).stdout.split())
    assert "all scores of A and B are equal: was one folder copied?" in printed
    assert "was one folder copied" not in must_work("compare", "a", "b", cwd=folder).stdout


def test_a_run_that_is_twice_on_a_side_is_no_second_run(tmp_path: Path) -> None:
    """Copies of one run were found equivalent, with five runs' confidence."""
    for side, seeds in (("a", (0, 1, 2)), ("b", (3, 4, 3))):
        for number, seed in enumerate(seeds):
            (tmp_path / side).mkdir(exist_ok=True)
            predictions(seed).to_csv(tmp_path / side / f"seed{number}.csv", index=False)
    said = must_fail("compare", "a", "b", cwd=tmp_path)
    assert "b/seed2.csv: all test scores are those of b/seed0.csv" in said and "leave one of them out" in said


def test_files_without_a_test_image_are_named(tmp_path: Path) -> None:
    """They were said to have other names of images."""
    for side, split in (("a", "test"), ("b", "val")):
        (tmp_path / side).mkdir()
        for seed in range(2):
            table = predictions(seed + 5 * (side == "b")).assign(split=split)
            table.to_csv(tmp_path / side / f"seed{seed}.csv", index=False)
    said = must_fail("compare", "a", "b", cwd=tmp_path)
    assert "b/seed0.csv: none of its 120 rows is of split test" in said


def test_a_narrow_terminal_is_told_which_columns_it_hides(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 95 % interval and Holm's p were left out, and explained below the table."""
    hidden = {"60": "A, B, 95 % interval, Holm's p.", "80": "A, B, 95 % interval.", "100": "95 % interval."}
    for width in (*hidden, "200"):
        monkeypatch.setenv("COLUMNS", width)
        printed = " ".join(must_work("compare", "a", "b", cwd=folder).stdout.split())
        said = re.search(r"Not shown in under \d+ columns: (.*?) --html", printed)
        assert (said and said[1]) == hidden.get(width)


def test_where_one_side_has_other_names_the_map_is_given_twice(folder: Path) -> None:
    for path in (folder / "b").glob("*.csv"):
        pd.read_csv(path).rename(columns={"image": "dicom_id"}).to_csv(path, index=False)
    once = one_sentence(folder, "a", "b", "--columns", "image=dicom_id")
    assert "a/seed0.csv: there is no column dicom_id" in once and "give --columns twice, A's first" in once
    as_given = rows("a", "b", "--columns", "image=image", "--columns", "image=dicom_id", cwd=folder)
    for path in (folder / "b").glob("*.csv"):
        pd.read_csv(path).rename(columns={"dicom_id": "image"}).to_csv(path, index=False)
    assert as_given == rows("a", "b", cwd=folder)


def test_a_column_under_another_name_can_be_mapped(folder: Path) -> None:
    changed(folder, "a/seed1.csv", lambda t: t.rename(columns={"image": "dicom_id"}))
    assert "or map yours with --columns image=NAME" in one_sentence(folder)


def test_a_pattern_of_three_parts_is_no_name_of_recorded_runs(folder: Path) -> None:
    (folder / "runs").mkdir()
    for side in "ab":
        (folder / side).rename(folder / "runs" / side)
    assert rows("runs/a/*.csv", "runs/b/*.csv", cwd=folder)[0]["runs_a"] == 3
    assert "--findings names none" in one_sentence(folder, "runs/a", "runs/b", "--findings", ",")


def test_two_files_of_one_run_are_named(folder: Path) -> None:
    (folder / "a/again_seed1.csv").write_text((folder / "a/seed1.csv").read_text())
    assert re.search(r"run 1 of A is in .*seed1\.csv too", one_sentence(folder))


def test_runs_that_are_in_both_sides_are_named(folder: Path) -> None:
    message = one_sentence(folder, "a", "a/seed1.csv")
    assert "run 1 of A is run 1 of B too" in message


def test_three_patients_are_too_few(folder: Path) -> None:
    for name in ("a", "b"):
        for seed in range(3):
            changed(folder, f"{name}/seed{seed}.csv", lambda t: t[t["patient"] <= 3])
    assert "3 test patients: an interval takes 10 or more" in one_sentence(folder)


@pytest.mark.parametrize(
    ("a", "b"),
    [((0.71,) * 3, (0.70,) * 3), ((0.71, 0.72, 0.73), (0.70, 0.71, 0.72)), ((0.7,) * 3, (0.7,) * 3)],
)
def test_scores_that_do_not_vary_have_no_verdict(a, b, tmp_path: Path) -> None:
    """Rounded scores gave an interval without a width, and "different" or "equivalent" by it."""
    table = pd.DataFrame({"gpu": ["x"] * 3 + ["y"] * 3, "seed": [0, 1, 2] * 2, "score": [*a, *b]})
    table.to_csv(tmp_path / "runs.csv", index=False)
    (row,) = rows("runs.csv", "--by", "gpu", "--margin", "0.02", cwd=tmp_path)
    assert (row["verdict"], row["ci90_low"]) == ("cannot_tell", None) and "rounded" in row["note"]
    assert "rounded" in must_work("compare", "runs.csv", "--by", "gpu", cwd=tmp_path).stdout
    table.drop_duplicates("gpu").to_csv(tmp_path / "runs.csv", index=False)  # one run on each side
    assert "rounded" not in must_work("compare", "runs.csv", "--by", "gpu", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--by", "score"), "platform, seed and score are three columns"),
        (("--by", "seed"), "platform, seed and score are three columns"),
        (("--by", "platform", "--columns", "seed=seed,score=seed"), "are three columns, here"),
        (("--by", "platform", "--margin", "inf"), "a margin is a finite number above zero"),
        (("--by", "platform", "--findings", "Mass"), "leave these out, or --by"),
        (("--by", "platform", "--common"), "leave these out, or --by"),
    ],
)
def test_a_table_of_scores_takes_three_columns_and_no_option_of_predictions(words, expected: str) -> None:
    assert expected in one_sentence(ROOT, REPORTS, *words)


def test_a_table_of_scores_that_is_none_is_named(tmp_path: Path) -> None:
    table = pd.read_csv(REPORTS)
    for change, expected in {
        "three": (table.assign(platform=["x", *table["platform"][1:]]), "platform has 3 values"),
        "column": (table.rename(columns={"score": "accuracy"}), "there is no column score"),
        "text": (table.assign(score=["high", *table["score"][1:].astype(str)]), "score is 'high' in line 2"),
        "seed": (table.assign(seed=[0.5, *table["seed"][1:]]), "seed is '0.5' in line 2"),
        "large": (
            table.assign(seed=[2**53 + 2, *table["seed"][1:]]),
            "write a whole number up to 9007199254740992",
        ),
    }.values():
        change.to_csv(tmp_path / "runs.csv", index=False)
        assert expected in one_sentence(tmp_path, "runs.csv", "--by", "platform")
    assert "there is no such file" in one_sentence(tmp_path, "none.csv", "--by", "platform")
    (first, *others) = table.groupby("platform")
    pd.concat([first[1].head(1), *(rows for _, rows in others)]).to_csv(tmp_path / "runs.csv", index=False)
    said = must_work("compare", "runs.csv", "--by", "platform", cwd=tmp_path).stdout
    assert "give each side one" in " ".join(said.split()) and "--reference" not in said, (
        "--by takes no such option"
    )
