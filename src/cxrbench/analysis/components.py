"""The difference of two platforms' seed means, with its variance from patients and from seeds.

Var(D) = E[Var(D | networks)] + Var(E[D | networks]). The first part is the clustered variance of the paired
influence. The second is the variance between seeds less the part due to the choice of patients, which the
first part has already counted; a negative remainder counts as zero. Student's t with Satterthwaite's degrees
of freedom, n - 1 per group of seeds. A seed starts every platform from the same weights and batches, so
platforms with the same seeds are compared seed by seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from cxrbench.analysis.auroc import Estimate, effective_clusters, mean_influence, mean_value

ALPHA, POWER = 0.05, 0.8
Patients = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """Differences (K,) with their patient and seed variances (K,) and degrees of freedom (K,)."""

    value: np.ndarray
    patient_variance: np.ndarray
    seed_variance: np.ndarray
    freedom: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Standard errors (K,), of patients and seeds together."""
        return np.sqrt(self.patient_variance + self.seed_variance)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds (K,)."""
        reach = stdtrit(self.freedom, 0.5 + level / 2) * self.error
        return self.value - reach, self.value + reach

    def p_different(self) -> np.ndarray:
        """Two-sided p values (K,) of "no difference"."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return 2 * stdtr(self.freedom, -np.abs(self.value) / self.error)

    def p_among_many(self, seeds: int) -> np.ndarray:
        """The same (K,) with at most ``seeds`` - 1 degrees of freedom, for the smallest of many p values.

        Of many differences, some have seeds close together by chance, so that only patient variance is left;
        with the patients' degrees of freedom these would be called different too often.
        """
        return replace(self, freedom=np.minimum(self.freedom, seeds - 1)).p_different()

    def p_equivalent(self, margin: np.ndarray) -> np.ndarray:
        """TOST p values (K,): small when the difference is shown to be inside +-``margin`` (K,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return stdtr(self.freedom, (np.abs(self.value) - margin) / self.error)

    def smallest_margin(self) -> np.ndarray:
        """The margin (K,) that TOST would have shown with 80 % power had the true difference been 0."""
        quantiles = stdtrit(self.freedom, 1 - ALPHA) + stdtrit(self.freedom, (1 + POWER) / 2)
        return quantiles * self.error


def between_platforms(a: Mapping[int, Estimate], b: Mapping[int, Estimate]) -> Difference:
    """Mean over ``a``'s seeds minus mean over ``b``'s, on the same images: seed -> estimate, at least two.

    Of the same seeds it is the mean of their differences; other seeds count as independent.
    """
    if a.keys() == b.keys():
        seeds = [between_networks(a[seed], b[seed]) for seed in a]
        return _difference(mean_value(seeds), mean_influence(seeds), [(seeds, 1 / len(seeds))])
    sides = [list(a.values()), list(b.values())]
    value, influence = (mean(sides[0]) - mean(sides[1]) for mean in (mean_value, mean_influence))
    return _difference(value, influence, [(seeds, 1 / len(seeds)) for seeds in sides])


def between_networks(a: Estimate, b: Estimate) -> Estimate:
    """One trained network minus another on the same images: its error is of patients, not of seeds.

    With one image per patient ``value / error`` is DeLong's paired z (DeLong et al. 1988, eq. 7).
    """
    return Estimate(a.value - b.value, a.influence - b.influence, np.minimum(a.freedom, b.freedom))


def over_seeds(seeds: list[Estimate], patients: Patients | None = None) -> Difference:
    """The mean over a platform's ``seeds`` (two or more) with the spread of patients and seeds.

    ``patients``: the patients' variance and its degrees of freedom, in place of those of the influence.
    """
    return _difference(mean_value(seeds), mean_influence(seeds), [(seeds, 1 / len(seeds))], patients)


def within_platform(seeds: list[Estimate]) -> Difference:
    """The noise floor: the first half of a platform's ``seeds`` (two or more) against the rest.

    Nothing differs by construction, so all seeds share one variance with n - 1 degrees of freedom.
    """
    half = len(seeds) // 2
    weight = 1 / half + 1 / (len(seeds) - half)
    value, influence = (mean(seeds[:half]) - mean(seeds[half:]) for mean in (mean_value, mean_influence))
    return _difference(value, influence, [(seeds, weight)])


def _difference(
    value: np.ndarray,
    influence: np.ndarray,
    groups: list[tuple[list[Estimate], float]],
    of_patients: Patients | None = None,
) -> Difference:
    """A difference (K,) with its patients' influence; its seed variance is the groups', weighted."""
    counted = np.min([network.freedom for seeds, _ in groups for network in seeds], axis=0)
    plain = (influence**2).sum(axis=0), np.minimum(counted, effective_clusters(influence))
    patients, freedom_of_patients = of_patients or plain
    observed = np.array([weight * seed_variance(seeds) for seeds, weight in groups])
    luck = np.array([weight * patient_sampling_variance(seeds) for seeds, weight in groups]).sum(axis=0)
    beyond = observed.sum(axis=0) - luck
    seeds_count = beyond > 0
    shared = np.maximum(patients - luck, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sum(part**2 / (len(seeds) - 1) for part, (seeds, _) in zip(observed, groups, strict=True))
        mixed = (patients + beyond) ** 2 / (spread + shared**2 / freedom_of_patients)
    fewest = min(len(seeds) - 1 for seeds, _ in groups)  # the smallest group's: a lower bound for a sum
    mixed = np.minimum(np.maximum(mixed, fewest), freedom_of_patients)
    return Difference(
        value=value,
        patient_variance=patients,
        seed_variance=np.where(seeds_count, beyond, np.where(np.isnan(beyond), np.nan, 0.0)),
        freedom=np.where(seeds_count, mixed, freedom_of_patients),
    )


def seed_variance(seeds: list[Estimate]) -> np.ndarray:
    """Observed variance between seeds (K,), n - 1 in the denominator."""
    return np.var([seed.value for seed in seeds], axis=0, ddof=1)


def patient_sampling_variance(seeds: list[Estimate]) -> np.ndarray:
    """The part of ``seed_variance`` (K,) that the choice of patients alone would cause."""
    centre = mean_influence(seeds)
    return sum(((seed.influence - centre) ** 2).sum(axis=0) for seed in seeds) / (len(seeds) - 1)
