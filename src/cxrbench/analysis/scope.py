"""Which labels of a sample count in which metric, and the words for those that do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cxrbench.analysis.sample import Sample
from cxrbench.analysis.thresholds import MIN_PATIENTS, Thresholds


@dataclass(frozen=True)
class Scope:
    """Masks over labels (L,): ``counted`` have both classes, ``estimable`` at least two clusters of each
    class, ``tuned`` are counted and have a threshold. ``unit`` is what is drawn: patient or image.
    ``thresholds`` is none where there are none."""

    counted: np.ndarray
    estimable: np.ndarray
    tuned: np.ndarray
    unit: str
    names: tuple[str, ...]
    thresholds: Thresholds | None

    def reason(self, label: int) -> str:
        """Why a label (by number) has no value or no threshold; empty if it has both."""
        if not self.counted[label]:
            return "undefined: only one class among the images"
        if self.thresholds is None or self.tuned[label]:
            return ""
        few = self.thresholds.positive_patients[label]
        if few < MIN_PATIENTS:
            return f"no tuned threshold: {few} positive validation {self.unit}{'s' if few != 1 else ''}"
        return f"no tuned threshold: fewer than {MIN_PATIENTS} negative validation {self.unit}s"

    def averaged(self, included: np.ndarray) -> np.ndarray:
        """Which of the ``included`` labels (L,) a mean is over: those with an interval, all if none has."""
        kept = included & self.estimable
        return kept if kept.any() else included

    def mean_note(self, included: np.ndarray) -> str:
        """What a figure over the ``included`` labels (L,) leaves out, and why."""
        single = f"one class has a single {self.unit}"
        missing = [
            f"{self.names[k]} ({self.reason(k) or single})" for k in np.flatnonzero(~included).tolist()
        ]
        return f"{included.sum()} labels, without {', '.join(missing)}" if missing else ""


def scope_of(sample: Sample, thresholds: Thresholds | None) -> Scope:
    """The scope of ``sample`` when scored with ``thresholds``."""
    positive = sample.labels.sum(axis=0)
    counted = (positive > 0) & (positive < sample.n_images)
    fewest = np.minimum(sample.positive_clusters(sample.labels), sample.positive_clusters(~sample.labels))
    return Scope(
        counted=counted,
        estimable=counted & (fewest > 1),
        tuned=counted & thresholds.tuned if thresholds else np.zeros_like(counted),
        unit="patient" if sample.by_patient else "image",
        names=sample.names,
        thresholds=thresholds,
    )
