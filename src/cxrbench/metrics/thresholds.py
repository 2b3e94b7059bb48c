"""Thresholds, chosen from validation images only. An image is called positive at score >= threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cxrbench.metrics.sample import Sample

MIN_PATIENTS = 10  # a label with fewer positive (or negative) validation patients gets no threshold
SPECIFICITY = 0.9  # at which sensitivity is reported


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of one set of scores; NaN where the validation part cannot support one.

    ``f1`` (L,) maximise each label's F1; ``specificity`` (L,) are the lowest with a specificity of at
    least ``SPECIFICITY``; ``any_finding`` and ``no_finding`` apply to an image's highest score;
    ``positive_patients`` (L,) positive validation patients.
    """

    f1: np.ndarray
    specificity: np.ndarray
    any_finding: float
    no_finding: float
    positive_patients: np.ndarray

    @property
    def tuned(self) -> np.ndarray:
        """Which labels (L,) have a threshold."""
        return np.isfinite(self.f1)


def choose_thresholds(val: Sample) -> Thresholds:
    """The thresholds that the validation part supports (see ``MIN_PATIENTS``)."""
    patients = val.positive_clusters(val.labels)
    enough = (patients >= MIN_PATIENTS) & (val.positive_clusters(~val.labels) >= MIN_PATIENTS)
    f1, specificity = np.full((2, len(enough)), np.nan)
    for k in np.flatnonzero(enough):
        f1[k] = best_f1_threshold(val.labels[:, k], val.scores[:, k])
        specificity[k] = specificity_threshold(val.scores[~val.labels[:, k], k])
    any_finding, no_finding = _image_thresholds(val)
    return Thresholds(f1, specificity, any_finding, no_finding, patients)


def _image_thresholds(val: Sample) -> tuple[float, float]:
    finding, score = val.abnormal, val.scores.max(axis=1)
    both = np.column_stack([finding, ~finding])
    if (val.positive_clusters(both) < MIN_PATIENTS).any():
        return np.nan, np.nan
    # "no finding" is called below its threshold: the same search upside down, then one step up
    highest_clear = -best_f1_threshold(~finding, -score)
    return best_f1_threshold(finding, score), float(np.nextafter(highest_clear, np.inf))


def best_f1_threshold(positive: np.ndarray, scores: np.ndarray) -> float:
    """The score at which calling ``scores >= threshold`` positive gives the highest F1; the highest such.

    ``positive`` (n,) bool with at least one true; ``scores`` (n,).
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.append(ordered[1:] != ordered[:-1], True)  # a threshold cannot part equal scores
    hits = np.cumsum(positive[order])[last]
    called = np.flatnonzero(last) + 1
    return float(ordered[last][np.argmax(2 * hits / (called + positive.sum()))])


def specificity_threshold(negative_scores: np.ndarray, specificity: float = SPECIFICITY) -> float:
    """The lowest threshold above which at most ``1 - specificity`` of ``negative_scores`` (n,) lie."""
    ordered = np.sort(negative_scores)
    kept = int(np.ceil(specificity * len(ordered) - 1e-9))
    return float(np.nextafter(ordered[kept - 1], np.inf))
