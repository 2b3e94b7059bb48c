"""A label that is missing counts nowhere: the metrics are those of the images that have it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from columns import LABELS, SCORES
from cxrbench.evidence.predictions import read_predictions, write_predictions
from cxrbench.statistics.estimates import estimate_cell
from cxrbench.statistics.evaluate import evaluate, require_controls
from cxrbench.statistics.f1_search import f1_search
from cxrbench.statistics.measures import patient_sums, totals_at, totals_of
from cxrbench.statistics.metrics import DEFINITIONS, IMAGE_LEVEL
from cxrbench.statistics.predictions import predictions_table
from cxrbench.statistics.sample import choose_thresholds, refitted, sample_of, scope_of, validation_of
from synthetic import draw_predictions

MASKED = [LABELS[k] for k in (0, 2, 5)]
OF_IMAGES = ("f1_samples", "f1_samples_empty_is_1", *IMAGE_LEVEL)


@pytest.fixture(scope="module")
def complete() -> pd.DataFrame:
    return draw_predictions(4, {"val": 300, "test": 300}, np.linspace(0.06, 0.3, 14))


@pytest.fixture(scope="module")
def table(complete: pd.DataFrame) -> pd.DataFrame:
    """The same with a third of three findings' labels taken away."""
    drawn = np.random.default_rng(0).random((len(complete), len(MASKED))) < 1 / 3
    return complete.assign(**complete[MASKED].astype(float).mask(drawn).to_dict("series"))


def values(table: pd.DataFrame) -> pd.DataFrame:
    found = evaluate(table, replicates=50).table
    return found.set_index(["label", "metric", "ci_method"])


def test_a_finding_is_judged_as_if_only_its_images_were_there(complete, table) -> None:
    found = values(table)
    for label in MASKED[:2]:
        name = label.removeprefix("label_")
        alone = complete.loc[table[label].notna(), ["image", "patient", "split", label, f"score_{name}"]]
        drawn = "calibration_error_by_chance"  # from draws of other patients
        wanted, ours = (part.loc[name].drop(index=drawn, level=0) for part in (values(alone), found))
        columns = ["value", "n_images", "n_positive"]
        pd.testing.assert_frame_equal(ours[columns], wanted[columns], check_exact=False, rtol=1e-6)
        ends = ["ci_low", "ci_high"]  # thresholds are chosen anew from other draws of patients
        pd.testing.assert_frame_equal(ours[ends], wanted[ends], check_exact=False, atol=0.02)
    untouched = found.loc[LABELS[1].removeprefix("label_")]
    same = values(complete).loc[LABELS[1].removeprefix("label_")]
    pd.testing.assert_frame_equal(untouched.drop(columns=ends), same.drop(columns=ends))
    pd.testing.assert_frame_equal(untouched[ends], same[ends], atol=1e-3)  # variances are moderated over all


def test_pooled_f1_is_of_the_known_labels_and_of_images_with_all_of_them(table) -> None:
    found = values(table).loc["all"].droplevel("ci_method")
    sample, cuts = sample_of(table), choose_thresholds(validation_of(table))
    calls, known = sample.scores >= cuts.f1, ~sample.unknown
    assert found.loc["f1_micro", "value"] == pytest.approx(f1_score(sample.labels[known], calls[known]))
    whole = sample.complete
    per_image = f1_score(sample.labels[whole], calls[whole], average="samples", zero_division=0)
    assert found.loc["f1_samples", "value"] == pytest.approx(per_image)
    assert set(found.loc[list(OF_IMAGES), "n_images"]) == {whole.sum()}
    assert found.loc["f1_samples", "note"] == f"of the {whole.sum()} images with all labels"


def test_totals_at_many_thresholds_are_those_of_one_at_a_time(complete, table) -> None:
    for predictions in (complete, table):
        test, val = sample_of(predictions), validation_of(predictions)
        counted = scope_of(test, None).counted
        thresholds = [choose_thresholds(val), *refitted(val)[:3]]
        together = totals_at(test, thresholds, counted)
        for k, one in enumerate(thresholds):
            alone = totals_of(patient_sums(test, one, counted))
            for name in together.keys() - {"total"}:
                assert together[name][k] == pytest.approx(alone[name], rel=1e-6), name


def test_labels_that_are_all_there_are_those_of_before(complete) -> None:
    as_floats = complete.astype(dict.fromkeys(LABELS, float))
    pd.testing.assert_frame_equal(values(as_floats), values(complete))


def test_what_is_missing_is_said_and_every_table_is_made(table) -> None:
    require_controls(table, "here")
    notes = " ".join(evaluate(table, replicates=20).notes)
    assert "some labels are missing" in notes
    search = f1_search(table).set_index("definition")
    assert search["value"].notna().all() and search["prevalence"].dropna().between(0, 1).all()
    assert search["prevalence"].notna().sum() == len(DEFINITIONS)


def test_a_mean_says_over_how_many_findings_it_is(complete) -> None:
    rows = evaluate(complete, replicates=10).table
    finite = rows["value"].notna() & ~rows["label"].isin(["macro", "endpoint", "all"])
    scored = (
        rows[finite].drop_duplicates(["label", "metric"]).groupby("metric").size().rename({"f1": "f1_macro"})
    )
    macro = rows[(rows["label"] == "macro") & rows["value"].notna()]
    assert {*zip(macro["metric"], macro["n_findings"], strict=True)} == {
        (metric, scored[metric]) for metric in macro["metric"]
    }
    endpoint = rows[(rows["label"] == "endpoint") & (rows["metric"] == "auroc")]
    assert (endpoint["n_findings"] <= scored["auroc"]).all()
    assert rows.loc[~rows["label"].isin(["macro", "endpoint"]), "n_findings"].isna().all()


def test_no_image_with_all_labels_leaves_out_what_is_said_of_images(complete) -> None:
    half = complete.astype(dict.fromkeys(LABELS[:2], float))
    half.loc[::2, LABELS[0]] = np.nan
    half.loc[1::2, LABELS[1]] = np.nan
    found = values(half).loc["all"].droplevel("ci_method")
    assert found.loc[list(OF_IMAGES), "value"].isna().all() and found.loc["f1_micro", "value"] > 0
    assert "of the 0 images with all labels" in found.loc["f1_samples", "note"]
    assert f1_search(half).set_index("definition").loc["f1_micro", "value"] > 0


def test_other_missing_labels_are_other_images_for_a_comparison(complete, table) -> None:
    assert estimate_cell(table).same_images(estimate_cell(table))
    assert not estimate_cell(table).same_images(estimate_cell(complete.assign(**{LABELS[0]: 0.0})))


def test_missing_labels_survive_the_file(table, tmp_path: Path) -> None:
    identity = table[["image", "patient", "split"]]
    findings = [name.removeprefix("label_") for name in LABELS]
    labels = table[LABELS].to_numpy(np.float32)
    written = predictions_table(identity, findings, labels, table[SCORES].to_numpy())
    write_predictions(tmp_path / "p.parquet", written)
    read = read_predictions(tmp_path / "p.parquet")
    np.testing.assert_array_equal(read[LABELS].to_numpy(float), labels)
    assert [str(read[name].dtype) for name in LABELS[:2]] == ["float64", "uint8"]
