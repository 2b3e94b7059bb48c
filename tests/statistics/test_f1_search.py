from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from columns import LABELS, SCORES
from cxrbench.statistics.evaluate import evaluate, one_per_metric
from cxrbench.statistics.f1_search import (
    COLUMNS,
    OTHERS,
    PREVALENCES,
    crossing,
    f1_search,
    values_by_prevalence,
)
from cxrbench.statistics.metrics import DEFINITIONS
from cxrbench.statistics.sample import Sample, choose_thresholds, sample_of, validation_of


@pytest.fixture(scope="module")
def search(predictions):
    return f1_search(predictions)


def test_one_row_per_definition_with_the_values_of_the_tidy_table(predictions, search):
    assert list(search.columns) == COLUMNS and tuple(search["definition"]) == (*DEFINITIONS, *OTHERS)
    table = one_per_metric(evaluate(predictions, replicates=2).table).set_index("metric")["value"]
    for row in search[: len(DEFINITIONS)].itertuples():
        assert row.value == pytest.approx(table[row.definition]), row.definition


def test_values_at_half_are_scikit_learns(predictions, search):
    test = predictions[predictions["split"] == "test"]
    truth, calls = test[LABELS].to_numpy(), test[SCORES].to_numpy() >= 0.5
    at = search.set_index("definition")["value_at_half"]
    assert at["f1_macro"] == pytest.approx(f1_score(truth, calls, average="macro"))
    assert at["f1_samples"] == pytest.approx(f1_score(truth, calls, average="samples", zero_division=0))
    assert at["f1_any_finding"] == pytest.approx(f1_score(truth.any(axis=1), calls.any(axis=1)))
    assert at["f1_no_finding"] == pytest.approx(f1_score(~truth.any(axis=1), ~calls.any(axis=1)))


def test_without_skill_everything_or_nothing_is_called(predictions, search):
    test = predictions[predictions["split"] == "test"]
    truth, at = test[LABELS].to_numpy(), search.set_index("definition")["value_no_skill"]
    everything, nothing = np.ones_like(truth), np.zeros_like(truth)
    macro = [f1_score(truth, calls, average="macro", zero_division=0) for calls in (everything, nothing)]
    assert at["f1_macro"] == pytest.approx(max(macro))
    clear = ~truth.any(axis=1)
    assert at["f1_no_finding"] == pytest.approx(f1_score(clear, np.ones_like(clear)))
    assert at["f1_samples_empty_is_1"] == pytest.approx(clear.mean())
    shuffled = predictions.copy()
    shuffled[SCORES] = shuffled[SCORES].sample(frac=1, random_state=0).to_numpy()
    assert f1_search(shuffled)["value_no_skill"].tolist() == search["value_no_skill"].tolist()


def test_best_threshold_comes_from_validation(predictions, search):
    val, row = predictions[predictions["split"] == "val"], search.set_index("definition").loc["f1_micro"]
    truth, scores = val[LABELS].to_numpy(), val[SCORES].to_numpy()
    at = [f1_score(truth, scores >= t, average="micro") for t in np.linspace(0.05, 0.9, 30)]
    assert f1_score(truth, scores >= row["best_threshold"], average="micro") >= max(at) - 1e-3
    changed = predictions.copy()
    changed.loc[changed["split"] == "test", LABELS] = 1 - changed.loc[changed["split"] == "test", LABELS]
    of_changed = f1_search(changed)["best_threshold"]
    assert of_changed.dropna().tolist() == search["best_threshold"].dropna().tolist()
    assert of_changed.notna().sum() == len(DEFINITIONS)


def test_rare_labels_reach_the_target_only_where_absence_counts(search):
    rows = search.set_index("definition")
    assert rows.loc["f1_both_class_weighted", "reached"]
    assert not rows.drop(["f1_both_class_weighted", *OTHERS])["reached"].any()
    assert rows.loc["f1_macro", "prevalence"] < 0.06 and rows.loc["f1_macro", "prevalence_needed"] > 0.3
    assert np.isnan(rows.loc["f1_samples", "prevalence_needed"])


