"""AUROC and average precision with a variance clustered by patient.

An *influence* matrix Z (clusters x labels) has the estimated covariance of the AUROCs, Z'Z. A mean over
labels or over seeds, or a difference between two score sets on the same images, is the same combination of
columns, so its variance is paired and clustered without another formula.

Sources: DeLong, DeLong & Clarke-Pearson, Biometrics 1988, eq. 4-6 (placements); Obuchowski, Biometrics 1997,
eq. 2-4 (clusters). With one image per cluster Z'Z is DeLong's covariance exactly. In place of Obuchowski's
factor I/(I-1) a cluster that holds the share w of a class's images has 1/(1-w), the jackknife's (Bell &
McCaffrey, Survey Methodology 2002, CR3). Degrees of freedom are capped by the number of patients that the
variance rests on in effect. Average precision is linearised in the weights of images. A single finding has
another variance (:mod:`cxrbench.statistics.moderated`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cxrbench.statistics.sample import Sample, in_threads


@dataclass(frozen=True)
class ImageParts:
    """A metric of each finding (``value``, L) by image, (n, L): ``influence``, ``share`` and ``positive``.

    ``share`` is an image's weight in the mean of its class, 0 where it is in none; ``positive`` says which
    class that is. ``patients`` (L,) is how many patients the rarer class has that the metric needs.
    """

    value: np.ndarray
    influence: np.ndarray
    share: np.ndarray
    positive: np.ndarray
    patients: np.ndarray

    def mean(self, others: Sequence[ImageParts]) -> ImageParts:
        """The mean of these and ``others``, networks that scored the same images."""
        if not others:
            return self
        means = (
            np.mean([getattr(parts, name).T for parts in (self, *others)], axis=0).T for name in _AVERAGED
        )
        return replace(self, **dict(zip(_AVERAGED, means, strict=True)))


_AVERAGED = ("value", "influence", "share")


@dataclass(frozen=True)
class Estimate:
    """Values with what is needed for their intervals.

    ``value`` (K,), NaN where undefined; ``influence`` (clusters, K), NaN in a column whose variance
    cannot be estimated; ``freedom`` (K,) what the numbers of patients allow as degrees of freedom. ``parts``
    are those of single labels, the first columns, where their variance is moderated.
    """

    value: np.ndarray
    influence: np.ndarray
    freedom: np.ndarray
    parts: ImageParts | None = None

    @cached_property
    def error(self) -> np.ndarray:
        """Standard errors (K,)."""
        return np.sqrt((self.influence**2).sum(axis=0))

    @property
    def degrees(self) -> np.ndarray:
        """Degrees of freedom (K,) of the variance: ``freedom``, capped by the effective patients."""
        return np.minimum(self.freedom, effective_clusters(self.influence))

    def mean(self, columns: np.ndarray) -> Estimate:
        """The mean over the columns chosen by the boolean mask (K,), as an estimate of one column."""
        if not columns.any():
            nothing = np.full((len(self.influence), 1), np.nan)
            return Estimate(np.array([np.nan]), nothing, np.array([np.nan]))
        freedom = satterthwaite(self.error[columns] ** 2, self.freedom[columns])
        return Estimate(
            self.value[columns].mean(keepdims=True),
            self.influence[:, columns].mean(axis=1, keepdims=True),
            np.array([freedom]),
        )

    def with_mean(self, columns: np.ndarray) -> Estimate:
        """All columns, and the mean over the chosen ones as one more."""
        return self.with_column(self.mean(columns))

    def with_column(self, other: Estimate) -> Estimate:
        """All columns, and those of ``other`` behind them."""
        return Estimate(
            np.append(self.value, other.value),
            np.hstack([self.influence, other.influence]),
            np.append(self.freedom, other.freedom),
            self.parts,
        )


def mean_value(seeds: Iterable[Estimate]) -> np.ndarray:
    """Mean over seeds (K,).

    >>> networks = [Estimate(np.array([v]), np.zeros((4, 1)), np.array([3.0])) for v in (0.7, 0.8)]
    >>> mean_value(networks).round(3).tolist()
    [0.75]
    """
    return np.mean([seed.value for seed in seeds], axis=0)


def mean_influence(seeds: Iterable[Estimate]) -> np.ndarray:
    """Influence of each cluster on the mean over seeds (clusters, K).

    >>> mean_influence([Estimate(np.zeros(1), np.array([[i], [-i]]), np.ones(1)) for i in (1, 3)]).tolist()
    [[2.0], [-2.0]]
    """
    return np.mean([seed.influence for seed in seeds], axis=0)


def satterthwaite(variances: np.ndarray, freedoms: np.ndarray) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946, eq. 17); unlimited
    where all are zero, NaN where one is unknown.

    >>> satterthwaite(np.array([1.0, 1.0]), np.array([4.0, 4.0]))
    8.0
    """
    total = np.sum(variances)
    if total == 0:
        return np.inf
    return float(total**2 / np.sum(np.asarray(variances) ** 2 / np.asarray(freedoms)))


