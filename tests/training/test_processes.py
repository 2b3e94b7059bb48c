"""One cell over several processes: the same training, every image scored once."""

from __future__ import annotations

import pandas as pd
import pytest

from cxrbench.config import Limits
from cxrbench.evidence import SCORES, read_predictions
from cxrbench.training.runner import run


@pytest.fixture(scope="module")
def recipe():
    """28 steps without stochastic depth, one thread a process."""
    from cxrbench.config import Recipe

    return Recipe(epochs=2, batch=64, averaging=0.9, threads=1)


@pytest.mark.slow
def test_two_processes_train_like_one_and_score_each_image_once(make_job, tmp_path, packed) -> None:
    one = run(make_job("one", architecture="convnext_atto"), tmp_path / "out1")
    two = run(
        make_job("two", architecture="convnext_atto", micro_batch=32, limits=Limits(processes=2)),
        tmp_path / "out2",
    )
    assert (one.status, two.status) == ("ok", "ok"), two.failure
    for a, b in zip(one.history, two.history, strict=True):
        assert b.train_loss == pytest.approx(a.train_loss, rel=1e-4)
        assert b.val_loss == pytest.approx(a.val_loss, rel=1e-4)
    first, second = (read_predictions(tmp_path / name / "predictions.parquet") for name in ("out1", "out2"))
    pd.testing.assert_frame_equal(first.drop(columns=SCORES), second.drop(columns=SCORES))
    assert (first[SCORES] - second[SCORES]).abs().max().max() < 1e-3
    assert two.host.cores_used == min(2, two.host.cores) and two.recipe_hash == one.recipe_hash
    assert two.platform["processes"] == 2 and two.platform["batchnorm_statistics"] == "no BatchNorm"
