"""The difference of two platforms' seed means, with its variance from patients and from seeds.

Var(D) = E[Var(D | networks)] + Var(E[D | networks]). The first part is the clustered variance of the paired
influence. The second is the variance between seeds less the part due to the choice of patients, which the
first part has already counted; a negative remainder counts as zero. Student's t with Satterthwaite's degrees
of freedom, n - 1 per group of seeds. A seed starts every platform from the same weights and batches, so
platforms with the same seeds are compared seed by seed.

``spread`` says what varies in a mean over seeds: training seeds, test patients, each alone and both together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

import numpy as np
import pandas as pd
from scipy.special import nctdtrinc, stdtr, stdtrit

from cxrbench.statistics.auroc import Estimate, effective_clusters, mean_influence, mean_value
from cxrbench.statistics.estimates import CellEstimate, RunT, bounds, patients_part

ALPHA, POWER = 0.05, 0.8
MIN_SEEDS = 3  # of each platform: with two, verdicts err too often
FEWEST_PATIENTS = 10  # in all: with fewer, no variance over patients can be trusted
SPREAD_COLUMNS = [
    *("dataset", "architecture", "platform", "label", "metric", "seeds", "n_seeds", "mean", "ci_low"),
    *("ci_high", "too_few", "lowest", "highest", "seed_sd", "seed_sd_beyond_patients", "patient_se"),
    *("patient_se_of_mean", "patient_se_fixed", "patient_se_of_mean_fixed", "n_images", "n_patients", "note"),
]
Patients = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """Differences (K,) with their patient and seed variances (K,) and degrees of freedom (K,).

    >>> difference = Difference(*(np.array([value]) for value in (0.004, 6e-6, 3e-6, 20.0)))
    >>> difference.error.round(4).tolist(), [end.round(4).tolist() for end in difference.interval(0.95)]
    ([0.003], [[-0.0023], [0.0103]])
    >>> [p.round(3).tolist() for p in (difference.p_different(), difference.p_equivalent(np.array([0.01])))]
    [[0.197], [0.03]]
    >>> difference.smallest_margin().round(4).tolist(), difference.noticeable().round(4).tolist()
    ([0.0092], [0.0088])
    """

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

    def ends(self) -> list[np.ndarray]:
        """Lower and upper bounds (K,) of the 90 % interval, then of the 95 % interval."""
        return [*self.interval(1 - 2 * ALPHA), *self.interval(1 - ALPHA)]

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

    def noticeable(self) -> np.ndarray:
        """The true difference (K,) whose 95 % interval would exclude zero in four of five studies."""
        beyond = stdtrit(self.freedom, 1 - ALPHA / 2)
        return np.asarray(nctdtrinc(self.freedom, 1 - POWER, beyond) * self.error)


class Verdict(StrEnum):
    """What the intervals of a difference show."""

    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"
    CANNOT_TELL = "cannot_tell"
    INSIDE = "inside"
    OUTSIDE = "outside"


def verdict_of(ends: Sequence[float], margin: float | None, p: float = 0.0) -> Verdict:
    """The verdict on a difference by the ``ends`` of its 90 % and 95 % intervals, NaN where there is none,
    and its corrected ``p`` of no difference. Without a ``margin``, of a run and its reference.

    Inside the margin at 90 % is two one-sided tests at 5 % (Schuirmann 1987).

    >>> [str(verdict_of([-0.002, 0.004, -0.003, 0.005], margin)) for margin in (0.01, 0.003, None)]
    ['equivalent', 'inconclusive', 'inside']
    """
    low90, high90, low95, high95 = ends
    if not np.isfinite(ends).all():
        return Verdict.CANNOT_TELL
    if margin is None:
        return Verdict.INSIDE if low95 <= 0 <= high95 else Verdict.OUTSIDE
    if -margin < low90 and high90 < margin:
        return Verdict.EQUIVALENT
    return Verdict.DIFFERENT if (low95 > 0 or high95 < 0) and p < ALPHA else Verdict.INCONCLUSIVE


def between_platforms(a: Mapping[int, Estimate], b: Mapping[int, Estimate]) -> Difference:
    """Mean over ``a``'s seeds minus mean over ``b``'s, on the same images: seed -> estimate, at least two.

    Of the same seeds it is the mean of their differences; other seeds count as independent.

    >>> rng = np.random.default_rng(0)
    >>> def network(value):  # of 200 patients, with a standard error of about 0.01
    ...     influence = rng.normal(0, 0.01 / 200**0.5, (200, 1))
    ...     return Estimate(np.array([value]), influence, np.array([199.0]))
    >>> a, b = ({seed: network(v + seed / 1000) for seed in range(3)} for v in (0.72, 0.71))
    >>> difference = between_platforms(a, b)
    >>> low, high = difference.interval(0.95)
    >>> float(difference.value[0].round(4)), bool(low[0] < 0.01 < high[0])
    (0.01, True)
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

    >>> import pandas as pd
    >>> from cxrbench.statistics.auroc import auroc
    >>> from cxrbench.statistics.sample import sample_of
    >>> table = pd.DataFrame({"image": list("abcdef"), "patient": [1, 1, 2, 3, 4, 4], "split": "test"})
    >>> table = table.assign(label_Mass=[1, 0, 1, 0, 0, 0], score_Mass=[0.9, 0.4, 0.6, 0.7, 0.2, 0.1])
    >>> other = table.assign(score_Mass=[0.9, 0.4, 0.8, 0.7, 0.2, 0.1])  # all pairs in order
    >>> between_networks(auroc(sample_of(other)), auroc(sample_of(table))).value.tolist()
    [0.125]
    """
    return Estimate(a.value - b.value, a.influence - b.influence, np.minimum(a.freedom, b.freedom))


def over_seeds(seeds: list[Estimate], patients: Patients | None = None) -> Difference:
    """The mean over a platform's ``seeds`` (two or more) with the spread of patients and seeds.

    ``patients``: the patients' variance and its degrees of freedom, in place of those of the influence.

    >>> runs = [Estimate(np.array([v]), np.zeros((4, 1)), np.array([3.0])) for v in (0.70, 0.71, 0.72)]
    >>> [end.round(3).tolist() for end in over_seeds(runs).interval(0.95)]
    [[0.685], [0.735]]
    """
    return _difference(mean_value(seeds), mean_influence(seeds), [(seeds, 1 / len(seeds))], patients)


def within_platform(seeds: list[Estimate]) -> Difference:
    """The noise floor: the first half of a platform's ``seeds`` (two or more) against the rest.

    Nothing differs by construction, so all seeds share one variance with n - 1 degrees of freedom.

    >>> runs = [Estimate(np.array([v]), np.zeros((4, 1)), np.array([3.0])) for v in (0.70, 0.72, 0.71, 0.71)]
    >>> within_platform(runs).value.round(4).tolist()
    [0.0]
    """
    half = len(seeds) // 2
    weight = 1 / half + 1 / (len(seeds) - half)
    value, influence = (mean(seeds[:half]) - mean(seeds[half:]) for mean in (mean_value, mean_influence))
    return _difference(value, influence, [(seeds, weight)])


def from_reference(run: Estimate, reference: Sequence[Estimate]) -> Difference:
    """One run minus the mean over the ``reference`` runs (two or more), all on the same images.

    If the run is one more of them, the difference has 1 + 1/n times the variance of one run, for n of them.

    >>> values = 0.70, 0.71, 0.72, 0.76
    >>> *runs, new = (Estimate(np.array([v]), np.zeros((4, 1)), np.array([3.0])) for v in values)
    >>> [end.round(3).tolist() for end in from_reference(new, runs).interval(0.95)]
    [[0.0], [0.1]]
    """
    value = run.value - mean_value(reference)
    influence = run.influence - mean_influence(reference)
    return _difference(value, influence, [(list(reference), 1 + 1 / len(reference))])


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
    """Observed variance between seeds (K,), n - 1 in the denominator.

    >>> networks = [Estimate(np.array([v]), np.zeros((4, 1)), np.array([3.0])) for v in (0.70, 0.71, 0.72)]
    >>> seed_variance(networks).round(6).tolist()
    [0.0001]
    """
    return np.var([seed.value for seed in seeds], axis=0, ddof=1)


def patient_sampling_variance(seeds: list[Estimate]) -> np.ndarray:
    """The part of ``seed_variance`` (K,) that the choice of patients alone would cause.

    >>> one, two = (np.array([[i], [-i]]) for i in (0.01, 0.03))
    >>> runs = [Estimate(np.array([0.7]), influence, np.array([1.0])) for influence in (one, two)]
    >>> patient_sampling_variance(runs).round(6).tolist()
    [0.0004]
    """
    centre = mean_influence(seeds)
    return sum(((seed.influence - centre) ** 2).sum(axis=0) for seed in seeds) / (len(seeds) - 1)


def spread(cells: Mapping[RunT, CellEstimate]) -> pd.DataFrame:
    """One row per dataset, architecture, platform, label and metric (columns ``SPREAD_COLUMNS``).

    ``ci_*`` is the 95 % interval of the mean, for this recipe on this platform, over patients and seeds;
    there is none with fewer than ``MIN_SEEDS`` seeds, nor for a finding with ``too_few`` patients. The other
    columns keep the two apart: ``seed_sd`` is the standard deviation over seeds on these test images, and
    ``seed_sd_beyond_patients`` takes off what the choice of patients alone adds to it; ``patient_se`` is one
    network's clustered standard error (root mean square over seeds), ``patient_se_of_mean`` that of the seed
    mean, both blind to seeds; ``..._fixed``: the same with the thresholds of F1 taken as fixed. With one seed
    the seed columns are empty.

    >>> from cxrbench.statistics.examples import cells
    >>> table = spread(cells()).query("label == 'endpoint' and metric == 'auroc'")
    >>> table[["platform", "n_seeds", "mean", "seed_sd", "patient_se"]].round(3).to_numpy().tolist()
    [['one', 3, 0.722, 0.007, 0.025], ['two', 3, 0.721, 0.011, 0.024]]
    """
    rows: list[dict] = []
    for named, group in groupby(
        sorted(cells), key=lambda cell: (cell.dataset, cell.architecture, cell.platform)
    ):
        place = dict(zip(SPREAD_COLUMNS, named, strict=False))
        rows += [place | row for row in _spread_rows({cell.seed: cells[cell] for cell in group})]
    return pd.DataFrame(rows, columns=SPREAD_COLUMNS)


def _spread_rows(seeds: dict[int, CellEstimate]) -> Iterator[dict]:
    first, *others = seeds.values()
    estimates = [network.estimate for network in seeds.values()]
    values = np.array([network.value for network in estimates])
    paired = all(first.same_images(other) for other in others)
    columns = {"mean": mean_value(estimates), "lowest": values.min(axis=0), "highest": values.max(axis=0)}
    tested = first.sample.n_clusters  # rows of influence; those below are of validation patients
    for name, rows in (("", slice(None)), ("_fixed", slice(tested))):
        squares = [(network.influence[rows] ** 2).sum(axis=0) for network in estimates]
        columns[f"patient_se{name}"] = np.sqrt(np.mean(squares, axis=0))
        if paired:
            of_mean = mean_influence(estimates)[rows]
            columns[f"patient_se_of_mean{name}"] = np.sqrt((of_mean**2).sum(axis=0))
    if len(seeds) >= MIN_SEEDS and paired:
        mean = over_seeds(estimates, patients_part(list(seeds.values())))
        columns["ci_low"], columns["ci_high"] = bounds(first.keys, mean.value, mean.error, mean.freedom)
        for end in (columns["ci_low"], columns["ci_high"]):
            end[list(first.alone)] = end[list(first.alone.values())]
    if len(seeds) > 1:
        variance = seed_variance(estimates)
        columns["seed_sd"] = np.sqrt(variance)
        if paired:
            beyond = np.maximum(variance - patient_sampling_variance(estimates), 0)
            columns["seed_sd_beyond_patients"] = np.sqrt(beyond)
    too_few = first.too_few
    note, reasons = _seeds_note(len(seeds), paired), [network.why for network in seeds.values()]
    for k, (label, metric) in enumerate(first.keys):
        why = next((why[k] for why in reasons if why[k]), "")
        yield {
            **{"label": label, "metric": metric, "note": "; ".join(filter(None, [note, why]))},
            "too_few": bool(too_few[k]),
            **{"seeds": ",".join(map(str, seeds)), "n_seeds": len(seeds)},
            **{"n_images": first.sample.n_images, "n_patients": tested},
            **{name: float(column[k]) for name, column in columns.items()},
        }


def _seeds_note(seeds: int, paired: bool) -> str:
    if not paired:
        return "the seeds scored different images: their spreads are not separated"
    if seeds == 1:
        return "one seed: the spread over seeds is unknown"
    return f"{seeds} seeds: too few for an interval of their mean" if seeds < MIN_SEEDS else ""
