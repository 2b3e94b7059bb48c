"""A cell's predictions: written, and read again; and the score of a learning curve."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import remedy, written_aside
from cxrbench.statistics.predictions import predictions_table, read_checked

if TYPE_CHECKING:
    from cxrbench.datasets.packed import Packed


def write_predictions(path: Path | str, table: pd.DataFrame) -> None:
    """Write a table of :func:`~cxrbench.statistics.predictions.predictions_table`."""
    with written_aside(path) as aside:
        table.to_parquet(aside, index=False, compression="zstd", compression_level=19)


def write_scores(path: Path, packed: Packed, scores: dict[str, np.ndarray]) -> None:
    """Write the scores of each split (images x findings) beside their labels as predictions."""
    # ChestMNIST does not say which patient is whose: the column is left out, and intervals are marked.
    by_patient = packed.index["patient"].notna().all()
    identity = ["image", "patient", "split"] if by_patient else ["image", "split"]
    parts = []
    for split, values in scores.items():
        rows = packed.rows(split)
        part = packed.index.iloc[rows][identity]
        parts.append(predictions_table(part, packed.findings, packed.labels()[rows], values))
    write_predictions(path, pd.concat(parts, ignore_index=True))


def read_predictions(path: Path | str) -> pd.DataFrame:
    """A table that :func:`write_predictions` wrote; UserError naming what is wrong with it."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: missing; train the cell, or name another file")
    return read_checked(path, partial(remedy, path))  # it asks git


def macro_auroc(labels: np.ndarray, scores: np.ndarray) -> float | None:
    """The mean AUROC of the labels (n, L) that have both classes, for the learning curve alone."""
    parts = []
    for truth, score in zip(labels.T, scores.T, strict=True):  # an unknown label is in neither class
        positives, negatives = score[truth == 1], np.sort(score[truth == 0])
        if len(positives) and len(negatives):  # the share of their pairs that the scores order, ties half
            ranks = [np.searchsorted(negatives, positives, side).mean() for side in ("left", "right")]
            parts.append(sum(ranks) / 2 / len(negatives))
    return float(np.mean(parts)) if parts else None
