from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from cxrbench.statistics.auroc import auroc, effective_clusters, satterthwaite
from cxrbench.statistics.components import between_networks
from cxrbench.statistics.estimates import interval
from cxrbench.statistics.sample import sample_of
from synthetic import draw_sample, network_of, sampled


@st.composite
def samples(draw):
    """A small sample with both classes in two patients or more, and many ties."""
    n_patients = draw(st.integers(4, 12))
    n = draw(st.integers(2 * n_patients, 4 * n_patients))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    clusters = np.append(np.arange(n_patients), rng.integers(0, n_patients, n - n_patients))
    truth = rng.random(n) < 0.4
    truth[:4] = [True, True, False, False]
    return sampled(truth, rng.integers(0, draw(st.integers(2, 50)), n) / 50, clusters)


@given(samples())
@settings(max_examples=60, deadline=None)
def test_value_is_scikit_learns_with_ties(sample):
    assert auroc(sample).value[0] == pytest.approx(roc_auc_score(sample.labels[:, 0], sample.scores[:, 0]))


@given(samples())
@settings(max_examples=30, deadline=None)
def test_only_the_order_of_scores_counts_and_reversing_it_mirrors_the_value(sample):
    before, same, mirrored = (
        auroc(replace(sample, scores=scores))
        for scores in (sample.scores, np.exp(3 * sample.scores) - 7, -sample.scores)
    )
    np.testing.assert_array_equal(same.value, before.value)
    np.testing.assert_array_equal(same.influence, before.influence)
    assert mirrored.value == pytest.approx(1 - before.value)
    assert mirrored.error == pytest.approx(before.error)


@given(samples(), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_repeating_every_patients_images_leaves_the_clustered_interval(sample, times):
    parts = sample.labels[:, 0], sample.scores[:, 0], sample.clusters
    again = sampled(*(np.tile(part, times) for part in parts))
    for part in ("value", "error", "degrees"):
        assert getattr(auroc(again), part) == pytest.approx(getattr(auroc(sample), part), nan_ok=True)
    if auroc(sample).error[0] > 0:  # and the image-level interval is fooled
        assert auroc(again.as_images()).error[0] < auroc(sample.as_images()).error[0]


def brute_force_delong(truth, scores) -> float:
    """DeLong's variance by the definition, pair by pair."""
    wins = (scores[truth][:, None] > scores[~truth]) + 0.5 * (scores[truth][:, None] == scores[~truth])
    return wins.mean(axis=1).var(ddof=1) / truth.sum() + wins.mean(axis=0).var(ddof=1) / (~truth).sum()


@given(samples())
@settings(max_examples=30, deadline=None)
def test_one_image_per_patient_is_delong(sample):
    expected = brute_force_delong(sample.labels[:, 0], sample.scores[:, 0])
    assert auroc(sample.as_images()).error[0] ** 2 == pytest.approx(expected, abs=1e-15)


def test_paired_difference_is_mlstatkits_delong(predictions):
    from MLstatkit import Delong_test

    first = sample_of(predictions, "test").as_images()
    second = sample_of(network_of(predictions, 1), "test").as_images()
    ours = between_networks(auroc(first), auroc(second))
    for k in (0, 5, 13):
        z, _, _, _, area, *_ = Delong_test(first.labels[:, k], first.scores[:, k], second.scores[:, k])
        assert -ours.value[k] / ours.error[k] == pytest.approx(z, rel=1e-6)
        assert auroc(first).value[k] == pytest.approx(area)


def test_macro_error_uses_the_covariance_of_labels():
    sample = draw_sample(np.random.default_rng(0), 200, 0.2, [1.0])[0]
    doubled = {name: np.tile(getattr(sample, name), 2) for name in ("labels", "scores", "unknown")}
    twice = replace(sample, **doubled)
    both = auroc(twice).with_mean(np.array([True, True]))
    assert both.error[2] == pytest.approx(both.error[0])  # the same label twice teaches nothing new


def test_interval_stays_inside_zero_and_one_and_is_unknown_without_error():
    low, high = interval(np.array([0.98, 1.0]), np.array([0.05, 0.0]), np.array([5.0, 5.0]))
    assert 0 < low[0] < 0.98 < high[0] < 1
    assert np.isnan(low[1]) and np.isnan(high[1])


def test_effective_clusters_are_all_of_them_only_where_they_weigh_the_same():
    influence = np.array([[0.01, 0.3, 0.0], [-0.01, 0.0, 0.0], [0.01, 0.0, 0.0]])
    assert effective_clusters(influence) == pytest.approx([3, 1, np.inf])


def test_a_patient_with_most_positive_images_widens_the_interval():
    """Taken for one of many alike, it would hide that the AUROC hangs on it."""
    rng = np.random.default_rng(4)
    truth = np.arange(200) < 40
    patients = np.where(np.arange(200) < 30, 0, np.arange(200))  # 30 of 40 positive images are one patient's
    heavy, even = (auroc(sampled(truth, rng.normal(size=200) + truth, c)) for c in (patients, np.arange(200)))
    assert heavy.degrees[0] < 4 < even.degrees[0]
    (low, high), (wide_low, wide_high) = (interval(e.value, e.error, e.degrees) for e in (even, heavy))
    assert wide_high - wide_low > 1.5 * (high - low)


def test_bad_samples_have_no_interval_where_nothing_can_be_said():
    scores = np.linspace(0, 1, 6)
    for truth, scored, patients, value in (
        ([1, 0, 1, 0, 1, 0], scores, [0] * 6, 2 / 6),  # one patient
        ([1, 1, 0, 0, 0, 0], scores, [0, 0, 1, 2, 3, 4], 0.0),  # all positives in one
        ([1] * 6, scores, range(6), np.nan),  # no negatives
        ([1, 1, 0, 0], [0.9, 0.1, 0.3, 0.2], [0, 0, 1, 2], 0.5),  # both positives in one
        ([1, 1, 0, 0, 0, 0], np.ones(6), range(6), 0.5),  # ties only
    ):
        found = auroc(sampled(truth, scored, patients))
        low, high = interval(found.value, found.error, found.degrees)
        assert found.value[0] == pytest.approx(value, nan_ok=True)
        assert np.isnan(low[0]) and np.isnan(high[0])


def test_satterthwaite_lies_between_the_poorest_part_and_the_sum():
    assert satterthwaite(np.array([1.0, 0.0]), np.array([2.0, 9.0])) == pytest.approx(2)
    assert satterthwaite(np.array([1.0, 1.0]), np.array([2.0, 2.0])) == pytest.approx(4)


def test_coverage_of_clustered_and_of_image_level_intervals():
    rng, inside = np.random.default_rng(1), []
    truth = norm.cdf(1 / np.sqrt(2 * (0.77**2 + 0.64**2)))
    for _ in range(600):
        (sample,) = draw_sample(rng, 400, 0.1, [1.0])
        bounds = [interval(e.value, e.error, e.degrees) for e in (auroc(sample), auroc(sample.as_images()))]
        inside.append([low[0] <= truth <= high[0] for low, high in bounds])
    clustered, images = np.mean(inside, axis=0)
    assert 0.94 <= clustered <= 0.98
    assert images < 0.88