def effective_clusters(influence: np.ndarray) -> np.ndarray:
    """How many clusters (K,) carry the variance: all where they do so equally; unlimited where it is zero.

    >>> effective_clusters(np.array([[0.1, 0.1], [0.1, 0.0], [0.1, 0.0]])).round(6).tolist()
    [3.0, 1.0]
    """
    squares = influence**2
    fourth = (squares**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(fourth == 0, np.inf, squares.sum(axis=0) ** 2 / fourth)


def placements(positive: np.ndarray, ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """DeLong's placement of each image (n,): the share of the other class that it beats, ties half.

    For a positive image the share of negatives below it, for a negative one the share of positives above it,
    each counted by its ``weights`` (n,); the mean of a class is the AUROC. Both classes must be present.
    ``ranks`` (n,) are the places of their scores among the different ones.

    >>> positive, ranks = np.array([True, True, False, False]), np.array([2, 1, 1, 0])
    >>> placements(positive, ranks, np.ones(4)).tolist()
    [1.0, 0.75, 0.75, 1.0]
    """
    positives, negatives = (
        np.bincount(ranks[part], weights[part], ranks.max() + 1) for part in (positive, ~positive)
    )
    beaten = (np.cumsum(negatives) - negatives / 2) / negatives.sum()
    beating = 1 - (np.cumsum(positives) - positives / 2) / positives.sum()
    return np.where(positive, beaten[ranks], beating[ranks])


def auroc(sample: Sample, *, by_patient: bool = False) -> Estimate:
    """AUROC of every label of ``sample``, undefined (NaN) where only one class is present.

    With a single positive (or negative) cluster the value is defined and its variance is not. ``by_patient``:
    each patient of a class counts once, however many images of it he has.

    >>> from cxrbench.statistics.examples import scored
    >>> estimate = auroc(scored()[0])  # of two findings, over 100 patients
    >>> estimate.value.round(3).tolist(), estimate.error.round(3).tolist(), estimate.influence.shape
    ([0.674, 0.786], [0.04, 0.034], (100, 2))
    """
    n, labels = sample.labels.shape
    influence, share = empty_parts(n, labels)
    columns = in_threads(
        lambda k: _one_label(sample, k, by_patient, influence[:, k], share[:, k]), range(labels), n * labels
    )
    value, of_patients, freedom = zip(*columns, strict=True)
    fewest = np.minimum(sample.positive_clusters(sample.labels), sample.positive_clusters(sample.negative))
    parts = ImageParts(np.array(value), influence, share, sample.labels, fewest)
    return Estimate(parts.value, np.column_stack(of_patients), np.array(freedom), parts)


def empty_parts(images: int, labels: int) -> np.ndarray:
    """Zeros (2, ``images``, ``labels``); labels have the slower index, since each is filled by itself.

    >>> empty_parts(3, 2).shape
    (2, 3, 2)
    """
    return np.zeros((2, labels, images)).transpose(0, 2, 1)


def _one_label(
    sample: Sample, label: int, by_patient: bool, influence: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """The value, influence of patients and freedom; fills ``influence`` and ``share`` of images (n,)."""
    positive, _, patients = sample.of_label(label)
    unknown = np.full(sample.n_clusters, np.nan)
    if positive.all() or not positive.any():
        return np.nan, unknown, np.nan
    weights = _once(positive, patients) if by_patient else np.ones(len(patients))
    place = placements(positive, sample.ranks(label), weights)
    value = float(
        np.average(place[positive], weights=weights[positive]) if by_patient else place[positive].mean()
    )
    rows = np.flatnonzero(~sample.unknown[:, label])
    parts, freedoms, variances = np.zeros(sample.n_clusters), [], []
    for part in (positive, ~positive):
        clusters, weight = patients[part], weights[part]
        images = weight * (place[part] - value) / weight.sum()
        influence[rows[part]], share[rows[part]] = images, weight / weight.sum()
        sums = np.bincount(clusters, images, sample.n_clusters)
        held = np.bincount(clusters, weight, sample.n_clusters) / weight.sum()
        count = np.count_nonzero(held)
        if count < 2:
            return value, unknown, np.nan
        sums *= np.sqrt((count - 1) / count) / (1 - held)
        parts += sums
        freedoms.append(count - 1)
        variances.append(sums @ sums)
    return value, parts, satterthwaite(np.array(variances), np.array(freedoms))


def _once(positive: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Weights (m,) of images by which each patient counts once in each class that he has."""
    member = 2 * clusters + positive
    return 1 / np.bincount(member)[member]


def average_precision(sample: Sample) -> Estimate:
    """Average precision of every label; a variance takes two clusters with positive images.

    >>> from cxrbench.statistics.examples import scored
    >>> average_precision(scored()[0]).value.round(3).tolist()
    [0.663, 0.724]
    """
    n, labels = sample.labels.shape
    positive, negative = (sample.positive_clusters(part) for part in (sample.labels, sample.negative))
    influence, share = empty_parts(n, labels)
    columns = in_threads(
        lambda k: _precision_of(sample, k, influence[:, k], share[:, k]), range(labels), n * labels
    )
    value, of_patients = zip(*columns, strict=True)
    freedom = np.where(positive > 1, positive - 1.0, np.nan)
    parts = ImageParts(np.array(value), influence, share, sample.labels, np.minimum(positive, negative))
    return Estimate(parts.value, np.column_stack(of_patients), freedom, parts)


def _precision_of(
    sample: Sample, label: int, influence: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray]:
    """The value and influence of patients; fills ``influence`` and ``share`` of images (n,)."""
    positive, _, clusters = sample.of_label(label)
    unknown = np.full(sample.n_clusters, np.nan)
    if positive.all() or not positive.any():
        return np.nan, unknown
    group = sample.ranks(label).max() - sample.ranks(label)  # equal scores are one, the highest the first
    called = np.cumsum(np.bincount(group))
    new = np.bincount(group, positive)
    hits, part = np.cumsum(new), new / positive.sum()
    value = float((part * hits / called).sum())
    # one more image of a group adds a call to it and to all below, and a hit to these if it is positive
    gained, lost = (np.cumsum(sums[::-1])[::-1] for sums in (part / called, part * hits / called**2))
    own = (hits / called)[group] - value
    images = positive * (own / positive.sum() + gained[group]) - lost[group]
    rows = np.flatnonzero(~sample.unknown[:, label])
    influence[rows], share[rows] = images, np.where(positive, 1 / positive.sum(), 1 / (~positive).sum())
    held = np.bincount(clusters, positive, sample.n_clusters) / positive.sum()
    if (held == 1).any():
        return value, unknown
    weights = np.sqrt((sample.n_clusters - 1) / sample.n_clusters) / (1 - held)
    return value, np.bincount(clusters, images, sample.n_clusters) * weights
