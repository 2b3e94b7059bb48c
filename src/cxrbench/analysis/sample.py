"""One split of a predictions table as arrays, and draws of its patients: what every metric starts from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cxrbench.evidence.predictions import findings_of, labels_of, scores_of
from cxrbench.study.errors import UserError

BLOCK_BYTES = 32 << 20  # of weights held at a time
BLOCK_LEAST = 16  # replicates in a block, however many clusters


@dataclass(frozen=True)
class Sample:
    """Images of one split, sorted by name, so that the order of rows in a file never matters.

    ``images`` (n,) names; ``labels`` (n, L) bool; ``scores`` (n, L) float64; ``clusters`` (n,) int32,
    numbering the patients 0..n_clusters-1; ``by_patient`` is false when each image is its own cluster;
    ``names`` (L,) the findings; ``unknown`` (n, L) bool where a label is missing (false among ``labels``).
    """

    images: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    clusters: np.ndarray
    n_clusters: int
    by_patient: bool
    names: tuple[str, ...]
    unknown: np.ndarray

    @property
    def n_images(self) -> int:
        """Number of images."""
        return len(self.images)

    @property
    def abnormal(self) -> np.ndarray:
        """Whether each image (n,) has any finding."""
        return np.asarray(self.labels.any(axis=1))

    @property
    def negative(self) -> np.ndarray:
        """Whether each image is known not to have each finding (n, L)."""
        return ~self.labels & ~self.unknown

    @property
    def counts(self) -> np.ndarray:
        """Which labels count (n, L)."""
        return ~self.unknown

    def of_label(self, k: int | np.integer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return labels, scores and clusters (m,) of the images whose label ``k`` is known."""
        rows = ~self.unknown[:, k]
        return self.labels[rows, k], self.scores[rows, k], self.clusters[rows]

    @property
    def complete(self) -> np.ndarray:
        """Whether all labels of each image (n,) are known: image-level measures use only these."""
        return np.asarray(~self.unknown.any(axis=1))

    def as_images(self) -> Sample:
        """Return the same images, each its own cluster: the assumption that patients do not matter."""
        own = np.arange(self.n_images, dtype=np.int32)
        return replace(self, clusters=own, n_clusters=self.n_images, by_patient=False)

    def take(self, rows: np.ndarray) -> Sample:
        """Return the images of the boolean mask ``rows`` (n,), their patients renumbered."""
        taken = {name: getattr(self, name)[rows] for name in ("images", "labels", "scores", "unknown")}
        clusters, count = _numbered(self.clusters[rows])
        return replace(self, **taken, clusters=clusters, n_clusters=count)

    def positive_clusters(self, positive: np.ndarray) -> np.ndarray:
        """Return how many clusters have a true image in each column of ``positive`` (n, K)."""
        return np.array([len(np.unique(self.clusters[column])) for column in positive.T])


def sample_of(predictions: pd.DataFrame, split: str = "test") -> Sample:
    """Return the rows of ``split`` in a predictions table (``patient`` may be absent); UserError if none."""
    rows = predictions[predictions["split"] == split].sort_values("image", kind="stable")
    if rows.empty:
        splits = ", ".join(sorted(predictions["split"].astype(str).unique()))
        raise UserError(f"the predictions have no '{split}' rows, only: {splits}; name one of these")
    by_patient = "patient" in rows
    clusters, count = _numbered(rows["patient" if by_patient else "image"].to_numpy())
    given, scores, names = labels_of(rows), scores_of(rows).astype(np.float64), tuple(findings_of(rows))
    labels, unknown = np.nan_to_num(given).astype(bool), np.isnan(given)
    return Sample(rows["image"].to_numpy(), labels, scores, clusters, count, by_patient, names, unknown)


def validation_of(predictions: pd.DataFrame) -> Sample | None:
    """Return the validation images of a predictions table; None where there are none."""
    return sample_of(predictions, "val") if (predictions["split"] == "val").any() else None


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    codes, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int32), len(codes)


def weight_blocks(n_clusters: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, n_clusters) float32 of how often each cluster is drawn with replacement.

    The same for the same arguments. Source: Field & Welsh, J. R. Statist. Soc. B 2007 (cluster bootstrap).
    """
    rng = np.random.default_rng(seed)
    size = max(BLOCK_LEAST, BLOCK_BYTES // (4 * n_clusters))
    for start in range(0, replicates, size):
        block = np.empty((min(size, replicates - start), n_clusters), dtype=np.float32)
        for row in block:
            row[:] = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
        yield block
