"""F1 in every definition the literature could mean, from counts.

All functions take arrays of any leading shape (such as bootstrap replicates) with labels last.
``f1_macro``: mean over labels of F1. ``f1_micro``: one F1 over all decisions. ``f1_weighted``: mean
weighted by each label's positives. ``f1_samples``: mean over images of the F1 of its label set; an
image without called or true finding counts 0 (as in scikit-learn) or, in ``f1_samples_empty_is_1``, 1.
``f1_both_class_weighted``: per label the F1 of both classes weighted by their sizes, then the mean over
labels. ``f1_both_class_macro``: all decisions pooled, mean of the F1 of "present" and of "absent".
``f1_any_finding`` / ``f1_no_finding``: per image, an abnormal film against a clear one.
"""

from __future__ import annotations

import numpy as np

POOLED = (
    "f1_micro",
    "f1_weighted",
    "f1_samples",
    "f1_samples_empty_is_1",
    "f1_both_class_weighted",
    "f1_both_class_macro",
)
IMAGE_LEVEL = ("f1_any_finding", "f1_no_finding")
DEFINITIONS = ("f1_macro", *POOLED, *IMAGE_LEVEL)


def f1(hits: np.ndarray, called: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """2 TP / (called + positive); NaN where nothing is positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(positive > 0, 2 * hits / (called + positive), np.nan)


def both_classes(
    hits: np.ndarray, called: np.ndarray, positive: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F1 of the positive and of the negative class out of ``total`` decisions."""
    true_negatives = total - called - positive + hits
    return f1(hits, called, positive), f1(true_negatives, total - called, total - positive)


def multilabel_f1(
    hits: np.ndarray, called: np.ndarray, positive: np.ndarray, total: np.ndarray
) -> dict[str, np.ndarray]:
    """The definitions that need only counts per label (..., L) and the ``total`` of images (...)."""
    total = np.asarray(total)[..., None]
    per_label, absent = both_classes(hits, called, positive, total)
    weighted = (positive * per_label + (total - positive) * absent) / total
    all_hits, all_called, all_positive = (part.sum(axis=-1) for part in (hits, called, positive))
    decisions = total[..., 0] * hits.shape[-1]
    return {
        "f1_macro": per_label.mean(axis=-1),
        "f1_micro": f1(all_hits, all_called, all_positive),
        "f1_weighted": np.nansum(positive * per_label, axis=-1) / all_positive,
        "f1_both_class_weighted": weighted.mean(axis=-1),
        "f1_both_class_macro": np.mean(both_classes(all_hits, all_called, all_positive, decisions), axis=0),
    }


def samples_f1(truth: np.ndarray, calls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per image (n,): F1 of its set of labels with empty sets at 0, and whether both sets are empty."""
    size = truth.sum(axis=1) + calls.sum(axis=1)
    return 2 * (truth & calls).sum(axis=1) / np.maximum(size, 1), size == 0