def test_needed_prevalence_reaches_the_target_when_images_are_reweighted(predictions, search):
    test = predictions[predictions["split"] == "test"]
    finding, highest = test[LABELS].any(axis=1).to_numpy(), test[SCORES].to_numpy().max(axis=1)
    needed = search.set_index("definition").loc["f1_any_finding", "prevalence_needed"]
    weights = np.where(finding, needed / finding.mean(), (1 - needed) / (1 - finding.mean()))
    tried = np.quantile(highest, np.linspace(0, 1, 300))
    best = max(f1_score(finding, highest >= t, sample_weight=weights) for t in tried)
    assert best == pytest.approx(0.8, abs=0.003)


def test_samples_curve_at_the_observed_prevalence_is_the_best_on_the_images(predictions):
    sample = sample_of(predictions)
    curve = values_by_prevalence(sample, np.ones(14, bool))["f1_samples"]
    calls = [sample.scores >= t for t in np.quantile(sample.scores, np.linspace(0, 1, 100))]
    best = max(f1_score(sample.labels, call, average="samples", zero_division=0) for call in calls)
    assert np.interp(sample.abnormal.mean(), PREVALENCES, curve) == pytest.approx(best, abs=0.003)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 12))
def test_micro_has_the_best_threshold_for_each_label_of_all_combinations(seed, images):
    rng = np.random.default_rng(seed)
    labels, scores = rng.random((images, 2)) < 0.4, rng.random((images, 2)).round(1)
    labels[:2] = [[True, True], [False, False]]  # both classes
    clusters = np.arange(images, dtype=np.int32)
    sample = Sample(clusters, labels, scores, clusters, images, False, ("a", "b"), np.zeros_like(labels))
    pairs = []  # hits and called of both labels together, as shares, at each pair of thresholds
    for pair in product(*(np.unique(column) for column in scores.T)):
        calls = scores >= np.array(pair)
        rates = [[calls[which[:, k], k].mean() for which in (labels, ~labels)] for k in range(2)]
        hits = sum(rate[0] for rate in rates) * PREVALENCES
        pairs.append((hits, hits + sum(rate[1] for rate in rates) * (1 - PREVALENCES)))
    hits, called = np.array(pairs).swapaxes(0, 1)
    highest = (2 * hits / (called + 2 * PREVALENCES)).max(axis=0)
    micro = values_by_prevalence(sample, np.ones(2, bool))["f1_micro"]
    np.testing.assert_allclose(micro, highest, rtol=1e-12)


def test_crossing_is_the_nearest_one():
    prevalences = np.array([0.1, 0.2, 0.5, 0.8, 0.9])
    values = np.array([0.9, 0.7, 0.6, 0.7, 0.9])
    assert 0.1 < crossing(prevalences, values, 0.8, observed=0.05) < 0.2
    assert 0.8 < crossing(prevalences, values, 0.8, observed=0.7) < 0.9
    assert np.isnan(crossing(prevalences, values, 0.95, observed=0.5))
    assert crossing(prevalences, values, 0.55, observed=0.5) == 0, "every prevalence would do"


def test_without_val_rows_only_fixed_thresholds_are_left(predictions):
    rows = f1_search(predictions[predictions["split"] == "test"])
    assert rows[["value", "best_threshold", "value_at_best"]].isna().all(axis=None)
    assert rows["value_at_half"].notna().all() and rows["note"].str.contains("no val rows").all()


def balanced_f1(truth, scores, clear, k, cut):
    rows = truth[:, k] | clear
    positive = truth[rows, k]
    weights = np.where(positive, 1 / positive.sum(), 1 / clear.sum())
    return f1_score(positive, scores[rows, k] >= cut, sample_weight=weights)


