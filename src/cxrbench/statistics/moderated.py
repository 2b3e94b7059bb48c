"""The variance of a metric of a single finding, clustered by patient.

A metric of one finding is a weighted mean over images of a class, or a sum of two (AUROC: of the placements
of positive and of negative images). Where one patient has many of the images, the sum of squares over
patients hangs on him alone; degrees of freedom that are read from the same squares then make the interval
useless. So for a single finding (:func:`variance_of`)

- the variance is CR2's, and its degrees of freedom come from the shares of the patients and a working
  correlation between a patient's images (Bell & McCaffrey 2002; Pustejovsky & Tipton, J. Business & Economic
  Statistics 2018, with independence as the target of the adjustment);
- that correlation is pooled over the findings, and each variance is moderated towards the one that it
  predicts (Smyth, Stat. Appl. Genet. Mol. Biol. 2004). So is the variance of one image, taken to be a
  multiple of value * (1 - value) that the findings share. ``PRIOR`` and ``PRIOR_PATIENTS`` were chosen by
  simulated coverage and width (docs/statistics.md).
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from cxrbench.statistics.auroc import ImageParts
from cxrbench.statistics.sample import Sample, in_threads

PRIOR = 15.0  # degrees of freedom of the predicted variance
PRIOR_PATIENTS = 10.0  # weight of what the findings share in the variance of one image
FEWEST = 5  # patients of the rarer class: with fewer a finding has no interval
_LEAST = 0.25  # of the predicted variance is left where a patient's positive and negative images cancel


class Class(NamedTuple):
    """One class of a finding, by the patients (P,) that have images of it: their numbers, how many ``images``
    they have, ``total`` influence, ``share``, sums of squared shares, of residuals and of their squares."""

    patients: np.ndarray
    images: np.ndarray
    total: np.ndarray
    share: np.ndarray
    squares: np.ndarray
    residual: np.ndarray
    residual_squares: np.ndarray

    @property
    def spread(self) -> float:
        """Variance of one image's residual."""
        return float(self.residual_squares.sum() / max(self.images.sum(), 1))

    def working(self, correlation: float) -> np.ndarray:
        """Working variance (P,) of each patient's part, of images whose residual has variance 1."""
        return (1 - correlation) * self.squares + correlation * self.share**2

    def among(self, other: "Class") -> "Class":
        """The patients that have images of the ``other`` class too."""
        both = np.isin(self.patients, other.patients, assume_unique=True)
        return Class(*(part[both] for part in self))


