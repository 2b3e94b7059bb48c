"""One split of a predictions table as arrays: what every metric of this room starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import FINDINGS
from cxrbench.evidence.predictions import LABELS, SCORES
from cxrbench.study.errors import UserError


@dataclass(frozen=True)
class Sample:
    """Images of one split, sorted by name, so that the order of rows in a file never matters.

    ``images`` (n,) names; ``labels`` (n, L) bool; ``scores`` (n, L) float64; ``clusters`` (n,) int32,
    numbering the patients 0..n_clusters-1; ``by_patient`` is false when each image is its own cluster;
    ``names`` (L,) the findings.
    """

    images: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    clusters: np.ndarray
    n_clusters: int
    by_patient: bool
    names: tuple[str, ...] = FINDINGS

    @property
    def n_images(self) -> int:
        """How many images there are."""
        return len(self.images)

    @property
    def abnormal(self) -> np.ndarray:
        """Whether each image (n,) has any finding."""
        return np.asarray(self.labels.any(axis=1))

    def as_images(self) -> Sample:
        """The same images, each its own cluster: the assumption that patients do not matter."""
        own = np.arange(self.n_images, dtype=np.int32)
        return replace(self, clusters=own, n_clusters=self.n_images, by_patient=False)

    def take(self, rows: np.ndarray) -> Sample:
        """The images chosen by the boolean mask ``rows`` (n,), their patients renumbered."""
        codes, clusters = np.unique(self.clusters[rows], return_inverse=True)
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            scores=self.scores[rows],
            clusters=clusters.astype(np.int32),
            n_clusters=len(codes),
        )

    def positive_clusters(self, positive: np.ndarray) -> np.ndarray:
        """How many clusters have at least one true image in each column of ``positive`` (n, K)."""
        return np.array([len(np.unique(self.clusters[column])) for column in positive.T])


def sample_of(predictions: pd.DataFrame, split: str) -> Sample:
    """The rows of ``split`` in a predictions table (design, section 4; ``patient`` may be absent).

    Raises UserError when the table has no row of that split.
    """
    rows = predictions[predictions["split"] == split].sort_values("image", kind="stable")
    if rows.empty:
        found = ", ".join(sorted(predictions["split"].astype(str).unique()))
        raise UserError(f"the predictions have no '{split}' rows, only: {found}; name one of these")
    by_patient = "patient" in rows
    keys = rows["patient"] if by_patient else rows["image"]
    codes, clusters = np.unique(keys.to_numpy(), return_inverse=True)
    return Sample(
        images=rows["image"].to_numpy(),
        labels=rows[LABELS].to_numpy().astype(bool),
        scores=rows[SCORES].to_numpy(dtype=np.float64),
        clusters=clusters.astype(np.int32),
        n_clusters=len(codes),
        by_patient=by_patient,
    )


def has_split(predictions: pd.DataFrame, split: str) -> bool:
    """Whether the table has at least one row of ``split``."""
    return bool((predictions["split"] == split).any())
