"""Reliability curves: bins, and intervals that know about patients."""

import numpy as np
import pytest
from scipy.stats import beta

from cxrbench.statistics.calibration import reliability
from cxrbench.statistics.sample import Sample
from synthetic import sampled


def drawn(rng: np.random.Generator, patients: int, copies: int = 1, off: float = 1.0) -> Sample:
    """Calibrated scores of one finding (``off`` times too low), each patient's image ``copies`` times."""
    true = rng.beta(1, 9, patients)
    labels = rng.random(patients) < true
    return sampled(*(each.repeat(copies) for each in (labels, true / off, np.arange(patients))))


def test_bins_hold_equally_many_images_and_their_own_means() -> None:
    sample = drawn(np.random.default_rng(0), 1000)
    bins = reliability(sample, 4)
    assert list(bins["pairs"]) == [250] * 4 and bins["score"].is_monotonic_increasing
    highest = np.argsort(sample.scores[:, 0])[-250:]
    assert bins["share"].iloc[-1] == pytest.approx(sample.labels[highest, 0].mean())
    assert bins["score"].iloc[-1] == pytest.approx(sample.scores[highest, 0].mean())


def test_with_one_image_per_patient_the_interval_is_clopper_and_pearsons() -> None:
    row = reliability(drawn(np.random.default_rng(1), 400), 1).iloc[0]
    count = row["share"] * 400
    assert row["ci_low"] == pytest.approx(beta.ppf(0.025, count, 401 - count), rel=0.01)
    assert row["ci_high"] == pytest.approx(beta.ppf(0.975, count + 1, 400 - count), rel=0.01)
    sample = drawn(np.random.default_rng(3), 200, copies=5)
    sample.labels[:], sample.scores[:] = False, 0.1  # no positives, and equal scores: one bin
    row = reliability(sample).iloc[0]
    assert (row["share"], row["ci_low"], row["pairs"]) == (0, 0, 1000)
    assert row["ci_high"] == pytest.approx(1 - 0.025 ** (1 / 200))


def test_copies_of_an_image_tell_nothing_new() -> None:
    single = reliability(drawn(np.random.default_rng(2), 300), 3)
    copied = reliability(drawn(np.random.default_rng(2), 300, copies=5), 3)
    for name in ("share", "ci_low", "ci_high", "patients"):
        assert copied[name].to_numpy() == pytest.approx(single[name].to_numpy(), rel=1e-6)


def test_intervals_hold_the_true_share_and_show_scores_that_are_too_low() -> None:
    rng = np.random.default_rng(5)
    inside, wrong = [], []
    for _ in range(200):
        sample = drawn(rng, 600, copies=3)
        bins = reliability(sample, 5)
        inside.append((bins["ci_low"] <= bins["score"]) & (bins["score"] <= bins["ci_high"]))
        low = reliability(drawn(rng, 600, copies=3, off=3), 5).iloc[-1]
        wrong.append(low["ci_low"] > low["score"])
    assert 0.94 <= np.mean(inside) <= 0.99 and np.mean(wrong) > 0.95


def test_without_a_known_label_there_is_no_bin() -> None:
    sample = drawn(np.random.default_rng(1), 20)
    sample.unknown[:] = True
    assert reliability(sample).empty and "share" in reliability(sample)
