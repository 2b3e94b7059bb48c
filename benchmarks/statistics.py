"""How fast the statistics are, against scikit-learn called in a loop."""

from __future__ import annotations

import resource
import sys
from timeit import timeit

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import auroc
from cxrbench.analysis.evaluate import evaluate
from cxrbench.analysis.sample import Sample, sample_of
from cxrbench.datasets.findings import FINDINGS
from cxrbench.evidence.predictions import predictions_table

PREVALENCE = 0.05
LOOPED = 3  # replicates that scikit-learn is timed on, then scaled: it takes a second for each


def bench_metrics(
    images: int = 25_596, patients: int = 2_800, replicates: int = 2_000, seed: int = 0
) -> dict[str, float]:
    """Seconds, memory and ratio for one cell of NIH's official test size, 14 labels, all metrics.

    ``sklearn_seconds`` is a bootstrap of AUROC and average precision alone, ``LOOPED`` replicates scaled to
    ``replicates``; ``ratio`` sets it against the whole evaluation. ``peak_mib`` is the process's peak so far.
    """
    predictions = _predictions(images, patients, seed)
    sample = sample_of(predictions, "test")
    whole = timeit(lambda: evaluate(predictions, replicates=replicates), number=1)
    delong = timeit(lambda: auroc(sample), number=1)
    looped = timeit(lambda: _sklearn_loop(sample, LOOPED, seed), number=1) / LOOPED * replicates
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return {
        "images": images,
        "patients": patients,
        "replicates": replicates,
        "evaluate_seconds": whole,
        "delong_seconds": delong,
        "sklearn_seconds": looped,
        "ratio": looped / whole,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit,
    }


def _predictions(images: int, patients: int, seed: int) -> pd.DataFrame:
    """Made-up test and validation rows; every patient in one of them has at least one image."""
    rng = np.random.default_rng(seed)
    shape = (images, len(FINDINGS))
    parts = []
    for split, first in (("test", 0), ("val", patients)):
        patient = first + np.append(np.arange(patients), rng.integers(0, patients, images - patients))
        labels = rng.random(shape) < PREVALENCE
        scores = 1 / (1 + np.exp(3 - labels - rng.normal(size=shape)))
        names = [f"{split}_{number:06d}.png" for number in range(images)]
        identity = pd.DataFrame({"image": names, "patient": patient, "split": split})
        parts.append(predictions_table(identity, FINDINGS, labels, scores))
    return pd.concat(parts, ignore_index=True)


def _sklearn_loop(sample: Sample, replicates: int, seed: int) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(seed)
    rows_of = pd.Series(sample.clusters).groupby(sample.clusters).indices
    for _ in range(replicates):
        drawn = rng.integers(0, sample.n_clusters, sample.n_clusters)
        rows = np.concatenate([rows_of[cluster] for cluster in drawn])
        for truth, scores in zip(sample.labels[rows].T, sample.scores[rows].T, strict=True):
            roc_auc_score(truth, scores)
            average_precision_score(truth, scores)
