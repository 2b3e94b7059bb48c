"""Patient-cluster bootstrap: patients are drawn with replacement, as weights on sums or on images.

Source: Field & Welsh, J. R. Statist. Soc. B 2007 (cluster bootstrap); percentile intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK_BYTES = 32 << 20  # of weights held at a time
BLOCK_LEAST = 16  # replicates in a block, however many clusters


def weight_blocks(n_clusters: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks (r, n_clusters) float32 of how often each cluster is drawn; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    size = max(BLOCK_LEAST, BLOCK_BYTES // (4 * n_clusters))
    for start in range(0, replicates, size):
        block = np.empty((min(size, replicates - start), n_clusters), dtype=np.float32)
        for row in block:
            row[:] = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
        yield block


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
