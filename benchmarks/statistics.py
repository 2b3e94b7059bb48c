"""How fast the statistics are, against scikit-learn called in a loop."""

import resource
from timeit import timeit

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.statistics.auroc import auroc
from cxrbench.statistics.evaluate import evaluate
from cxrbench.statistics.predictions import predictions_table
from cxrbench.statistics.sample import Sample, sample_of

PREVALENCE = 0.05
_LOOPED = 3  # replicates that scikit-learn is timed on, then scaled: it takes a second for each


def bench_metrics(images: int = 25_596, patients: int = 2_800, replicates: int = 2_000) -> dict[str, float]:
    """Return the seconds of a whole evaluation, and of scikit-learn's AUROC and average precision alone."""
    predictions = _predictions(images, patients)
    sample = sample_of(predictions, "test")
    whole = timeit(lambda: evaluate(predictions, replicates=replicates), number=1)
    looped = timeit(lambda: _sklearn_loop(sample), number=_LOOPED) / _LOOPED * replicates
    return {
        "images": images,
        "patients": patients,
        "replicates": replicates,
        "evaluate_seconds": whole,
        "delong_seconds": timeit(lambda: auroc(sample), number=1),
        "sklearn_seconds": looped,
        "ratio": looped / whole,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,  # KiB on Linux
    }


def _predictions(images: int, patients: int) -> pd.DataFrame:
    """Made-up test and validation rows; every patient in one of them has at least one image."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"split": np.repeat(["test", "val"], images)})
    table["image"] = table["split"] + [f"_{number:06d}.png" for number in table.index]
    patient = np.append(np.arange(patients), rng.integers(0, patients, images - patients))
    table["patient"] = np.append(patient, patient + patients)
    labels = rng.random((2 * images, len(FINDINGS))) < PREVALENCE
    scores = 1 / (1 + np.exp(3 - labels - rng.normal(size=labels.shape)))
    return predictions_table(table, FINDINGS, labels, scores)


def _sklearn_loop(sample: Sample) -> None:
    """Score a replicate of patients drawn with replacement."""
    rows_of = pd.Series(sample.clusters).groupby(sample.clusters).indices
    drawn = np.random.default_rng(0).integers(0, sample.n_clusters, sample.n_clusters)
    rows = np.concatenate([rows_of[cluster] for cluster in drawn])
    for truth, scores in zip(sample.labels[rows].T, sample.scores[rows].T, strict=True):
        roc_auc_score(truth, scores)
        average_precision_score(truth, scores)
