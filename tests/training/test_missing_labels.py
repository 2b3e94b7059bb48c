"""A missing label has no part in the loss, and a known one counts the same in every batch."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrbench.datasets.packed import pack, read_packed
from cxrbench.evidence.record import UsedWeights
from cxrbench.study import platforms
from cxrbench.study.recipe import Compiler
from cxrbench.training.method import Batches
from own_images import ODD, drawn, written


@pytest.mark.parametrize("missing", [0, 3])
def test_the_loss_of_an_epoch_is_the_mean_over_the_known_labels(missing: int, tmp_path: Path) -> None:
    table = drawn(80).astype(dict.fromkeys(ODD, "Int64"))
    if missing:
        table.loc[::missing, ODD[0]] = pd.NA
    pack("own", written(tmp_path, table, blank="mask"), tmp_path)
    packed = read_packed(tmp_path / "own")
    scratch = UsedWeights(source="scratch", sha256=None, mean=0.5, std=0.25)
    batches = Batches(packed, platforms.load("cpu", 1, "fp32", Compiler()), 2**30, scratch)
    train = packed.rows("train")
    rows = train[: len(train) // 4 * 4]
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(len(rows), 3)).astype(np.float32))
    logits.requires_grad_()
    parts = [
        binary_cross_entropy_with_logits(some, batch.labels, batch.label_weights)
        for some, batch in zip(logits.split(4), batches.over(rows, 4), strict=True)
    ]
    loss = torch.stack(parts).mean()
    loss.backward()
    known = ~np.isnan(packed.labels())
    truth = torch.from_numpy(np.nan_to_num(packed.labels()[rows]))
    each = binary_cross_entropy_with_logits(logits.detach(), truth, reduction="none")[known[rows]]
    expected = each.sum() / (known.mean() * known[rows].size)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert (logits.grad.numpy()[~known[rows]] == 0).all() and (logits.grad.numpy()[known[rows]] != 0).all()
    assert (next(iter(batches.over(rows, 4))).label_weights is None) == (not missing)
