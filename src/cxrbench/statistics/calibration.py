"""Reliability: how often images are positive beside the score that they got, over quantiles of the scores."""

import numpy as np
import pandas as pd
from scipy.stats import beta

from cxrbench.statistics.sample import Sample

COLUMNS = ["score", "share", "ci_low", "ci_high", "pairs", "patients"]


def reliability(sample: Sample, bins: int = 10) -> pd.DataFrame:
    """Mean score and share of positives per bin, with 95 % intervals clustered by patient.

    All pairs of an image and a finding are pooled and cut into ``bins`` with equally many; tied scores stay
    together, so a bin may be empty and is left out; without a known label all are. The interval is Clopper
    and Pearson's for the effective number of pairs (Korn and Graubard 1998): of independent ones that would
    have the clustered variance.

    >>> from cxrbench.statistics.sample import sample_of
    >>> table = pd.DataFrame({"image": list("abcdef"), "patient": [1, 1, 2, 3, 4, 4], "split": "test"})
    >>> table = table.assign(label_Mass=[1, 0, 1, 0, 0, 0], score_Mass=[0.9, 0.4, 0.6, 0.7, 0.2, 0.1])
    >>> reliability(sample_of(table), bins=2)[["score", "share"]].round(3).to_numpy().tolist()
    [[0.233, 0.0], [0.733, 0.667]]
    """
    scores, labels = sample.scores.ravel(), sample.labels.ravel().astype(float)
    patients = np.repeat(sample.clusters, sample.labels.shape[1])
    scores, labels, patients = (part[~sample.unknown.ravel()] for part in (scores, labels, patients))
    if not len(scores):
        return pd.DataFrame(columns=COLUMNS)
    edges = np.quantile(scores, np.arange(1, bins) / bins)
    place = np.searchsorted(edges, scores, side="right")
    rows = [_bin(scores[place == k], labels[place == k], patients[place == k]) for k in np.unique(place)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _bin(scores: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> dict[str, float]:
    _, cluster = np.unique(patients, return_inverse=True)
    clusters, pairs = cluster.max() + 1, len(labels)
    share = labels.mean()
    influence = np.bincount(cluster, labels - share) / pairs
    variance = (influence**2).sum() * clusters / max(clusters - 1, 1)
    effective = min(share * (1 - share) / variance, pairs) if variance > 0 else clusters
    positive = share * effective
    low = beta.ppf(0.025, positive, effective - positive + 1) if share > 0 else 0.0
    high = beta.ppf(0.975, positive + 1, effective - positive) if share < 1 else 1.0
    return dict(zip(COLUMNS, (scores.mean(), share, low, high, pairs, clusters), strict=True))