def variance_of(sample: Sample, parts: ImageParts) -> tuple[np.ndarray, np.ndarray]:
    """The moderated variance of each finding and its degrees of freedom, each (L,); NaN for a finding
    with fewer than ``FEWEST`` patients of a class that the metric needs.

    >>> from cxrbench.statistics.auroc import auroc
    >>> from cxrbench.statistics.examples import scored
    >>> [part.round(4).tolist() for part in variance_of(scored()[0], auroc(scored()[0]).parts)]
    [[0.0016, 0.0011], [42.0, 36.0]]
    """
    enough, size = parts.patients >= FEWEST, parts.share.size
    makers = (partial(_class, sample, parts, positive) for positive in (True, False))
    classes = [in_threads(class_of, range(len(enough)), size) for class_of in makers]
    both = [(one.among(two), two.among(one)) for one, two in zip(*classes, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.array([(adjusted(part) ** 2).sum() for of_class in classes for part in of_class])
        together = [(adjusted(one) * adjusted(two)).sum() for one, two in both]
        observed = observed.reshape(2, -1).sum(axis=0) + 2 * np.array(together)
        predicted, freedom = _predicted(parts, classes, both, enough)
        variance = (freedom * observed + PRIOR * predicted) / (freedom + PRIOR)
    degrees = np.minimum(freedom + PRIOR, parts.patients - 1)
    unknown = ~enough | (observed == 0)
    return np.where(unknown, np.nan, variance), np.where(unknown, np.nan, degrees)


def _class(sample: Sample, parts: ImageParts, positive: bool, label: int) -> Class:
    rows = np.flatnonzero((parts.positive[:, label] == positive) & (parts.share[:, label] > 0))
    clusters = sample.clusters[rows]
    influence, share = parts.influence[:, label][rows], parts.share[:, label][rows]
    residual = influence / share
    sums = [influence, share, share**2, residual, residual**2]
    images = np.bincount(clusters)
    patients = np.flatnonzero(images)
    if not np.array_equal(patients, clusters):  # some have several images
        sums = [np.bincount(clusters, part)[patients] for part in sums]
    return Class(patients, images[patients], *sums)


def adjusted(part: Class) -> np.ndarray:
    """CR2's adjusted sums (P,), whose squares add up to the variance.

    >>> one, share = np.ones(4), np.full(4, 0.25)  # four patients alike
    >>> adjusted(Class(np.arange(4), one, 0.1 * share, share, share**2, one, one)).round(4).tolist()
    [0.0289, 0.0289, 0.0289, 0.0289]
    """
    return np.asarray(part.total / np.sqrt(1 - part.share))


def satterthwaite_of_shares(share: np.ndarray, working: np.ndarray) -> np.ndarray:
    """The degrees of freedom (L,) of CR2's variance of a mean (Pustejovsky & Tipton 2018, eq. 11).

    ``share`` and ``working`` variance of each patient, (P, L) or (P,). It is tr(M)^2 / tr(M^2) of M =
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


def _predicted(
    parts: ImageParts, classes: list[list[Class]], both: list[tuple[Class, Class]], enough: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The variance that the findings together predict, and CR2's degrees of freedom, each (L,)."""
    variances, freedoms, spreads = [], [], []
    for of_class in classes:
        spread = np.array([part.spread for part in of_class])
        correlation = _correlation(of_class, spread, enough)
        working = [part.working(correlation) for part in of_class]
        patients, sums = np.array([(len(part), part.sum()) for part in working]).T
        spreads.append(_shared_spread(parts, spread, enough))
        variances.append(spreads[-1] * patients / np.maximum(patients - 1, 1) * sums)
        shares = (part.share for part in of_class)
        freedoms.append(np.array([*map(satterthwaite_of_shares, shares, working)]))
    total = variances[0] + variances[1]
    inverse = sum(np.where(v > 0, v**2 / d, 0) for v, d in zip(variances, freedoms, strict=True))
    alone = np.sqrt([one.spread * two.spread for one, two in zip(*classes, strict=True)])
    between = _between(both, alone, enough) * np.sqrt(spreads[0] * spreads[1])
    return np.maximum(total + between, _LEAST * total), total**2 / inverse


def _shared_spread(parts: ImageParts, spread: np.ndarray, enough: np.ndarray) -> np.ndarray:
    """The variance (L,) of one image's residual, moderated towards what the findings share."""
    binomial, patients = parts.value * (1 - parts.value), parts.patients
    usable = enough & np.isfinite(binomial) & (spread > 0)
    ratio = (patients * spread)[usable].sum() / max((patients * binomial)[usable].sum(), 1e-300)
    return np.asarray((patients * spread + PRIOR_PATIENTS * ratio * binomial) / (patients + PRIOR_PATIENTS))


def _correlation(of_class: list[Class], spread: np.ndarray, enough: np.ndarray) -> float:
    """The correlation between a patient's images of a class, pooled over the findings; each patient counts
    as many times as it has images, however many pairs these make."""
    alike, images = np.zeros((2, len(of_class)))
    for k, part in enumerate(of_class):
        several = part.images > 1
        pairs = (part.residual**2 - part.residual_squares) / np.maximum(part.images - 1, 1)
        alike[k], images[k] = pairs[several].sum() / spread[k], part.images[several].sum()
    usable = enough & (images > 0) & (spread > 0)
    return float(np.clip(alike[usable].sum() / images[usable].sum(), 0, 1)) if usable.any() else 0.0


def _between(both: list[tuple[Class, Class]], spread: np.ndarray, enough: np.ndarray) -> np.ndarray:
    """What patients' having positive and negative images adds to the variance (L,), over the root of the
    product of the spreads of the two classes; ``spread`` (L,) is that of the images of the sample."""
    alike, images, shares = np.zeros((3, len(both)))
    for k, (one, two) in enumerate(both):
        weight = 1 / (one.images + two.images)
        alike[k] = (weight * one.residual * two.residual).sum() / spread[k]
        images[k] = (weight * one.images * two.images).sum()
        shares[k] = (one.share * two.share).sum()
    usable = enough & (images > 0) & (spread > 0)
    if not usable.any():
        return np.zeros(len(both))
    correlation = np.clip(alike[usable].sum() / images[usable].sum(), -1, 1)
    return np.asarray(2 * correlation * shares)
