"""What comparisons between cells need of one cell: each value with the influence of every patient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.cells import Cell
from cxrbench.metrics.auroc import Estimate, auroc
from cxrbench.metrics.sample import Sample, has_split, sample_of
from cxrbench.metrics.scope import scope_of
from cxrbench.metrics.sums import patient_sums
from cxrbench.metrics.thresholds import Thresholds, choose_thresholds


@dataclass(frozen=True)
class CellEstimate:
    """Estimates of one cell; column k of ``estimate`` is ``keys[k]``, a (label, metric).

    The keys are AUROC of every label, macro AUROC, macro F1 and micro F1. ``why`` says, per key, why a
    column is undefined. Two cells are paired when ``same_images`` holds.
    """

    sample: Sample
    keys: tuple[tuple[str, str], ...]
    estimate: Estimate
    why: tuple[str, ...]

    def same_images(self, other: CellEstimate) -> bool:
        """Whether both scored the same images of the same patients against the same labels."""
        mine, theirs = self.sample, other.sample
        return (
            np.array_equal(mine.images, theirs.images)
            and np.array_equal(mine.clusters, theirs.clusters)
            and np.array_equal(mine.labels, theirs.labels)
        )


def estimate_cells(cells: Mapping[Any, pd.DataFrame], split: str = "test") -> dict[Cell, CellEstimate]:
    """Estimates of every cell, sorted by cell; predictions are read one cell at a time.

    Raises UserError when a cell's predictions have no row of ``split``.
    """
    named = {Cell.parse(str(key)): key for key in cells}
    return {cell: estimate_cell(cells[named[cell]], split) for cell in sorted(named)}


def estimate_cell(predictions: pd.DataFrame, split: str = "test") -> CellEstimate:
    """AUROC per label and macro, macro F1 and micro F1, each with its influence matrix."""
    sample = sample_of(predictions, split)
    areas = auroc(sample)
    scope = scope_of(sample, None)
    thresholds = choose_thresholds(sample_of(predictions, "val")) if has_split(predictions, "val") else None
    macro, micro = f1_estimates(sample, thresholds)
    parts = [areas.with_mean(scope.averaged(scope.counted)), macro, micro]
    joined = Estimate(
        np.concatenate([part.value for part in parts]),
        np.hstack([part.influence for part in parts]),
        np.concatenate([part.freedom for part in parts]),
    )
    keys = [(name, "auroc") for name in (*sample.names, "macro")]
    keys += [("macro", "f1_macro"), ("all", "f1_micro")]
    return CellEstimate(sample, tuple(keys), joined, tuple(_why(joined, keys, sample.by_patient)))


def _why(estimate: Estimate, keys: list[tuple[str, str]], by_patient: bool) -> list[str]:
    words = []
    for value, error, (_, metric) in zip(estimate.value, estimate.error, keys, strict=True):
        if np.isfinite(error):
            words.append("")
        elif np.isfinite(value):
            words.append(f"one class has a single {'patient' if by_patient else 'image'}: no error")
        elif metric == "auroc":
            words.append("undefined: only one class among the images")
        else:
            words.append("undefined: no label has a threshold from validation images")
    return words


def f1_estimates(sample: Sample, thresholds: Thresholds | None) -> tuple[Estimate, Estimate]:
    """Macro and micro F1 with each cluster's linearised influence (Takahashi et al. 2022, by cluster).

    The ``thresholds`` are taken as fixed.
    """
    nothing = Estimate(np.empty(0), np.empty((sample.n_clusters, 0)), np.empty(0))
    missing = nothing.mean(np.zeros(0, dtype=bool))
    scope = scope_of(sample, thresholds)
    if thresholds is None or not scope.tuned.any():
        return missing, missing
    sums = patient_sums(sample, thresholds, scope.counted)
    hits, sizes = sums["hits"], sums["called"] + sums["positive"]
    patients = np.count_nonzero(sums["positive"], axis=0)
    labels = _ratio(hits, sizes, patients)
    pooled = _ratio(
        hits.sum(axis=1, keepdims=True), sizes.sum(axis=1, keepdims=True), patients.sum(keepdims=True)
    )
    return labels.mean(scope.averaged(scope.tuned)[scope.tuned]), pooled


def _ratio(hits: np.ndarray, sizes: np.ndarray, patients: np.ndarray) -> Estimate:
    """F1 = 2 hits / sizes of each column (clusters, K), as a ratio of sums over clusters."""
    hits, sizes, clusters = hits.astype(np.float64), sizes.astype(np.float64), len(hits)
    whole = sizes.sum(axis=0)
    value = 2 * hits.sum(axis=0) / whole
    with np.errstate(divide="ignore", invalid="ignore"):  # all in one patient: unknown
        weights = np.sqrt((clusters - 1) / clusters) / (1 - sizes / whole)  # the jackknife's, as for AUROC
        influence = (2 * hits - value * sizes) / whole * weights
    # one patient counts once for each finding: over all labels that may be more than there are clusters
    freedom = np.clip(patients - 1.0, 1.0, clusters - 1.0)
    return Estimate(value, influence, freedom)
