import numpy as np
import pytest

from cxrbench.common.errors import UserError
from cxrbench.statistics import evaluate
from cxrbench.statistics.evaluate import check_controls, require_controls


def test_controls_pass_and_say_what_they_found(predictions):
    constant, perfect, shuffled = check_controls(predictions)
    assert (constant.value, perfect.value) == (0.5, 1.0)
    assert shuffled.low < 0.5 < shuffled.high and shuffled.high - shuffled.low < 0.2
    assert constant.ok and perfect.ok and shuffled.ok
    require_controls(predictions, "somewhere")


def test_shuffle_keeps_labels_and_their_clusters(predictions):
    values = [check_controls(predictions, seed=seed)[2].value for seed in range(20)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.01)
    assert np.std(values) > 0


def test_a_failing_control_stops_with_its_name(predictions, monkeypatch):
    honest = evaluate.auroc

    def flattering(sample):
        estimate = honest(sample)
        return type(estimate)(np.minimum(estimate.value + 0.1, 1), estimate.influence, estimate.freedom)

    monkeypatch.setattr(evaluate, "auroc", flattering)
    assert [control.ok for control in check_controls(predictions)] == [False, True, False]
    with pytest.raises(UserError, match="cell 7: the control 'constant score' gives"):
        require_controls(predictions, "cell 7")


def test_labels_that_depend_on_rows_are_caught(predictions, monkeypatch):
    """A shuffle that forgets to shuffle finds the network's skill instead of 0.5."""
    monkeypatch.setattr(
        evaluate.np.random, "default_rng", lambda seed: type("Same", (), {"permutation": np.arange})
    )
    assert not check_controls(predictions)[2].ok
