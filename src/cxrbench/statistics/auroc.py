"""AUROC and average precision with a variance clustered by patient, and the variance of a single finding.

An *influence* matrix Z (clusters x labels) has the estimated covariance of the AUROCs, Z'Z. A mean over
labels or over seeds, or a difference between two score sets on the same images, is the same combination of
columns, so its variance is paired and clustered without another formula.

Sources: DeLong, DeLong & Clarke-Pearson, Biometrics 1988, eq. 4-6 (placements); Obuchowski, Biometrics 1997,
eq. 2-4 (clusters). With one image per cluster Z'Z is DeLong's covariance exactly. In place of Obuchowski's
factor I/(I-1) a cluster that holds the share w of a class's images has 1/(1-w), the jackknife's (Bell &
McCaffrey, Survey Methodology 2002, CR3). Degrees of freedom are capped by the number of patients that the
variance rests on in effect. Average precision is linearised in the weights of images.

That is for means over labels and paired differences. A metric of one finding is a weighted mean over images
of a class, or a sum of two (AUROC: of the placements of positive and of negative images). Where one patient
has many of the images, the sum of squares over patients hangs on him alone; degrees of freedom that are read
from the same squares then make the interval useless. So for a single finding (``variance_of``)

- the variance is CR2's, and its degrees of freedom come from the shares of the patients and a working
  correlation between a patient's images (Bell & McCaffrey 2002; Pustejovsky & Tipton, J. Business & Economic
  Statistics 2018, with independence as the target of the adjustment);
- that correlation is pooled over the findings, and each variance is moderated towards the one that it
  predicts (Smyth, Stat. Appl. Genet. Mol. Biol. 2004). So is the variance of one image, taken to be a
  multiple of value * (1 - value) that the findings share. ``PRIOR`` and ``PRIOR_PATIENTS`` were chosen by
  simulated coverage and width (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cxrbench.statistics.sample import Sample

PRIOR = 15.0  # degrees of freedom of the predicted variance
PRIOR_PATIENTS = 10.0  # weight of what the findings share in the variance of one image
FEWEST = 5  # patients of the rarer class: with fewer a finding has no interval
_LEAST = 0.25  # of the predicted variance is left where a patient's positive and negative images cancel


@dataclass(frozen=True)
class Parts:
    """A metric of each finding (``value``, L) by image, (n, L): ``influence``, ``share`` and ``positive``.

    ``share`` is an image's weight in the mean of its class, 0 where it is in none; ``positive`` says which
    class that is. ``patients`` (L,) is how many patients the rarer class has that the metric needs.
    """

    value: np.ndarray
    influence: np.ndarray
    share: np.ndarray
    positive: np.ndarray
    patients: np.ndarray

    def mean(self, others: Sequence[Parts]) -> Parts:
        """The mean of these and ``others``, networks that scored the same images."""
        if not others:
            return self
        means = (np.mean([getattr(parts, name) for parts in (self, *others)], axis=0) for name in _AVERAGED)
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
    parts: Parts | None = None

    @property
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


def placements(positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """DeLong's placement of each image (n,): the share of the other class that it beats, ties half.

    For a positive image the share of negatives below it, for a negative one the share of positives above it,
    each counted by its ``weights`` (n,); the mean of a class is the AUROC. Both classes must be present.

    >>> positive, scores = np.array([True, True, False, False]), np.array([0.9, 0.4, 0.4, 0.1])
    >>> placements(positive, scores, np.ones(4)).tolist()
    [1.0, 0.75, 0.75, 1.0]
    """
    _, group = np.unique(scores, return_inverse=True)  # equal scores are one group
    positives, negatives = (
        np.bincount(group[part], weights[part], group.max() + 1) for part in (positive, ~positive)
    )
    beaten = (np.cumsum(negatives) - negatives / 2) / negatives.sum()
    beating = 1 - (np.cumsum(positives) - positives / 2) / positives.sum()
    return np.where(positive, beaten[group], beating[group])


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
    influence, share = np.zeros((2, n, labels))
    columns = [_one_label(sample, k, by_patient, influence[:, k], share[:, k]) for k in range(labels)]
    value, of_patients, freedom = zip(*columns, strict=True)
    fewest = np.minimum(sample.positive_clusters(sample.labels), sample.positive_clusters(sample.negative))
    parts = Parts(np.array(value), influence, share, sample.labels, fewest)
    return Estimate(parts.value, np.column_stack(of_patients), np.array(freedom), parts)


def _one_label(
    sample: Sample, label: int, by_patient: bool, influence: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """The value, influence of patients and freedom; fills ``influence`` and ``share`` of images (n,)."""
    positive, scores, of = sample.of_label(label)
    unknown = np.full(sample.n_clusters, np.nan)
    if positive.all() or not positive.any():
        return np.nan, unknown, np.nan
    weights = _once(positive, of) if by_patient else np.ones(len(of))
    place = placements(positive, scores, weights)
    value = float(
        np.average(place[positive], weights=weights[positive]) if by_patient else place[positive].mean()
    )
    rows = np.flatnonzero(~sample.unknown[:, label])
    parts, freedoms, variances = np.zeros(sample.n_clusters), [], []
    for part in (positive, ~positive):
        clusters, weight = of[part], weights[part]
        influence[rows[part]] = weight * (place[part] - value) / weight.sum()
        share[rows[part]] = weight / weight.sum()
        sums = np.bincount(clusters, influence[rows[part]], sample.n_clusters)
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
    influence, share = np.zeros((2, n, labels))
    columns = [_precision_of(sample, k, influence[:, k], share[:, k]) for k in range(labels)]
    value, of_patients = zip(*columns, strict=True)
    freedom = np.where(positive > 1, positive - 1.0, np.nan)
    parts = Parts(np.array(value), influence, share, sample.labels, np.minimum(positive, negative))
    return Estimate(parts.value, np.column_stack(of_patients), freedom, parts)


def _precision_of(
    sample: Sample, label: int, influence: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray]:
    """The value and influence of patients; fills ``influence`` and ``share`` of images (n,)."""
    positive, scores, clusters = sample.of_label(label)
    unknown = np.full(sample.n_clusters, np.nan)
    if positive.all() or not positive.any():
        return np.nan, unknown
    _, group = np.unique(-scores, return_inverse=True)  # equal scores are one group
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


class Class(NamedTuple):
    """One class by patient, (clusters, L): ``total`` influence, ``share``, sum of squared shares, of
    residuals and of their squares, and the number of images."""

    total: np.ndarray
    share: np.ndarray
    squares: np.ndarray
    residual: np.ndarray
    residual_squares: np.ndarray
    images: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Variance (L,) of one image's residual."""
        images, residuals = self.images.sum(axis=0), self.residual_squares.sum(axis=0)
        return residuals / np.maximum(images, 1)

    def working(self, correlation: float) -> np.ndarray:
        """Working variance (clusters, L) of each patient's part, of images whose residual has variance 1."""
        return (1 - correlation) * self.squares + correlation * self.share**2


