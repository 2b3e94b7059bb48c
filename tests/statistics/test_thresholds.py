import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from columns import LABELS
from cxrbench.statistics.sample import (
    REFITS,
    best_f1_thresholds,
    choose_thresholds,
    refitted,
    sample_of,
    specificity_thresholds,
)


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
@settings(max_examples=40, deadline=None)
def test_best_f1_threshold_beats_every_other(seed, distinct):
    rng = np.random.default_rng(seed)
    truth, scores = rng.random(40) < 0.3, rng.integers(0, distinct, 40) / distinct
    truth[0] = True
    at = {t: f1_score(truth, scores >= t) for t in np.unique(scores)}
    weights = np.vstack([np.ones(40), rng.integers(0, 3, 40)])
    once, drawn = best_f1_thresholds(truth, scores, weights)
    assert at[once] == max(at.values())
    if weights[1] @ truth:
        at = {t: f1_score(truth, scores >= t, sample_weight=weights[1]) for t in np.unique(scores)}
        assert at[drawn] == pytest.approx(max(at.values()))


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
@settings(max_examples=40, deadline=None)
def test_specificity_threshold_is_the_lowest_that_keeps_it(seed, distinct):
    negatives = np.random.default_rng(seed).integers(0, distinct, 37) / distinct
    copies = np.random.default_rng(seed).integers(1, 4, 37)
    threshold, drawn = specificity_thresholds(negatives, np.vstack([np.ones(37), copies]))
    assert drawn == specificity_thresholds(np.repeat(negatives, copies), np.ones((1, copies.sum())))[0]
    assert (negatives < threshold).mean() >= 0.9
    below = negatives[negatives < threshold].max()  # the next lower cut calls this score positive
    assert (negatives < below).mean() < 0.9


def test_fewer_than_ten_positive_patients_get_no_threshold(predictions):
    val = predictions[predictions["split"] == "val"].copy()
    patients = val["patient"].unique()
    for name, count in ((LABELS[0], 9), (LABELS[1], 10)):
        val[name] = val["patient"].isin(patients[:count]).astype("uint8")
    thresholds = choose_thresholds(sample_of(val, "val"))
    assert thresholds.positive_patients[:2].tolist() == [9, 10]
    assert thresholds.tuned[:2].tolist() == [False, True]
    assert np.isnan(thresholds.specificity[0]) and np.isfinite(thresholds.specificity[1])


def test_no_finding_threshold_maximises_its_own_f1(predictions):
    val = sample_of(predictions, "val")
    thresholds = choose_thresholds(val)
    clear, highest = ~val.labels.any(axis=1), val.scores.max(axis=1)
    best = max(f1_score(clear, highest <= score) for score in np.quantile(highest, np.linspace(0, 1, 200)))
    assert f1_score(clear, highest < thresholds.no_finding) >= best > 0.5


def test_other_draws_of_validation_patients_give_thresholds_of_the_same_labels(predictions):
    val = sample_of(predictions, "val")
    thresholds, others = choose_thresholds(val), refitted(val)
    assert len(others) == REFITS and all((one.tuned == thresholds.tuned).all() for one in others)
    f1 = np.array([one.f1[thresholds.tuned] for one in others])
    assert (f1.min(axis=0) < thresholds.f1[thresholds.tuned]).all() and (f1.std(axis=0) > 0).all()
