"""`cxrbench evaluate` on predictions from anywhere."""

import json
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, must_fail, must_work

RECORDED = ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0/predictions.parquet"
FEW = ("--replicates", 50)


@pytest.mark.fault("a table of results is cut by hand", "one message with the file and a remedy")
@pytest.mark.parametrize("words", [("claims", "--tables", "."), ("expected.py", "--table", "metrics.csv")])
def test_a_damaged_table_of_results_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    table = "cell,status,metric,label,ci_method\na,ok,auroc,macro,x\nb,ok,auroc,mac"
    for text, reason in ((table, "its last line is cut"), (f"{table},x,y,z\n", "a damaged table (")):
        (tmp_path / "metrics.csv").write_text(text)
        options = ("--file", ROOT / "data/claims.yaml", "--prices", ROOT / "data/prices.csv")
        message = must_fail(*words, *(options if words[0] == "claims" else ()), cwd=tmp_path)
        assert "metrics.csv: a damaged table (" in message and reason in message, message
        assert message.endswith("); remove it, then build it again\n")


def test_a_readable_table_a_csv_and_json(tmp_path: Path) -> None:
    done = must_work("evaluate", RECORDED, *FEW)
    by_name = must_work("evaluate", "/".join(RECORDED.parts[-5:-1]), *FEW, cwd=ROOT)
    assert by_name.stdout == done.stdout, "as `compare` takes it"
    assert "macro" in done.stdout and " to " in done.stdout and "f1_micro" in done.stdout
    assert "Not shown; --out FILE.csv and --json have them" in done.stdout
    assert "intervals of F1, sensitivity and specificity allow for the choice of thresholds" in done.stderr
    done = must_work("evaluate", RECORDED, *FEW, "--json", "--out", tmp_path / "m.csv")
    rows = pd.DataFrame(json.loads(done.stdout))
    table = pd.read_csv(tmp_path / "m.csv")
    assert len(rows) == len(table) > 100
    macro = rows[(rows["metric"] == "auroc") & (rows["label"] == "macro")].set_index("ci_method")
    width = macro["ci_high"] - macro["ci_low"]
    assert 0.6 < macro.loc["delong-patient", "value"] < 0.8
    assert width["delong-patient"] > width["delong-image"]


def test_any_findings_fit_a_terminal_and_blank_labels_are_unknown(tmp_path: Path) -> None:
    names = ["Support device, of any kind at all, and its leads", "Hühnerbrust"]
    table = pd.read_parquet(RECORDED, columns=["image", "patient", "split"])
    given = pd.read_parquet(RECORDED)
    for theirs, name in zip(["Effusion", "Nodule"], names, strict=True):
        table[f"label_{name}"], table[f"score_{name}"] = given[f"label_{theirs}"], given[f"score_{theirs}"]
    table[f"label_{names[1]}"] = table[f"label_{names[1]}"].astype(float).mask(table.index % 3 == 0)
    table.to_csv(tmp_path / "mine.csv", index=False)
    done = must_work("evaluate", tmp_path / "mine.csv", *FEW)
    assert max(map(len, done.stdout.splitlines())) <= 100
    first, second = (line for line in done.stdout.splitlines() if line.startswith(("Support", "Hühner")))
    assert "1,985" in first and "1,985" not in second
    assert "some labels are missing" in done.stderr and "Warning" not in done.stderr


def changed(table: pd.DataFrame, how: str) -> pd.DataFrame:
    """Recorded predictions in which one thing cannot be estimated."""
    test = table["split"] == "test"
    if how == "one patient":
        return table[~test | (table["patient"] == table.loc[test, "patient"].iloc[0])]
    if how == "only ties":
        return table.assign(score_Mass=0.5)
    return table.assign(label_Mass=table["label_Mass"].mask(test, 1))


@pytest.mark.parametrize(
    ("how", "label", "metric", "word"),
    [
        ("one patient", "all", "f1_micro", "one class has a single patient"),
        ("no negatives", "Mass", "average_precision", "only one class"),
        ("only ties", "Mass", "auroc", "the scores order every patient alike"),
    ],
)
def test_what_cannot_be_estimated_has_a_word_for_an_interval(
    how: str, label: str, metric: str, word: str, tmp_path: Path
) -> None:
    changed(pd.read_parquet(RECORDED), how).to_parquet(tmp_path / "p.parquet")
    done = must_work("evaluate", tmp_path / "p.parquet", *FEW, "--out", tmp_path / "m.csv")
    assert "Warning" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    rows = pd.read_csv(tmp_path / "m.csv")
    row = rows[(rows["label"] == label) & (rows["metric"] == metric)].iloc[0]
    assert pd.isna(row["ci_low"]) and pd.isna(row["ci_high"]) and word in row["note"], row["note"]
