"""Thresholds, chosen from validation images only. An image is called positive at score >= threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cxrbench.analysis.bootstrap import weight_blocks
from cxrbench.analysis.sample import Sample

MIN_PATIENTS = 10  # a label with fewer positive (or negative) validation patients gets no threshold
SPECIFICITY = 0.9  # at which sensitivity is reported
REFITS = 200  # draws of validation patients: the spread they give has an error of five percent


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
    return _chosen(val, np.ones((1, val.n_clusters)))[0]


def refitted(val: Sample) -> list[Thresholds]:
    """The thresholds that ``REFITS`` other draws of the validation patients would give, for the same labels.

    The draws are the same for every network that scored these patients.
    """
    return _chosen(val, np.vstack(list(weight_blocks(val.n_clusters, REFITS, seed=0))))


def _chosen(val: Sample, weights: np.ndarray) -> list[Thresholds]:
    """Thresholds for each row of ``weights`` (R, clusters), how often each patient is drawn."""
    patients = val.positive_clusters(val.labels)
    enough = (patients >= MIN_PATIENTS) & (val.positive_clusters(~val.labels) >= MIN_PATIENTS)
    drawn = weights[:, val.clusters]
    f1, specificity = np.full((2, len(weights), len(enough)), np.nan)
    for k in np.flatnonzero(enough):
        positive, scores = val.labels[:, k], val.scores[:, k]
        f1[:, k] = best_f1_thresholds(positive, scores, drawn)
        specificity[:, k] = specificity_thresholds(scores[~positive], drawn[:, ~positive])
    image = _image_thresholds(val, drawn)
    rows = zip(f1, specificity, *image.tolist(), strict=True)
    return [Thresholds(one, strict, some, none, patients) for one, strict, some, none in rows]


def _image_thresholds(val: Sample, drawn: np.ndarray) -> np.ndarray:
    finding, score = val.abnormal, val.scores.max(axis=1)
    both = np.column_stack([finding, ~finding])
    if (val.positive_clusters(both) < MIN_PATIENTS).any():
        return np.full((2, len(drawn)), np.nan)
    # "no finding" is called below its threshold: the same search upside down, then one step up
    highest_clear = -best_f1_thresholds(~finding, -score, drawn)
    return np.array([best_f1_thresholds(finding, score, drawn), np.nextafter(highest_clear, np.inf)])


def best_f1_thresholds(positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The scores (R,) at which calling ``scores >= threshold`` positive gives the highest F1; the highest
    such.

    ``positive`` (n,) bool with at least one true; ``scores`` (n,); ``weights`` (R, n), how often each counts.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, hit = scores[order], positive[order]
    ends = np.flatnonzero(
        np.append(ordered[1:] != ordered[:-1], True)
    )  # a threshold cannot part equal scores
    found = np.cumsum(hit)[ends]
    ends, found = (part[np.diff(found, prepend=0) > 0] for part in (ends, found))  # the best calls one more
    counts = weights[:, order]
    called, hits = np.cumsum(counts, axis=1)[:, ends], np.cumsum(counts[:, hit], axis=1)[:, found - 1]
    return np.asarray(ordered[ends][np.argmax(2 * hits / np.maximum(called + hits[:, -1:], 1), axis=1)])


def specificity_thresholds(
    negative_scores: np.ndarray, weights: np.ndarray, specificity: float = SPECIFICITY
) -> np.ndarray:
    """The lowest thresholds (R,) above which at most ``1 - specificity`` of ``negative_scores`` (n,) lie.

    ``weights`` (R, n) is how often each counts.
    """
    order = np.argsort(negative_scores, kind="stable")
    kept = np.cumsum(weights[:, order], axis=1)
    enough = kept >= np.ceil(specificity * kept[:, -1:] - 1e-9)
    return np.asarray(np.nextafter(negative_scores[order][np.argmax(enough, axis=1)], np.inf))
