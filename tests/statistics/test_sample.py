import numpy as np
import pytest

from cxrbench.common.errors import UserError
from cxrbench.statistics.sample import sample_of, weight_blocks


def test_absent_split_names_those_there_are(predictions):
    with pytest.raises(UserError, match="no 'train' rows, only: test, val"):
        sample_of(predictions, "train")


def test_take_renumbers_patients(predictions):
    sample = sample_of(predictions, "test")
    rows = sample.labels[:, 0]
    part = sample.take(rows)
    assert part.n_images == rows.sum()
    assert part.n_clusters == len(np.unique(sample.clusters[rows])) == part.clusters.max() + 1


def test_weights_draw_whole_patients_with_replacement_in_bounded_blocks(monkeypatch):
    whole = np.vstack(list(weight_blocks(50, 2000, seed=1)))
    assert whole.shape == (2000, 50) and (whole.sum(axis=1) == 50).all()
    assert whole.var() == pytest.approx(1 - 1 / 50, rel=0.02)
    monkeypatch.setattr("cxrbench.statistics.sample.BLOCK_BYTES", 700 * 4 * 50)
    blocks = list(weight_blocks(50, 2000, seed=1))
    assert [len(block) for block in blocks] == [700, 700, 600]
    np.testing.assert_array_equal(np.vstack(blocks), whole)
