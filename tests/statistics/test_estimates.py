from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from columns import SCORES
from cxrbench.statistics.auroc import average_precision
from cxrbench.statistics.estimates import PLAIN, RANKED, TUNED, estimate, estimate_cell
from cxrbench.statistics.measures import IMAGE_LEVEL, POOLED
from cxrbench.statistics.sample import REFITS, sample_of, weight_blocks
from synthetic import draw_predictions


@pytest.fixture(scope="module")
def predictions():
    """A cell in which every label has a threshold, with tied scores."""
    table = draw_predictions(8, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))
    table[SCORES] = table[SCORES].round(2)
    return table


def test_a_patients_influence_is_what_leaving_it_out_changes(predictions, monkeypatch):
    """With the thresholds of the whole: the patient is of the test part."""
    whole = estimate_cell(predictions)
    test, clusters = whole.sample, whole.sample.n_clusters
    monkeypatch.setattr(
        "cxrbench.statistics.estimates.refitted", lambda val: [whole.scope.thresholds] * REFITS
    )
    val = sample_of(predictions, "val")
    for patient in (0, 17, 250):
        without = estimate(test.take(test.clusters != patient), val)
        changed = whole.estimate.value - without.estimate.value
        found = whole.estimate.influence[patient] / np.sqrt(1 - 1 / clusters)
        for k, (_, metric) in enumerate(whole.keys):
            if metric in (*PLAIN, *TUNED, *POOLED, *IMAGE_LEVEL, "f1_macro"):
                assert found[k] == pytest.approx(changed[k], abs=1e-6), whole.keys[k]


def test_average_precision_and_its_error_are_those_of_repeated_rows(predictions):
    sample = sample_of(predictions, "test")
    ours = average_precision(sample)
    weights = np.vstack(list(weight_blocks(sample.n_clusters, 300, seed=1)))[:, sample.clusters]
    for k in (0, 13):
        truth, scores = sample.labels[:, k], sample.scores[:, k]
        assert ours.value[k] == pytest.approx(average_precision_score(truth, scores))
        drawn = [average_precision_score(truth, scores, sample_weight=row) for row in weights]
        assert ours.error[k] == pytest.approx(np.std(drawn), rel=0.2)


def test_average_precision_moves_as_its_influence_says(predictions):
    """One image counts a little more: the derivative, but for the factor of heavy patients."""
    sample = replace(sample_of(predictions, "test").as_images())
    positive, scores = sample.labels[:, 3], sample.scores[:, 3]
    held = positive / positive.sum()
    factor = np.sqrt(1 - 1 / sample.n_images) / (1 - held)
    influence = average_precision(sample).influence[:, 3] / factor
    for image in (*np.flatnonzero(positive)[:3], *np.flatnonzero(~positive)[:3]):
        more = np.ones(sample.n_images)
        more[image] += 1e-5
        ends = (average_precision_score(positive, scores, sample_weight=some) for some in (more, None))
        assert next(ends) - next(ends) == pytest.approx(1e-5 * influence[image], rel=1e-2, abs=1e-9)


def test_thresholds_are_part_of_the_error_and_only_of_what_has_one(predictions):
    cell = estimate_cell(predictions)
    chosen = (cell.estimate.influence[cell.sample.n_clusters :] ** 2).sum(axis=0)
    for k, (_, metric) in enumerate(cell.keys):
        assert (chosen[k] > 0) == (metric not in (*RANKED, *PLAIN)), cell.keys[k]


def test_networks_with_the_same_thresholds_and_calls_differ_by_nothing(predictions):
    """The draws of validation patients are the same, so they cancel."""
    other = predictions.assign(**{name: predictions[name] / 2 for name in SCORES})
    a, b = (estimate_cell(each).only("f1_macro", "f1_micro").estimate for each in (predictions, other))
    assert a.influence == pytest.approx(b.influence, abs=1e-12)


def test_a_patient_with_two_findings_is_not_two_patients_to_micro_f1():
    cell = estimate_cell(draw_predictions(8, {"val": 200, "test": 200}, np.full(14, 0.3)))
    freedom = dict(zip(cell.keys, cell.estimate.freedom, strict=True))
    assert freedom["all", "f1_micro"] == cell.sample.n_clusters - 1 == 199
