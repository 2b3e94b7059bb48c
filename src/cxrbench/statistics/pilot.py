"""What two sides' runs say about the next comparison: its variance by source, its power, and what 80 % takes.

The variance of the difference of means over n runs each is shared + (by_run + run) / n. ``shared`` is of
patients who treat the two sides differently in all runs alike: more runs do not reduce it. ``by_run`` is of
patients with a single run's difference (the spread between runs holds it already: it is taken off there,
once) and ``run`` is what is left of that spread. The first two fall as 1/patients. All are estimated from
differences of runs with one number where the sides are paired, so what such runs have in common is out *as
measured*; *at worst* runs of one number have nothing in common, and the variances of the two sides add up.

Power is the probability of the verdict "equivalent" at a true difference of zero, averaged over the
chi-squared distribution of the observed variance, as in :mod:`cxrbench.statistics.power`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from cxrbench.statistics.auroc import Estimate, effective_clusters, mean_influence
from cxrbench.statistics.components import (
    ALPHA,
    between_networks,
    patient_sampling_variance,
    seed_variance,
)
from cxrbench.statistics.power import Design, chi_squared, fewest

_MOST_RUNS = 1000  # on a side that anybody would train
SOURCES = ("patients", "patients x run", "run")


@dataclass(frozen=True)
class VarianceParts:
    """The variance of one difference by source: ``shared``, and ``by_run`` and ``run`` of one run on each
    side.

    ``of_means`` has the three of the means as compared, which add up to the squared standard error.
    ``paired`` says whether runs were compared one by one, ``runs`` how many a side has at least; ``freedom``
    are the degrees of freedom of the patients' variance; ``worst`` are ``by_run`` and ``run`` at worst.

    >>> variance = VarianceParts((1e-6, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> {row["source"]: row["fraction"] for row in variance.rows()}, variance.at_worst().by_run
    ({'patients': 0.25, 'patients x run': 0.5, 'run': 0.25}, 4e-05)
    """

    of_means: tuple[float, float, float]
    shared: float
    by_run: float
    run: float
    paired: bool
    runs: int
    patients: int
    freedom: float
    worst: tuple[float, float]

    def rows(self) -> list[dict[str, Any]]:
        """Rows of source, variance and fraction of their sum."""
        total = sum(self.of_means)
        return [
            {"source": source, "variance": variance, "fraction": variance / total if total else None}
            for source, variance in zip(SOURCES, self.of_means, strict=True)
        ]

    def at_worst(self) -> VarianceParts:
        """The same where runs of one number have nothing in common; never better than as measured, which the
        few runs of a pilot would sometimes say."""
        by_run, run = self.worst
        return self if by_run + run < self.by_run + self.run else replace(self, by_run=by_run, run=run)


@dataclass(frozen=True)
class Needs:
    """Power to show equal platforms equivalent within ``margin``, with ``runs`` on each side and
    ``patients``;
    runs and patients with which it is 80 %, the other staying as it is, None where no number suffices;
    and where neither does as measured, runs and patients that do together."""

    margin: float
    runs: int
    patients: int
    power_as_measured: float
    power_at_worst: float
    runs_needed_as_measured: int | None
    runs_needed_at_worst: int | None
    patients_needed_as_measured: int | None
    patients_needed_at_worst: int | None
    both_needed: tuple[int, int] | None = None


def variance_parts(
    a: Mapping[int, Estimate], b: Mapping[int, Estimate], column: int, patients: int, paired: bool
) -> VarianceParts:
    """The variance of the difference in a column by source; each side has two runs or more.

    >>> from cxrbench.statistics.auroc import auroc
    >>> from cxrbench.statistics.examples import predictions
    >>> from cxrbench.statistics.sample import sample_of
    >>> a, b = ({run: auroc(sample_of(predictions(side + run))) for run in range(3)} for side in (0, 10))
    >>> variance = variance_parts(a, b, 0, patients=40, paired=True)
    >>> variance.runs, [f"{of_source:.1e}" for of_source in variance.of_means]
    (3, ['0.0e+00', '5.6e-04', '0.0e+00'])
    """
    sides = [[_column(run, column) for run in side.values()] for side in (a, b)]
    influence = mean_influence(sides[0]) - mean_influence(sides[1])
    groups = [[between_networks(*pair) for pair in zip(*sides, strict=True)]] if paired else sides
    sizes = [len(group) for group in groups]
    of_patients = float((influence**2).sum())
    by_run, between_runs = _run_variances(groups)
    by_run_of_means = sum(variance / size for variance, size in zip(by_run, sizes, strict=True))
    observed_of_means = sum(variance / size for variance, size in zip(between_runs, sizes, strict=True))
    worst_by_run, worst_between_runs = map(sum, _run_variances(sides))
    least_freedom = min(float(run.freedom[0]) for side in sides for run in side)
    shared = max(of_patients - by_run_of_means, 0.0)
    return VarianceParts(
        of_means=(shared, of_patients - shared, max(observed_of_means - by_run_of_means, 0.0)),
        shared=shared,
        by_run=sum(by_run),
        run=max(sum(between_runs) - sum(by_run), 0.0),
        paired=paired,
        runs=min(map(len, sides)),
        patients=patients,
        freedom=min(least_freedom, float(effective_clusters(influence)[0])),
        worst=(worst_by_run, max(worst_between_runs - worst_by_run, 0.0)),
    )


def _column(run: Estimate, column: int) -> Estimate:
    kept = slice(column, column + 1)
    return Estimate(run.value[kept], run.influence[:, kept], run.freedom[kept])


def _run_variances(groups: list[list[Estimate]]) -> tuple[list[float], list[float]]:
    """Of each group the variance that a single run's patients make, and the one observed between runs."""
    return (
        [float(patient_sampling_variance(group)[0]) for group in groups],
        [float(seed_variance(group)[0]) for group in groups],
    )


def power(variance: VarianceParts, design: Design, margin: float) -> float:
    """The probability of "equivalent" within ``margin`` at a true difference of zero.

    >>> variance = VarianceParts((0, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> round(power(variance, Design(patients=500, seeds=3), margin=0.01), 2)
    0.52
    """
    scale = variance.patients / design.patients
    shared, by_run = variance.shared * scale, variance.by_run * scale / design.seeds
    total = shared + by_run + variance.run / design.seeds
    if total == 0:
        return 1.0
    run_freedom = (design.seeds - 1) * (1 if variance.paired else 2)
    patient_freedom = max(variance.freedom / scale, 1.0)
    if design.seeds == 2:
        patient_freedom = 1.0  # as in a comparison, whose two values say little of their spread
    observed = (by_run + variance.run / design.seeds) * chi_squared(run_freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (shared + observed) ** 2 / (observed**2 / run_freedom + shared**2 / patient_freedom)
    freedom = np.minimum(np.maximum(freedom, design.seeds - 1), patient_freedom)
    exceeds = observed > by_run  # else patients alone make the interval
    quantile = stdtrit(np.where(exceeds, freedom, patient_freedom), 1 - ALPHA)
    room = margin - quantile * np.sqrt(shared + np.where(exceeds, observed, by_run))
    inside = 2 * ndtr(room / np.sqrt(total)) - 1
    return float(np.maximum(inside, 0).mean())


def needs(
    variance: VarianceParts, margin: float, runs: int | None = None, patients: int | None = None
) -> Needs:
    """The power of a comparison of so many ``runs`` and ``patients``, the pilot's own by default, and
    what 80 % takes.

    >>> variance = VarianceParts((0, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> need = needs(variance, margin=0.01)
    >>> need.runs_needed_as_measured, need.runs_needed_at_worst
    (5, 7)
    """
    design = Design(patients or variance.patients, max(runs or variance.runs, 2))
    columns: dict[str, Any] = {}
    for name, case in (("as_measured", variance), ("at_worst", variance.at_worst())):

        def chance(tried: Design, case: VarianceParts = case) -> float:
            return power(case, tried, margin)

        columns[f"power_{name}"] = chance(design)
        columns[f"runs_needed_{name}"] = fewest("seeds", chance, design)
        columns[f"patients_needed_{name}"] = fewest("patients", chance, design)
    if columns["runs_needed_as_measured"] is columns["patients_needed_as_measured"] is None:
        columns["both_needed"] = _both_needed(variance, margin, design)
    return Needs(margin=margin, runs=design.seeds, patients=design.patients, **columns)


def _both_needed(variance: VarianceParts, margin: float, design: Design) -> tuple[int, int] | None:
    """Runs and patients with 80 % power, the runs doubled until some number of patients is enough."""
    while (design := replace(design, seeds=2 * design.seeds)).seeds <= _MOST_RUNS:
        if patients := fewest("patients", lambda tried: power(variance, tried, margin), design):
            return design.seeds, patients
    return None
