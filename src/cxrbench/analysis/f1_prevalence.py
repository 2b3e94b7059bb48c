"""The prevalence at which a definition of F1 would reach a target, the ROC curves staying as they are.

At each prevalence the thresholds are chosen for it, on the scored images themselves, which flatters. Of those
tried they are the best, and the answer is the most that networks of this skill could be given, but for two
kinds of definition: both-class macro pools the threshold that is best for each label alone, and the two
samples definitions have one threshold for all labels.
"""

from __future__ import annotations

import numpy as np

from cxrbench.analysis.f1 import both_classes, f1, samples_f1
from cxrbench.analysis.sample import Sample

STEPS = 200  # thresholds, and prevalences, that are tried
PREVALENCES = 1 / (1 + np.exp(-np.linspace(-7, 7, STEPS)))  # even in log-odds, 0.001 to 0.999

Curves = dict[str, np.ndarray]


def values_by_prevalence(sample: Sample, counted: np.ndarray) -> Curves:
    """Each definition at ``PREVALENCES``, at thresholds chosen for it, the ROC curves staying as they are."""
    rates = [_rates(sample.labels[:, k], sample.scores[:, k]) for k in np.flatnonzero(counted)]
    abnormal, highest = sample.abnormal, sample.scores.max(axis=1)
    parts = [_parts(*rate) for rate in rates]
    by_f1 = [_pick(part, f1(*part[:3])) for part in parts]
    by_mean = [_pick(part, np.mean(both_classes(*part), axis=0)) for part in parts]
    by_weight = [_pick(part, _weighted(part)) for part in parts]
    macro = np.mean([f1(*part[:3]) for part in by_f1], axis=0)
    return {
        "f1_macro": macro,
        "f1_micro": _highest_pooled(parts),
        "f1_weighted": macro,  # with one prevalence for all labels their weights are equal
        "f1_both_class_weighted": np.mean([_weighted(part) for part in by_weight], axis=0),
        "f1_both_class_macro": np.mean(both_classes(*np.sum(by_mean, axis=0)), axis=0),
        **_samples_by_prevalence(sample, counted, abnormal),
        "f1_any_finding": _highest(_rates(abnormal, highest)),
        "f1_no_finding": _highest(_rates(~abnormal, -highest)),
    }


def _rates(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and false positive rates (T,) at thresholds spread over both classes; NaN if one is empty."""
    tried = np.unique(np.quantile(scores, np.linspace(0, 1, STEPS)))
    if positive.any():
        tried = np.unique(np.append(tried, np.quantile(scores[positive], np.linspace(0, 1, STEPS))))
    hits, misses = (calls_at(which[:, None], scores[:, None], tried)[:, 0] for which in (positive, ~positive))
    with np.errstate(divide="ignore", invalid="ignore"):
        return hits / positive.sum(), misses / (~positive).sum()


def _parts(sensitivity: np.ndarray, alarms: np.ndarray) -> np.ndarray:
    """Hits, called, positive and total, as shares (4, T, P) at every threshold and prevalence."""
    hits = sensitivity[:, None] * PREVALENCES
    called = hits + alarms[:, None] * (1 - PREVALENCES)
    return np.array([hits, called, np.broadcast_to(PREVALENCES, hits.shape), np.ones_like(hits)])


def _weighted(part: np.ndarray) -> np.ndarray:
    present, absent = both_classes(*part)
    return (part[2] * present + (part[3] - part[2]) * absent) / part[3]


def _pick(part: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The parts (4, P) at each prevalence's best threshold."""
    best = np.argmax(value, axis=0)
    return part[:, best, np.arange(part.shape[2])]


def _highest_pooled(parts: list[np.ndarray]) -> np.ndarray:
    """The highest F1 (P,) of all labels' decisions together, each label at a threshold of its own.

    Dinkelbach (Management Science 13, 1967): the thresholds that maximise 2 hits - F (called + positive)
    raise F until it is the maximum. No label's choice depends on another's, F being given.
    """
    reached, before = np.zeros(len(PREVALENCES)), np.full(len(PREVALENCES), -1.0)
    while (reached > before).any():
        before = reached
        best = [_pick(part, 2 * part[0] - before * (part[1] + part[2])) for part in parts]
        reached = np.fmax(before, f1(*np.sum(best, axis=0)[:3]))
    return reached


def _highest(rates: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return f1(*_parts(*rates)[:3]).max(axis=0)


def _samples_by_prevalence(sample: Sample, counted: np.ndarray, abnormal: np.ndarray) -> Curves:
    """The two samples definitions: a mixture of the means over images with and without a finding."""
    truth, scores = sample.labels[:, counted], sample.scores[:, counted]
    with_finding: list[list[float]] = []
    without: list[list[float]] = []
    for threshold in np.unique(np.quantile(scores, np.linspace(0, 1, STEPS))):
        value, empty = samples_f1(truth, scores >= threshold)
        for means, rows in ((with_finding, abnormal), (without, ~abnormal)):
            means.append([value[rows].mean(), (value + empty)[rows].mean()] if rows.any() else [np.nan] * 2)
    mixed = (
        np.array(with_finding)[:, :, None] * PREVALENCES + np.array(without)[:, :, None] * (1 - PREVALENCES)
    ).max(axis=0)
    return {"f1_samples": mixed[0], "f1_samples_empty_is_1": mixed[1]}


def crossing(prevalences: np.ndarray, values: np.ndarray, target: float, observed: float) -> float:
    """Where ``values`` (P,) meet ``target``, nearest in log-odds to ``observed``; 0 if all of them reach it,
    NaN if none does."""
    above = values >= target
    steps = np.flatnonzero(above[1:] != above[:-1])
    if not len(steps):
        return 0.0 if above.all() else np.nan
    share = (target - values[steps]) / (values[steps + 1] - values[steps])
    odds = np.log(prevalences / (1 - prevalences))
    met = odds[steps] + share * (odds[steps + 1] - odds[steps])
    start = np.log(observed / (1 - observed))
    return float(1 / (1 + np.exp(-met[np.argmin(np.abs(met - start))])))


def calls_at(which: np.ndarray, scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many of ``which`` (n, K) score at least each threshold: (T, K)."""
    columns = []
    for chosen, column in zip(which.T, scores.T, strict=True):
        ordered = np.sort(column[chosen])
        columns.append(len(ordered) - np.searchsorted(ordered, thresholds, side="left"))
    return np.column_stack(columns)
