from __future__ import annotations

import numpy as np
import pytest
from cxrbench.analysis.bootstrap import percentile_interval, weight_blocks


def test_weights_draw_whole_patients_with_replacement():
    blocks = np.vstack(list(weight_blocks(50, 2000, seed=1)))
    assert blocks.shape == (2000, 50)
    assert (blocks.sum(axis=1) == 50).all()
    assert blocks.var() == pytest.approx(1 - 1 / 50, rel=0.02)


def test_blocks_are_bounded_and_do_not_change_the_draw(monkeypatch):
    whole = np.vstack(list(weight_blocks(40, 30, seed=2)))
    monkeypatch.setattr("cxrbench.analysis.bootstrap.BLOCK_BYTES", 7 * 4 * 40)
    monkeypatch.setattr("cxrbench.analysis.bootstrap.BLOCK_LEAST", 1)
    blocks = list(weight_blocks(40, 30, seed=2))
    assert [len(block) for block in blocks] == [7, 7, 7, 7, 2]
    np.testing.assert_array_equal(np.vstack(blocks), whole)


def test_percentiles_leave_undefined_out_and_refuse_a_minority():
    values = np.append(np.arange(101.0), [np.nan] * 50)
    low, high, undefined = percentile_interval(values)
    assert (low, high, undefined) == pytest.approx((2.5, 97.5, 50 / 151))
    assert np.isnan(percentile_interval(np.append(np.arange(10.0), [np.nan] * 11))[0])
