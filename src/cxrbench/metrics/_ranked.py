"""The one compiled kernel: AUROC and average precision under weights. Imported only when needed."""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 16  # replicates that go through the ranking together, one cache line of weights


@njit(nogil=True, cache=True, error_model="numpy")
def ranked_replicates(weights, cluster, positive, flush, out):
    """Fill ``out`` (B, LANES, 2) with weighted AUROC and average precision, NaN without both classes.

    ``weights`` (B, G, LANES) float32 whole numbers. In order of falling score: ``cluster`` (n,) int32,
    ``positive`` (n,) bool, and ``flush`` (n,) bool, where a group that counts as tied ends. Sums of
    weights stay exact in float32 up to 2**24; the area needs float64.
    """
    above, below = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    hits, misses = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    area, precision = np.zeros(LANES), np.zeros(LANES)
    for b in range(weights.shape[0]):
        for part in (above, below, hits, misses):
            part[:] = 0
        area[:] = 0
        precision[:] = 0
        for i in range(cluster.shape[0]):
            drawn = cluster[i]  # indexed in full below: a view of the row would double the time
            if positive[i]:
                for r in range(LANES):
                    hits[r] += weights[b, drawn, r]
            else:
                for r in range(LANES):
                    misses[r] += weights[b, drawn, r]
            if flush[i]:
                for r in range(LANES):
                    area[r] += np.float64(misses[r]) * (above[r] + 0.5 * hits[r])
                    above[r] += hits[r]
                    below[r] += misses[r]
                    if hits[r] > 0:
                        precision[r] += np.float64(hits[r]) * above[r] / (above[r] + below[r])
                    hits[r] = 0
                    misses[r] = 0
        for r in range(LANES):
            both = above[r] > 0 and below[r] > 0
            out[b, r, 0] = area[r] / (np.float64(above[r]) * below[r]) if both else np.nan
            out[b, r, 1] = precision[r] / above[r] if both else np.nan
