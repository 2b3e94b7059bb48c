from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from cxrbench.metrics.bootstrap import basic_interval, bootstrap, percentile_interval, weight_blocks
from cxrbench.metrics.sample import sample_of
from cxrbench.metrics.sums import patient_sums, per_label_measures

from .synthetic import draw_predictions


@pytest.fixture(scope="module")
def drawn():
    """A sample with many ties, its weights, and its replicates."""
    predictions = draw_predictions(3, {"test": 120}, np.linspace(0.1, 0.4, 14))
    predictions.loc[:, predictions.columns.str.startswith("score_")] = predictions.filter(
        like="score_"
    ).round(1)
    sample = sample_of(predictions, "test")
    weights = np.vstack(list(weight_blocks(sample.n_clusters, 8, seed=5)))
    sums = patient_sums(sample, None, np.ones(14, bool))
    return sample, weights, bootstrap(sample, sums, 8, seed=5)


def test_replicates_are_those_of_repeating_the_rows(drawn):
    sample, weights, (ranked, totals) = drawn
    brier = per_label_measures(totals)["brier"]
    for r, row in enumerate(weights.astype(int)):
        rows = np.repeat(np.arange(sample.n_images), row[sample.clusters])
        for k in (0, 7, 13):
            truth, scores = sample.labels[rows, k], sample.scores[rows, k]
            assert ranked[0, r, k] == pytest.approx(roc_auc_score(truth, scores), rel=1e-6)
            assert ranked[1, r, k] == pytest.approx(average_precision_score(truth, scores), rel=1e-6)
            assert brier[r, k] == pytest.approx(brier_score_loss(truth, scores), rel=1e-5)


def test_weights_draw_whole_patients_with_replacement():
    blocks = np.vstack(list(weight_blocks(50, 2000, seed=1)))
    assert blocks.shape == (2000, 50)
    assert (blocks.sum(axis=1) == 50).all()
    assert blocks.var() == pytest.approx(1 - 1 / 50, rel=0.02)


def test_blocks_are_bounded_and_do_not_change_the_draw(monkeypatch):
    whole = np.vstack(list(weight_blocks(40, 30, seed=2)))
    monkeypatch.setattr("cxrbench.metrics.bootstrap.BLOCK_BYTES", 7 * 4 * 40)
    monkeypatch.setattr("cxrbench.metrics.bootstrap.BLOCK_LEAST", 1)
    blocks = list(weight_blocks(40, 30, seed=2))
    assert [len(block) for block in blocks] == [7, 7, 7, 7, 2]
    np.testing.assert_array_equal(np.vstack(blocks), whole)


def test_threads_do_not_change_the_result(drawn, monkeypatch):
    sample, _, (ranked, _) = drawn
    monkeypatch.setattr("cxrbench.metrics.bootstrap.cores", lambda: 1)
    alone, _ = bootstrap(sample, patient_sums(sample, None, np.ones(14, bool)), 8, seed=5)
    np.testing.assert_array_equal(alone, ranked)


def test_replicate_without_a_class_is_undefined():
    predictions = draw_predictions(3, {"test": 12}, np.full(14, 0.3))
    predictions.loc[:, predictions.columns.str.startswith("label_")] = 0
    predictions.loc[0, "label_Hernia"] = 1
    sample = sample_of(predictions, "test")
    ranked, _ = bootstrap(sample, patient_sums(sample, None, np.ones(14, bool)), 400, seed=0)
    undefined = np.isnan(ranked[:, :, 13]).mean(axis=1)
    assert undefined == pytest.approx([(1 - 1 / 12) ** 12] * 2, abs=0.08)
    assert np.isnan(ranked[:, :, 0]).all()


def test_percentiles_leave_undefined_out_and_refuse_a_minority():
    values = np.append(np.arange(101.0), [np.nan] * 50)
    low, high, undefined = percentile_interval(values)
    assert (low, high, undefined) == pytest.approx((2.5, 97.5, 50 / 151))
    assert np.isnan(percentile_interval(np.append(np.arange(10.0), [np.nan] * 11))[0])


def test_basic_interval_mirrors_and_stays_in_range():
    assert basic_interval(0.5, 0.45, 0.65) == pytest.approx((0.35, 0.55))
    assert basic_interval(0.1, 0.05, 0.3) == pytest.approx((0.0, 0.15))
