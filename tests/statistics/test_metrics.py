import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from columns import LABELS, SCORES
from conftest import ran
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.statistics.components import spread
from cxrbench.statistics.estimates import estimate_cell
from cxrbench.statistics.evaluate import COLUMNS, evaluate, one_per_metric
from cxrbench.statistics.measures import f1
from cxrbench.statistics.metrics import DEFINITIONS, IMAGE_LEVEL, METRICS
from cxrbench.statistics.sample import choose_thresholds, validation_of
from cxrbench.study.names import Cell
from synthetic import draw_predictions


@pytest.fixture(scope="module")
def common() -> pd.DataFrame:
    """Predictions in which every label has enough positive patients."""
    table = draw_predictions(11, {"val": 400, "test": 400}, np.linspace(0.06, 0.3, 14))
    table[SCORES] = table[SCORES].round(2)  # ties, and test scores that equal a threshold
    return table


@pytest.fixture(scope="module")
def evaluation(common):
    return evaluate(common, replicates=200)


def value(table, label, metric):
    rows = one_per_metric(table)
    (found,) = rows.loc[(rows["label"] == label) & (rows["metric"] == metric), "value"]
    return found


@pytest.mark.slow
def test_many_patients_need_fewer_draws_for_the_calibration_by_chance(common) -> None:
    two = common[[column for column in common if not column.startswith(("label_", "score_"))]].join(
        common[[*common.filter(like="label_").columns[:2], *common.filter(like="score_").columns[:2]]]
    )
    many = pd.concat([two.query("split == 'test'")] * 30, ignore_index=True)
    many = many.assign(image=many.index.astype(str), patient=many.index)
    assert len(many) > 10_000
    found, same, exact = (
        evaluate(many, replicates=draws).table.query("metric == 'calibration_error_by_chance'")["value"]
        for draws in (None, 2000 * 5000 // len(many), 2000)
    )
    assert (found == same).all() and (found != exact).all()
    assert np.abs(found / exact - 1).max() < 0.05


def test_f1_of_whole_images_has_no_value_without_a_threshold(common) -> None:
    few = pd.concat([common.query("split == 'val'").head(6), common.query("split == 'test'")])
    table, notes = evaluate(few, replicates=20)
    assert any("any-finding and no-finding F1 are left out" in note for note in notes)
    assert table.loc[table["metric"].isin(IMAGE_LEVEL), ["value", "ci_low"]].isna().all(axis=None)
    means = spread({Cell("d", "a", "cpu", seed): estimate_cell(few) for seed in range(3)})
    assert means.loc[means["metric"].isin(IMAGE_LEVEL), "mean"].isna().all()


def test_table_is_tidy_and_every_metric_is_there(evaluation):
    table = evaluation.table
    assert list(table.columns) == COLUMNS
    (note,) = evaluation.notes
    assert note.endswith("by 200 draws of the validation patients")
    assert not table.duplicated(["split", "label", "metric", "ci_method"]).any()
    assert not one_per_metric(table).duplicated(["label", "metric"]).any()
    assert set(DEFINITIONS) <= set(table["metric"]) == set(METRICS)
    assert table["value"].notna().all()
    assert (table["note"].ne("") == (table["metric"] == "calibration_error")).all()
    inside = table.dropna(subset="ci_low")
    assert ((inside["ci_low"] <= inside["value"]) & (inside["value"] <= inside["ci_high"])).all()
    per_label = table[(table["metric"] == "auroc") & (table["label"] == "Hernia")]
    assert set(per_label["ci_method"]) == {"delong-patient", "delong-image"}


def test_points_are_scikit_learns(common, evaluation):
    test = common[common["split"] == "test"]
    truth, scores = test[LABELS].to_numpy(), test[SCORES].to_numpy(float)
    thresholds = choose_thresholds(validation_of(common))
    calls = scores >= thresholds.f1
    highest, finding = scores.max(axis=1), truth.any(axis=1)
    expected = {
        ("macro", "auroc"): roc_auc_score(truth, scores),
        ("Mass", "auroc"): roc_auc_score(test["label_Mass"], test["score_Mass"]),
        ("macro", "average_precision"): average_precision_score(truth, scores),
        ("macro", "brier"): np.mean((truth - scores) ** 2),
        ("macro", "f1_macro"): f1_score(truth, calls, average="macro"),
        ("Edema", "f1"): f1_score(truth[:, 9], calls[:, 9]),
        ("all", "f1_micro"): f1_score(truth, calls, average="micro"),
        ("all", "f1_weighted"): f1_score(truth, calls, average="weighted"),
        ("all", "f1_samples"): f1_score(truth, calls, average="samples", zero_division=0),
        ("all", "f1_samples_empty_is_1"): f1_score(truth, calls, average="samples", zero_division=1),
        ("all", "f1_both_class_weighted"): np.mean(
            [f1_score(truth[:, k], calls[:, k], average="weighted") for k in range(14)]
        ),
        ("all", "f1_both_class_macro"): f1_score(truth.ravel(), calls.ravel(), average="macro"),
        ("all", "f1_any_finding"): f1_score(finding, highest >= thresholds.any_finding),
        ("all", "f1_no_finding"): f1_score(~finding, highest < thresholds.no_finding),
        ("Mass", "sensitivity_at_specificity_90"): np.mean(
            scores[truth[:, 4] == 1, 4] >= thresholds.specificity[4]
        ),
        ("Mass", "specificity_at_that_threshold"): np.mean(
            scores[truth[:, 4] == 0, 4] < thresholds.specificity[4]
        ),
    }
    for (label, metric), wanted in expected.items():
        assert value(evaluation.table, label, metric) == pytest.approx(wanted, rel=1e-6), (label, metric)


def test_rows_in_another_order_give_the_same_bytes(common, evaluation):
    mixed = evaluate(common.sample(frac=1, random_state=1), replicates=200)
    pd.testing.assert_frame_equal(mixed.table, evaluation.table, check_exact=True)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_label_with_one_class_is_undefined_and_named(common):
    changed = common.copy()
    changed.loc[changed["split"] == "test", "label_Mass"] = 0
    evaluation = evaluate(changed, replicates=20)
    rows = one_per_metric(evaluation.table)
    mass = rows[rows["label"] == "Mass"]
    assert mass["value"].isna().all() and mass["note"].str.contains("only one class").all()
    others = [k for k, name in enumerate(FINDINGS) if name != "Mass"]
    test = changed[changed["split"] == "test"]
    expected = roc_auc_score(test[LABELS].to_numpy()[:, others], test[SCORES].to_numpy()[:, others])
    assert value(rows, "macro", "auroc") == pytest.approx(expected)
    means = rows[rows["label"] == "macro"]
    assert means["note"].str.contains("13 labels, without Mass").all()
    assert any(note.startswith("Mass: undefined") for note in evaluation.notes)


def test_untuned_label_has_no_f1_and_leaves_the_means(predictions):
    evaluation = evaluate(predictions, replicates=20)
    rows = one_per_metric(evaluation.table).set_index(["label", "metric"])
    assert np.isnan(rows.loc[("Hernia", "f1"), "value"]) and rows.loc[("Hernia", "auroc"), "value"] > 0
    assert "no tuned threshold: 1 positive validation patient" in rows.loc[("Hernia", "f1"), "note"]
    per_label = rows.xs("f1", level="metric")["value"]
    assert rows.loc[("macro", "f1_macro"), "value"] == pytest.approx(per_label.drop("Hernia").mean())
    assert "13 labels, without Hernia" in rows.loc[("all", "f1_micro"), "note"]
    assert rows.loc[("macro", "auroc"), "note"] == ""


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_single_positive_patient_has_a_value_but_no_interval(common):
    changed = common.copy()
    test = changed["split"] == "test"
    changed.loc[test, "label_Mass"] = 0
    changed.loc[changed.index[test][0], "label_Mass"] = 1
    rows = one_per_metric(evaluate(changed, replicates=20).table).set_index(["label", "metric"])
    for key in [("Mass", "auroc"), ("Mass", "average_precision"), ("Mass", "f1"), ("all", "f1_micro")]:
        assert np.isfinite(rows.loc[key, "value"]) and np.isnan(rows.loc[key, "ci_low"]), key
        assert "single patient" in rows.loc[key, "note"], key
    per_label = rows.xs("auroc", level="metric")["value"].drop(["Mass", "macro"])
    macro = rows.loc["macro", "auroc"]
    assert macro["value"] == pytest.approx(per_label.mean()) and macro["ci_low"] < macro["value"]
    assert macro["note"] == "13 labels, without Mass (one class has a single patient)"
    for metric in ("average_precision", "brier", "f1_macro"):
        assert np.isfinite(rows.loc[("macro", metric), "ci_low"]) and "without Mass" in macro["note"], metric


def test_without_val_rows_threshold_metrics_are_left_out(common, evaluation):
    alone = evaluate(common[common["split"] == "test"], replicates=200)
    assert any("no val rows" in note for note in alone.notes)
    assert not alone.table["metric"].str.startswith(("f1", "sens", "spec")).any()
    kept = evaluation.table[evaluation.table["metric"].isin(alone.table["metric"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.table, kept)


def test_without_patients_intervals_are_image_level_and_say_so(common, evaluation):
    alone = evaluate(common.drop(columns="patient"), replicates=50)
    assert "ignore clustering" in alone.notes[0]
    assert alone.table["n_patients"].isna().all()
    methods = {"delong-image", "influence-image", "influence-image-refit", "none"}
    assert set(alone.table["ci_method"]) == methods
    for column in ("value", "ci_low"):
        rows = evaluation.table[evaluation.table["ci_method"] == "delong-image"].reset_index(drop=True)
        ours = alone.table[alone.table["metric"] == "auroc"].head(16)
        pd.testing.assert_series_equal(ours[column], rows[column])
    both = pd.concat([evaluation.table.assign(cell="a"), alone.table.assign(cell="b")], ignore_index=True)
    rows = one_per_metric(both)  # each cell keeps its own intervals
    assert not rows.duplicated(["cell", "label", "metric"]).any()
    methods = rows[rows["metric"] == "auroc"].groupby("cell")["ci_method"].agg(list)
    assert methods.to_dict() == {"a": ["delong-patient"] * 16, "b": ["delong-image"] * 16}


def test_calibrated_scores_are_no_worse_than_chance_and_shifted_ones_are():
    rng = np.random.default_rng(0)
    table = draw_predictions(1, {"test": 800}, np.full(14, 0.2))
    chances = rng.beta(1, 4, (len(table), 14))
    table[SCORES], table[LABELS] = chances, (rng.random(chances.shape) < chances).astype("uint8")
    good = evaluate(table, replicates=100).table
    chance = value(good, "macro", "calibration_error_by_chance")
    assert value(good, "macro", "calibration_error") == pytest.approx(chance, rel=0.15)
    table[SCORES] = 0.1 + 0.9 * chances
    bad = evaluate(table, replicates=100).table
    assert value(bad, "macro", "calibration_error") > 3 * value(bad, "macro", "calibration_error_by_chance")
    assert value(bad, "macro", "calibration_in_the_large") == pytest.approx(0.1 * 0.8, abs=0.01)


def test_import_is_light():
    code = "import sys, cxrbench.statistics.evaluate, cxrbench.statistics.parity; print(*sys.modules)"
    loaded = ran(sys.executable, "-c", code, check=True).stdout.split()
    assert not {"numba", "sklearn", "torch", "scipy.stats"} & set(loaded)


def test_f1_without_positives_is_undefined_not_zero():
    assert np.isnan(f1(np.array(0), np.array(3), np.array(0)))
