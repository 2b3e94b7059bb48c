from __future__ import annotations

import numpy as np
import pytest

from cxrbench.metrics.estimates import estimate_cell
from cxrbench.metrics.evaluate import evaluate

from .synthetic import draw_predictions


def test_values_are_those_of_the_tidy_table_and_errors_those_of_the_bootstrap():
    predictions = draw_predictions(8, {"val": 400, "test": 400}, np.linspace(0.08, 0.3, 14))
    cell = estimate_cell(predictions)
    table = evaluate(predictions, replicates=1500).table
    rows = table[table["ci_method"].str.startswith("bootstrap")].set_index(["label", "metric"])
    for k, key in enumerate(cell.keys):
        assert cell.estimate.value[k] == pytest.approx(rows.loc[key, "value"]), key
        half = (rows.loc[key, "ci_high"] - rows.loc[key, "ci_low"]) / 2
        assert half / 1.96 == pytest.approx(cell.estimate.error[k], rel=0.15), key


def test_a_patient_with_two_findings_is_not_two_patients_to_micro_f1():
    cell = estimate_cell(draw_predictions(8, {"val": 200, "test": 200}, np.full(14, 0.3)))
    freedom = dict(zip(cell.keys, cell.estimate.freedom, strict=True))
    assert freedom["all", "f1_micro"] == cell.sample.n_clusters - 1 == 199
