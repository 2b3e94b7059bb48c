"""How fast the statistics are, against scikit-learn called in a loop and MLstatkit's DeLong."""

import resource
from functools import partial
from time import process_time
from timeit import timeit
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.statistics import compare_runs
from cxrbench.statistics.auroc import auroc
from cxrbench.statistics.evaluate import evaluate
from cxrbench.statistics.predictions import predictions_table
from cxrbench.statistics.sample import Sample, sample_of

PREVALENCE = 0.05
_LOOPED = 3  # replicates that scikit-learn is timed on, then scaled: it takes a second for each
DRAWS, RUNS = 1_000, 2  # of patients, behind an interval by bootstrap; on each side of a comparison


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


def bench_compare(images: int = 25_596, patients: int = 2_800) -> dict[str, Any]:
    """The CPU seconds of comparing two runs on each side by rank metrics, and of what others do for one pair.

    scikit-learn's AUROC is timed on one of the ``DRAWS`` of patients that an interval by bootstrap takes, for
    both runs. MLstatkit's DeLong test takes images as independent; without the package it has no figure. The
    ratios are to the comparison's seconds by run, of which it scores ``RUNS`` on each side.
    """
    sides: list[dict[int, pd.DataFrame]] = [{}, {}]
    for run in range(2 * RUNS):  # of test images alone: the others do without thresholds
        sides[run % 2][run // 2] = _predictions(images, patients, run).query("split == 'test'")
    whole = timeit(lambda: compare_runs(sides[0], sides[1]), timer=process_time, number=1)
    sample, other_sample = (sample_of(side[0]) for side in sides)
    area = sum(
        timeit(partial(_sklearn_loop, side, auroc_alone=True), timer=process_time, number=1)
        for side in (sample, other_sample)
    )
    row = {
        **{"images": images, "patients": patients, "findings": len(FINDINGS), "runs": RUNS},
        **{"replicates": DRAWS, "compare_seconds": whole, "sklearn_bootstrap_seconds": area * DRAWS},
        "ratio_to_sklearn_bootstrap": area * DRAWS / (whole / RUNS),
    }
    try:
        from MLstatkit import Delong_test
    except ImportError:
        return row | {"mlstatkit_seconds": None, "ratio_to_mlstatkit": None}

    def tests() -> None:
        for k in range(len(FINDINGS)):
            Delong_test(sample.labels[:, k].astype(int), sample.scores[:, k], other_sample.scores[:, k])

    seconds = timeit(tests, timer=process_time, number=1)
    return row | {"mlstatkit_seconds": seconds, "ratio_to_mlstatkit": seconds / (whole / RUNS)}


def _predictions(images: int, patients: int, run: int = 0) -> pd.DataFrame:
    """Made-up test and validation rows; every patient in one of them has at least one image. Another ``run``
    has other scores."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"split": np.repeat(["test", "val"], images)})
    table["image"] = table["split"] + [f"_{number:06d}.png" for number in table.index]
    patient = np.append(np.arange(patients), rng.integers(0, patients, images - patients))
    table["patient"] = np.append(patient, patient + patients)
    labels = rng.random((2 * images, len(FINDINGS))) < PREVALENCE
    if run:
        rng = np.random.default_rng(run)
    scores = 1 / (1 + np.exp(3 - labels - rng.normal(size=labels.shape)))
    return predictions_table(table, FINDINGS, labels, scores)


def _sklearn_loop(sample: Sample, auroc_alone: bool = False) -> None:
    """Score a replicate of patients drawn with replacement."""
    rows_of = pd.Series(sample.clusters).groupby(sample.clusters).indices
    drawn = np.random.default_rng(0).integers(0, sample.n_clusters, sample.n_clusters)
    rows = np.concatenate([rows_of[cluster] for cluster in drawn])
    for truth, scores in zip(sample.labels[rows].T, sample.scores[rows].T, strict=True):
        roc_auc_score(truth, scores)
        if not auroc_alone:
            average_precision_score(truth, scores)
