"""Variances of single findings against the formulas that they come from, written out as dense matrices."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrbench.statistics.auroc import ImageParts, auroc, average_precision
from cxrbench.statistics.estimates import areas_with_ends, estimate, patients_part
from cxrbench.statistics.measures import tuned_parts
from cxrbench.statistics.moderated import (
    FEWEST,
    PRIOR,
    _class,
    adjusted,
    satterthwaite_of_shares,
    variance_of,
)
from cxrbench.statistics.sample import Sample, choose_thresholds, sample_of
from synthetic import draw_predictions, draw_sample, sampled


def dense_cr2(x, y, clusters, c, working):
    """CR2's variance of c'b and its degrees of freedom (Pustejovsky & Tipton 2018, eq. 4, 5 and 11).

    By ordinary least squares with independence as target; ``working`` (n, n) is the covariance of the errors
    that the degrees of freedom assume.
    """
    bread = np.linalg.inv(x.T @ x)
    annihilator = np.eye(len(y)) - x @ bread @ x.T
    residuals, columns, scores = annihilator @ y, [], []
    for cluster in np.unique(clusters):
        rows = clusters == cluster
        block = annihilator[np.ix_(rows, rows)]
        values, vectors = np.linalg.eigh(block)
        inverse = np.where(values > 1e-9, 1 / np.sqrt(np.maximum(values, 1e-12)), 0)
        adjustment = vectors @ np.diag(inverse) @ vectors.T
        weights = x[rows].T @ adjustment
        scores.append(c @ bread @ weights @ residuals[rows])
        columns.append(annihilator[:, rows] @ weights.T @ bread @ c)
    g = np.column_stack(columns)
    middle = g.T @ working @ g
    return np.sum(np.square(scores)), np.trace(middle) ** 2 / np.sum(middle**2)


def clustered(clusters, correlation):
    same = clusters[:, None] == clusters
    return np.where(np.eye(len(clusters), dtype=bool), 1, correlation * same)


@st.composite
def sizes(draw):
    return np.array(draw(st.lists(st.integers(1, 9), min_size=3, max_size=9)))


@given(sizes(), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_degrees_of_freedom_of_a_mean_are_those_of_the_dense_formula(sizes, correlation):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    mean, working = np.ones((len(clusters), 1)), clustered(clusters, correlation)
    _, expected = dense_cr2(mean, np.zeros(len(clusters)), clusters, np.ones(1), working)
    share = (sizes / sizes.sum())[:, None]
    own = (1 - correlation) * share**2 / sizes[:, None] + correlation * share**2
    assert satterthwaite_of_shares(share, own)[0] == pytest.approx(expected, abs=1e-8)


def chicks() -> pd.DataFrame:
    """R's ChickWeight (Crowder & Hand 1990), the data of clubSandwich's example: weights of 50 chicks."""
    return pd.read_csv(Path(__file__).with_name("chick_weight.csv"))


def test_the_dense_formula_gives_what_clubsandwich_gives():
    """Its documented example: weight ~ Time + Diet:Time, type = "CR2", by version 0.5.8 of the R package."""
    table = chicks()
    of_diet = [(table["diet"] == diet) * table["time"] for diet in (2, 3, 4)]
    x = np.column_stack([np.ones(len(table)), table["time"], *of_diet]).astype(float)
    answers = [
        (3.93178398766573434, 48.7480691384044),
        (0.4360726244116440, 31.3541402648275),
        (1.3680862191070586, 19.0332837302799),
        (1.11956319435774243, 19.0332837302798),
        (0.5416587289657919, 18.3732298017976),
    ]
    for c, answer in zip(np.eye(5), answers, strict=True):
        ours = dense_cr2(x, table["weight"].to_numpy(float), table["chick"], c, np.eye(len(x)))
        assert ours == pytest.approx(answer, rel=1e-8)


def test_a_mean_of_each_class_has_clubsandwichs_variance_and_degrees():
    """weight ~ 0 + Diet, by the same version; each diet is a finding."""
    table = chicks()
    members = np.column_stack([table["diet"] == diet for diet in (1, 2, 3, 4)])
    weight, share = table["weight"].to_numpy(float)[:, None], members / members.sum(axis=0)
    mean = (share * weight).sum(axis=0)
    parts = ImageParts(mean, share * (weight - mean), share, members, np.array([20, 10, 10, 10]))
    numbers = np.unique(table["chick"], return_inverse=True)[1].astype(np.int32)
    images = np.arange(len(table))
    sample = Sample(images, members, share, numbers, 50, True, tuple("1234"), np.zeros_like(members))
    classes = [_class(sample, parts, True, k) for k in range(4)]
    variance = [(adjusted(part) ** 2).sum() for part in classes]
    expected = [36.7529892401706, 98.8393827160491, 74.5041975308640, 23.0989414232519]
    assert variance == pytest.approx(expected, rel=1e-8)
    degrees = [satterthwaite_of_shares(part.share, part.working(0)) for part in classes]
    assert degrees == pytest.approx([18.04057072334862, 9, 9, 8.97444089456869], rel=1e-8)


def test_equal_patients_have_one_degree_of_freedom_less_than_they_are():
    share = np.full((12, 1), 1 / 12)
    assert satterthwaite_of_shares(share, share**2)[0] == pytest.approx(11, abs=1e-10)


def test_a_heavy_patient_lowers_the_degrees_whatever_its_scores():
    share = np.array([[0.5], *[[0.5 / 20]] * 20])
    assert satterthwaite_of_shares(share, share**2)[0] < 5


def test_variance_of_auroc_is_cr2s_of_the_regression_on_its_two_classes():
    """Placements regressed on the classes; patients have images of both."""
    (sample,) = draw_sample(np.random.default_rng(2), 60, 0.3, [1.0])
    found = auroc(sample)
    positive = sample.labels[:, 0]
    share, influence = found.parts.share[:, 0], found.parts.influence[:, 0]
    x = np.column_stack([positive, ~positive]).astype(float)
    variance, _ = dense_cr2(x, influence / share, sample.clusters, np.ones(2), np.eye(len(share)))
    sums = np.zeros(sample.n_clusters)
    for part in (_class(sample, found.parts, positive, 0) for positive in (True, False)):
        sums[part.patients] += adjusted(part)
    assert (sums**2).sum() == pytest.approx(variance, abs=1e-8 * variance)


def test_variance_of_f1_and_sensitivity_is_cr2s_of_a_mean():
    table = draw_predictions(8, {"val": 300, "test": 80}, np.linspace(0.15, 0.3, 14))
    test, thresholds = sample_of(table, "test"), choose_thresholds(sample_of(table, "val"))
    parts = tuned_parts(test, thresholds, thresholds.tuned)
    for metric, found in parts.items():
        k = 3
        ours = (adjusted(_class(test, found, True, k)) ** 2).sum()
        counted = found.share[:, k] > 0
        weights = np.sqrt(found.share[counted, k])
        y = found.influence[counted, k] / found.share[counted, k]
        # weighted least squares as ordinary: both sides times the root of the weight
        variance, _ = dense_cr2(
            weights[:, None], weights * y, test.clusters[counted], np.ones(1), np.eye(len(y))
        )
        assert ours == pytest.approx(variance, rel=1e-8), metric


def test_a_moderated_variance_lies_between_its_own_and_what_the_findings_predict():
    """With one image per patient of each class nothing is correlated: the prediction is the binomial-like
    one."""
    rng = np.random.default_rng(0)
    n, labels = 400, 14
    truth = rng.random((n, labels)) < 0.2
    scores = truth + rng.normal(size=(n, labels))
    names = tuple(f"finding {k}" for k in range(labels))
    sample = Sample(
        np.arange(n), truth, scores, np.arange(n, dtype=np.int32), n, True, names, np.zeros_like(truth)
    )
    found = auroc(sample)
    variance, degrees = variance_of(sample, found.parts)
    plain = found.error**2
    assert variance == pytest.approx(plain, rel=0.25)
    assert np.std(np.log(variance)) < np.std(np.log(plain))
    assert (degrees == np.minimum(degrees, found.parts.patients - 1)).all() and (degrees > PRIOR).all()


def test_fewer_than_five_patients_have_a_value_and_no_interval():
    for patients in (FEWEST - 1, FEWEST):
        rng = np.random.default_rng(patients)
        truth = np.arange(300) < patients
        sample = sampled(truth, rng.normal(size=300) + truth, np.arange(300))
        row = areas_with_ends(sample, auroc(sample)).iloc[0]
        assert np.isfinite(row["value"]) and row["too_few"] == (patients < FEWEST)
        assert np.isnan(row["ci_low"]) == (patients < FEWEST)


def test_a_patient_with_most_positive_images_widens_the_interval_but_not_to_the_whole_scale():
    rng = np.random.default_rng(4)
    truth = np.arange(400) < 60
    even = np.arange(400) // 2
    heavy = np.where(np.arange(400) < 30, 0, even)  # half of the positive images are one patient's
    widths = []
    for patients in (even, heavy):
        scores = 0.8 * rng.normal(size=400)[patients] + 0.6 * rng.normal(size=400) + truth
        ends = areas_with_ends(s := sampled(truth, scores, patients), auroc(s))[["ci_low", "ci_high"]]
        widths.append(np.ptp(ends.to_numpy()))
    assert 1.2 * widths[0] < widths[1] < 0.5


def test_means_over_findings_and_differences_are_not_moderated():
    table = draw_predictions(8, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))
    cell = estimate(sample_of(table, "test"), sample_of(table, "val"))
    variance, degrees = patients_part([cell])
    plain = (cell.estimate.influence**2).sum(axis=0)
    for k, (label, metric) in enumerate(cell.keys):
        moderated = label in cell.sample.names and metric in cell.parts
        same = (variance[k], degrees[k]) == (plain[k], cell.estimate.degrees[k])
        assert same != moderated, (label, metric)


def test_the_mean_of_a_network_with_itself_has_its_own_variance():
    table = draw_predictions(8, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))
    cell = estimate(sample_of(table, "test"), sample_of(table, "val"))
    for one, twice in zip(patients_part([cell]), patients_part([cell, cell]), strict=True):
        np.testing.assert_allclose(one, twice, rtol=1e-10)


def test_average_precision_has_parts_that_add_up_to_nothing():
    sample = sample_of(draw_predictions(8, {"test": 200}, np.full(14, 0.2)), "test")
    parts = average_precision(sample).parts
    assert isinstance(parts, ImageParts) and parts.influence.sum(axis=0) == pytest.approx(0, abs=1e-9)