def variance_of(sample: Sample, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    """The moderated variance of each finding and its degrees of freedom, each (L,); NaN for a finding
    with fewer than ``FEWEST`` patients of a class that the metric needs.

    >>> from cxrbench.statistics.examples import scored
    >>> [part.round(4).tolist() for part in variance_of(scored()[0], auroc(scored()[0]).parts)]
    [[0.0016, 0.0011], [42.0, 36.0]]
    """
    enough = parts.patients >= FEWEST
    classes = [_class(sample, parts, parts.positive), _class(sample, parts, ~parts.positive)]
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = ((adjusted(classes[0]) + adjusted(classes[1])) ** 2).sum(axis=0)
        predicted, freedom = _predicted(parts, classes, enough)
        variance = (freedom * observed + PRIOR * predicted) / (freedom + PRIOR)
    degrees = np.minimum(freedom + PRIOR, parts.patients - 1)
    unknown = ~enough | (observed == 0)
    return np.where(unknown, np.nan, variance), np.where(unknown, np.nan, degrees)


def _class(sample: Sample, parts: Parts, members: np.ndarray) -> Class:
    share = np.where(members, parts.share, 0)
    influence = np.where(share > 0, parts.influence, 0)
    residual = influence / np.where(share > 0, share, 1)
    images = influence, share, share**2, residual, residual**2, (share > 0).astype(float)
    alone = np.array_equal(sample.clusters, np.arange(len(influence)))  # each image its own cluster
    return Class(*images if alone else (sample.of_patient @ part for part in images))


def adjusted(part: Class) -> np.ndarray:
    """CR2's adjusted sums (clusters, L), whose squares add up to the variance."""
    return np.asarray(part.total / np.sqrt(1 - part.share))


def satterthwaite_of_shares(share: np.ndarray, working: np.ndarray) -> np.ndarray:
    """The degrees of freedom (L,) of CR2's variance of a mean (Pustejovsky & Tipton 2018, eq. 11).

    ``share`` and ``working`` variance of each patient, (clusters, L). It is tr(M)^2 / tr(M^2) of M =
    D (diag(s) - w s' - s w' + S w w') D, D = diag(a), a the adjustment, w shares, s variances, S their sum.

    >>> share = np.full((10, 1), 0.1)  # ten patients alike, as in an ordinary mean
    >>> satterthwaite_of_shares(share, share**2).round(6).tolist()
    [9.0]
    """
    a = 1 / np.sqrt(1 - share)
    own, p = a**2 * working, a * share
    r = working.sum(axis=0) * p / 2 - a * working  # M = diag(own) + p r' + r p'
    trace = (own + 2 * p * r).sum(axis=0)
    rest = (p**2).sum(axis=0) * (r**2).sum(axis=0) + (p * r).sum(axis=0) ** 2
    return np.asarray(trace**2 / ((own**2 + 4 * own * p * r).sum(axis=0) + 2 * rest))


def _predicted(parts: Parts, classes: list[Class], enough: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variance that the findings together predict, and CR2's degrees of freedom, each (L,)."""
    variances, freedoms, spreads = [], [], []
    for part in classes:
        patients = (part.images > 0).sum(axis=0)
        working = part.working(_correlation(part, enough))
        spreads.append(_shared_spread(parts, part.spread, enough))
        variances.append(spreads[-1] * patients / np.maximum(patients - 1, 1) * working.sum(axis=0))
        freedoms.append(satterthwaite_of_shares(part.share, working))
    total = variances[0] + variances[1]
    inverse = sum(np.where(v > 0, v**2 / d, 0) for v, d in zip(variances, freedoms, strict=True))
    between = _between(classes[0], classes[1], enough) * np.sqrt(spreads[0] * spreads[1])
    return np.maximum(total + between, _LEAST * total), total**2 / inverse


def _shared_spread(parts: Parts, spread: np.ndarray, enough: np.ndarray) -> np.ndarray:
    """The variance (L,) of one image's residual, moderated towards what the findings share."""
    binomial, patients = parts.value * (1 - parts.value), parts.patients
    usable = enough & np.isfinite(binomial) & (spread > 0)
    ratio = (patients * spread)[usable].sum() / max((patients * binomial)[usable].sum(), 1e-300)
    return np.asarray((patients * spread + PRIOR_PATIENTS * ratio * binomial) / (patients + PRIOR_PATIENTS))


def _correlation(part: Class, enough: np.ndarray) -> float:
    """The correlation between a patient's images of a class, pooled over the findings; each patient counts
    as many times as it has images, however many pairs these make."""
    several = part.images > 1
    pairs = (part.residual**2 - part.residual_squares) / np.maximum(part.images - 1, 1)
    alike = np.where(several, pairs, 0).sum(axis=0) / part.spread
    images = np.where(several, part.images, 0).sum(axis=0)
    usable = enough & (images > 0) & (part.spread > 0)
    return float(np.clip(alike[usable].sum() / images[usable].sum(), 0, 1)) if usable.any() else 0.0


def _between(first: Class, second: Class, enough: np.ndarray) -> np.ndarray:
    """What a patient's having positive and negative images adds to the variance (L,), over the root of
    the product of the spreads of the two classes."""
    spread = np.sqrt(first.spread * second.spread)
    weight = 1 / np.maximum(first.images + second.images, 1)
    alike = (weight * first.residual * second.residual).sum(axis=0) / spread
    images = (weight * first.images * second.images).sum(axis=0)
    usable = enough & (images > 0) & (spread > 0)
    if not usable.any():
        return np.zeros(len(enough))
    correlation = np.clip(alike[usable].sum() / images[usable].sum(), -1, 1)
    return np.asarray(2 * correlation * (first.share * second.share).sum(axis=0))