def others_by_scikit_learn(truth, scores, cuts, none, even):
    """The other scores at thresholds of findings (NaN: left out), of "no finding" and balanced ones."""
    clear, kept = ~truth.any(axis=1), ~np.isnan(cuts)
    calls = scores[:, kept] >= cuts[kept]
    fifteen, called = (
        np.column_stack([truth[:, kept], clear]),
        np.column_stack([calls, scores.max(axis=1) < none]),
    )
    return {
        "fifteen_micro": f1_score(fifteen, called, average="micro"),
        "fifteen_samples": f1_score(fifteen, called, average="samples", zero_division=0),
        "one_finding_balanced": np.mean(
            [balanced_f1(truth, scores, clear, k, even[k]) for k in np.flatnonzero(kept)]
        ),
        "subset_accuracy": accuracy_score(truth[:, kept], calls),
    }


def parts_of(predictions, split):
    rows = predictions[predictions["split"] == split].sort_values("image")
    return rows[LABELS].to_numpy(bool), rows[SCORES].to_numpy(float)


@pytest.mark.parametrize(
    ("column", "cuts"), [("value_at_half", [0.5]), ("value_no_skill", [-np.inf, np.inf])]
)
def test_what_else_is_called_f1_is_scikit_learns(predictions, search, column, cuts):
    shared = [np.full(14, cut) for cut in cuts]
    at = [others_by_scikit_learn(*parts_of(predictions, "test"), cut, cut[0], cut) for cut in shared]
    for name in OTHERS:
        expected = max(one[name] for one in at)
        assert search.set_index("definition").loc[name, column] == pytest.approx(expected), name


def test_what_else_is_called_f1_at_thresholds_from_validation(predictions, search):
    thresholds = choose_thresholds(validation_of(predictions))
    truth, scores = parts_of(predictions, "val")
    even, clear = np.full(14, np.nan), ~truth.any(axis=1)
    for k in np.flatnonzero(thresholds.tuned):
        tried = np.unique(scores[truth[:, k], k])[::-1]
        caught, alarms = ((scores[of, k] >= tried[:, None]).mean(axis=1) for of in (truth[:, k], clear))
        even[k] = tried[np.argmax(2 * caught / (1 + caught + alarms))]
    given = thresholds.f1, thresholds.no_finding, even
    expected = others_by_scikit_learn(*parts_of(predictions, "test"), *given)
    values = search.set_index("definition")["value"]
    assert {name: values[name] for name in OTHERS} == pytest.approx(expected)
    assert values["one_finding_balanced"] > 2 / 3, "better than calling every image"


def test_any_finding_elsewhere_is_what_reweighted_images_would_give(predictions):
    rows = f1_search(predictions, elsewhere=0.6147).set_index("definition")
    truth, scores = parts_of(predictions, "test")
    for name, positive, highest, share in (
        ("f1_any_finding", truth.any(axis=1), scores.max(axis=1), 0.6147),
        ("f1_no_finding", ~truth.any(axis=1), -scores.max(axis=1), 1 - 0.6147),
    ):
        weights = np.where(positive, share / positive.mean(), (1 - share) / (1 - positive.mean()))
        at = [
            f1_score(positive, highest >= cut, sample_weight=weights)
            for cut in np.quantile(highest, np.linspace(0, 1, 300))
        ]
        assert rows.loc[name, "value_elsewhere"] == pytest.approx(max(at), abs=0.003)
        constant = f1_score(positive, np.ones_like(positive), sample_weight=weights)
        assert rows.loc[name, "no_skill_elsewhere"] == pytest.approx(constant)
    assert rows.drop(["f1_any_finding", "f1_no_finding"])["value_elsewhere"].isna().all()


def test_without_a_positive_image_nothing_is_searched(predictions):
    none = predictions.assign(**{name: 0 for name in predictions if name.startswith("label_")})
    assert f1_search(none).empty and list(f1_search(none)) == list(f1_search(predictions))
