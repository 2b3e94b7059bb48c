from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.results.literature import (
    BASELINE_COLUMNS,
    compare_with_literature,
    read_baselines,
    reproductions,
)
from cxrbench.statistics.evaluate import evaluate

BASELINES = Path(__file__).parents[2] / "data" / "baselines.csv"


@pytest.fixture(scope="module")
def table(predictions):
    return evaluate(predictions, replicates=2).table.assign(cell="a/b/cpu/seed0")


def test_committed_baselines_are_whole():
    baselines = read_baselines(BASELINES)
    assert not baselines.duplicated(["label", "source"]).any()
    for source, rows in baselines.groupby("source"):
        assert set(rows["label"]) == {*FINDINGS, "macro"}, source
        by_label = rows.set_index("label")["value"]
        # published means: one table prints 0.843 for values that average 0.8423
        assert by_label["macro"] == pytest.approx(by_label.drop("macro").mean(), abs=1e-3), source
        assert rows["split"].nunique() == 1 and rows["citation"].ne("").all()


@pytest.mark.parametrize("split", ["official", "chexnet", "phantom"])
def test_only_the_same_split_is_compared(table, split):
    baselines = read_baselines(BASELINES)
    rows = compare_with_literature(table, baselines, split_name=split, n_train_images=7077, pixels=64)
    assert list(rows.columns) == ["cell", *BASELINE_COLUMNS]
    assert set(rows["split"]) == {split} & set(baselines["split"])
    assert set(rows["source"]) == set(baselines.loc[baselines["split"] == split, "source"])
    assert rows["difference"].to_numpy() == pytest.approx((rows["value"] - rows["published"]).to_numpy())
    assert not rows.duplicated(["label", "source"]).any()


def test_verdict_and_differences_in_training_are_said(table):
    macro = table[(table["metric"] == "auroc") & (table["label"] == "macro")].iloc[0]
    base = {"label": "macro", "split": "mine", "pixels": 224, "citation": "c", "n_test_images": None}
    values = {"low": macro["ci_low"] - 0.1, "same": macro["value"], "high": macro["ci_high"] + 0.1}
    base["n_train_images"] = 78468
    published = pd.DataFrame([{**base, "source": name, "value": value} for name, value in values.items()])
    rows = compare_with_literature(table, published, split_name="mine", n_train_images=7077, pixels=224)
    rows = rows.set_index("source")
    verdicts = [
        "above the published value",
        "interval holds the published value",
        "below the published value",
    ]
    assert rows["verdict"].tolist() == verdicts
    note = rows.loc["same", "note"]
    assert "training images: 7,077 here, 78,468 published" in note and "pixels" not in note
    assert "test images: 2,428 here, published number unknown" in note


def test_a_percentage_in_the_baselines_is_named(tmp_path):
    path, good = tmp_path / "baselines.csv", read_baselines(BASELINES)
    good.assign(value=np.where(good["label"] == "Mass", 69.3, good["value"])).to_csv(path, index=False)
    with pytest.raises(UserError, match=r"baselines\.csv:\d+: column value: '69.3' must be 1 or less"):
        read_baselines(path)


def test_reproductions_lie_apart_by_their_findings_not_by_a_rounded_mean() -> None:
    values = {"arnoweng_reproduction": (0.8, 0.9, 0.85), "jrzech_reproduction": (0.79, 0.902, 0.84)}
    rows = [
        {"source": source, "label": label, "published": value}
        for source, published in values.items()
        for label, value in zip(("Mass", "Edema", "macro"), published, strict=True)
    ]
    assert reproductions(pd.DataFrame(rows)) == pytest.approx((0.004, 0.01))
    assert reproductions(pd.DataFrame(rows[:3])) is None
