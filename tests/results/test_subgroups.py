import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from cxrbench.common.errors import UserError
from cxrbench.results.subgroups import COLUMNS, NO_CLAIM, subgroups
from cxrbench.statistics.auroc import auroc
from cxrbench.statistics.estimates import areas_with_ends
from cxrbench.statistics.sample import sample_of


@pytest.fixture(scope="module")
def nih(predictions):
    """A table such as NIH's: sex by patient, view by image."""
    view = np.where(np.arange(len(predictions)) % 3 == 0, "AP", "PA")
    sex = np.where(predictions["patient"] % 2 == 0, "F", "M")
    return pd.DataFrame({"image": predictions["image"], "sex": sex, "view": view})


def test_groups_are_those_of_the_table(predictions, nih):
    table, _ = subgroups(predictions, nih)
    assert list(table.columns) == COLUMNS
    groups = {("sex", "F"), ("sex", "M"), ("view", "AP"), ("view", "PA")}
    assert set(zip(table["group"], table["value_of_group"], strict=True)) == groups
    women = predictions.merge(nih, on="image").query("split == 'test' and sex == 'F'")
    row = table.query("value_of_group == 'F' and label == 'Mass'").iloc[0]
    assert row["value"] == pytest.approx(roc_auc_score(women["label_Mass"], women["score_Mass"]))
    assert (row["n_images"], row["n_patients"]) == (len(women), women["patient"].nunique())
    assert row["n_positive"] == women["label_Mass"].sum()
    sample = sample_of(women, "test")
    ends = areas_with_ends(sample, auroc(sample)).iloc[4]
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((ends["ci_low"], ends["ci_high"]))


def test_no_claim_exactly_where_the_interval_is_wide_or_unknown(predictions, nih):
    table = subgroups(predictions, nih)[0].dropna(subset="value")
    wide = ~(table["ci_high"] - table["ci_low"] <= 0.2)
    assert wide.any() and not wide.all()
    assert ((table["note"] == NO_CLAIM) == wide).all()


def test_macros_of_a_kind_are_over_the_same_labels(predictions, nih):
    changed = predictions.copy()
    changed.loc[changed["image"].map(nih.set_index("image")["sex"]) == "F", "label_Mass"] = 0
    table, _ = subgroups(changed, nih)
    for sex in "FM":
        rows = table[table["value_of_group"] == sex].set_index("label")
        left_out = rows.loc["macro", "left_out"].split(", ")
        assert "Mass" in left_out
        kept = rows["value"].drop(["macro", *left_out])
        assert rows.loc["macro", "value"] == pytest.approx(kept.mean())
    assert table.query("value_of_group == 'F' and label == 'Mass'")["note"].item().startswith("undefined")


def test_phantom_images_find_their_row(predictions, nih):
    phantom = predictions.assign(image="phantom_" + predictions["image"])
    pd.testing.assert_frame_equal(subgroups(phantom, nih)[0], subgroups(predictions, nih)[0])


def test_unknown_image_is_named(predictions, nih):
    with pytest.raises(UserError, match=r"is not in NIH's table \(1 such images\)"):
        subgroups(predictions, nih.drop(index=predictions.index[-1]))
