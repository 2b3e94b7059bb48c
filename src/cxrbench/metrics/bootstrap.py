"""Patient-cluster bootstrap: patients are drawn with replacement, as weights on images sorted once.

Source: Field & Welsh, J. R. Statist. Soc. B 2007 (cluster bootstrap); percentile intervals. A replicate
in which a label has no positive or no negative patient is undefined for that label, and for every mean
over it, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cxrbench.cores import cores
from cxrbench.metrics.sample import Sample
from cxrbench.metrics.sums import Sums

BLOCK_BYTES = 32 << 20  # of weights held at a time
BLOCK_LEAST = 16  # replicates in a block, however many clusters: the kernel's width


def weight_blocks(n_clusters: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks (r, n_clusters) float32 of how often each cluster is drawn; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    size = max(BLOCK_LEAST, BLOCK_BYTES // (4 * n_clusters))
    for start in range(0, replicates, size):
        block = np.empty((min(size, replicates - start), n_clusters), dtype=np.float32)
        for row in block:
            row[:] = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
        yield block


def bootstrap(sample: Sample, sums: Sums, replicates: int, seed: int) -> tuple[np.ndarray, Sums]:
    """Replicates of AUROC and average precision (2, R, L), and of the patient sums, name -> (R, k).

    ``sums`` holds arrays (clusters, k) float32. The result does not depend on the number of threads.
    """
    ranked = _sorted_labels(sample)
    places: list[np.ndarray] = []
    totals: dict[str, list[np.ndarray]] = {name: [] for name in sums}
    with ThreadPoolExecutor(cores()) as pool:
        for weights in weight_blocks(sample.n_clusters, replicates, seed):
            places.append(_ranked(pool, ranked, weights))
            for name, part in sums.items():
                totals[name].append((weights @ part).astype(np.float64))
    return np.concatenate(places, axis=1), {name: np.vstack(blocks) for name, blocks in totals.items()}


def ranked_values(sample: Sample) -> np.ndarray:
    """AUROC and average precision (2, L) of the sample itself: every cluster drawn once."""
    once = np.ones((1, sample.n_clusters), dtype=np.float32)
    with ThreadPoolExecutor(cores()) as pool:
        return _ranked(pool, _sorted_labels(sample), once)[:, 0]


def _sorted_labels(sample: Sample) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per label: clusters, truth and ends of tied groups, in order of falling score."""
    columns = []
    for truth, scores in zip(sample.labels.T, sample.scores.T, strict=True):
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        last = np.append(ordered[1:] != ordered[:-1], True)
        columns.append((sample.clusters[order], truth[order], _merged(last, truth[order])))
    return columns


def _merged(last: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Ends (n,) of tied groups, neighbouring groups without positives made one: nothing changes within."""
    ends = np.flatnonzero(last)
    with_positive = np.diff(np.cumsum(truth)[ends], prepend=0) > 0
    kept = with_positive | np.append(with_positive[1:], True)
    merged = np.zeros_like(last)
    merged[ends[kept]] = True
    return merged


def _ranked(pool: ThreadPoolExecutor, columns: list, weights: np.ndarray) -> np.ndarray:
    """AUROC and average precision (2, r, L) under ``weights`` (r, clusters)."""
    from cxrbench.metrics._ranked import LANES, ranked_replicates  # numba takes a second to import

    def fill(job: tuple) -> None:
        (cluster, positive, flush), target = job
        ranked_replicates(lanes, cluster, positive, flush, target)

    count, clusters = weights.shape
    padded = np.zeros((-(-count // LANES) * LANES, clusters), dtype=np.float32)
    padded[:count] = weights
    lanes = np.ascontiguousarray(padded.reshape(-1, LANES, clusters).swapaxes(1, 2))
    out = np.empty((len(columns), len(lanes), LANES, 2))
    list(pool.map(fill, zip(columns, out, strict=True)))
    return out.reshape(len(columns), -1, 2)[:, :count].transpose(2, 1, 0)


def percentile_interval(replicates: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Percentile interval of the defined ``replicates`` (R,), and the share that was undefined.

    NaN bounds when fewer than half are defined.
    """
    defined = replicates[np.isfinite(replicates)]
    undefined = 1 - len(defined) / len(replicates)
    if undefined > 0.5:
        return np.nan, np.nan, undefined
    low, high = np.quantile(defined, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high), undefined


def basic_interval(value: float, low: float, high: float) -> tuple[float, float]:
    """The percentile interval ``low``..``high`` mirrored at ``value`` and cut to 0..1: it undoes a bias."""
    return max(0.0, 2 * value - high), min(1.0, 2 * value - low)
