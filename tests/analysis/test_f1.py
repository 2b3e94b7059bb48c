from __future__ import annotations

import numpy as np
import pytest
from cxrbench.analysis.f1 import both_classes, f1, multilabel_f1, samples_f1
from sklearn.metrics import f1_score


@pytest.fixture
def decisions():
    rng = np.random.default_rng(4)
    truth = rng.random((300, 5)) < [0.3, 0.1, 0.05, 0.2, 0.02]
    calls = np.where(rng.random(truth.shape) < 0.8, truth, rng.random(truth.shape) < 0.2)
    return truth, calls


def values(truth, calls):
    counts = [(truth & calls).sum(axis=0), calls.sum(axis=0), truth.sum(axis=0)]
    return multilabel_f1(*counts, np.array(len(truth)))


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_averages_are_scikit_learns(decisions, average):
    assert values(*decisions)[f"f1_{average}"] == pytest.approx(f1_score(*decisions, average=average))


def test_samples_is_scikit_learns_with_either_empty_rule(decisions):
    per_image, empty = samples_f1(*decisions)
    assert empty.any()
    for zero, value in ((0, per_image), (1, per_image + empty)):
        expected = f1_score(*decisions, average="samples", zero_division=zero)
        assert value.mean() == pytest.approx(expected)


def test_both_class_definitions_are_scikit_learns(decisions):
    truth, calls = decisions
    per_label = [f1_score(truth[:, k], calls[:, k], average="weighted") for k in range(5)]
    assert values(truth, calls)["f1_both_class_weighted"] == pytest.approx(np.mean(per_label))
    pooled = f1_score(truth.ravel(), calls.ravel(), average="macro")
    assert values(truth, calls)["f1_both_class_macro"] == pytest.approx(pooled)


def test_nothing_positive_is_undefined_not_zero():
    assert np.isnan(f1(np.array(0), np.array(3), np.array(0)))
    present, absent = both_classes(np.array(0), np.array(3), np.array(0), np.array(10))
    assert np.isnan(present) and absent == pytest.approx(14 / 17)


def test_leading_axes_are_independent(decisions):
    truth, calls = decisions
    counts = np.array([(truth & calls).sum(axis=0), calls.sum(axis=0), truth.sum(axis=0)])
    stacked = multilabel_f1(*np.stack([counts, 2 * counts], axis=1), np.array([300, 600]))
    for name, value in values(truth, calls).items():
        assert stacked[name] == pytest.approx([float(value)] * 2), name
