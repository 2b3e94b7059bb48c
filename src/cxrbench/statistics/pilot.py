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

SOURCES = ("patients", "patients x run", "run")


@dataclass(frozen=True)
class Parts:
    """The variance of one difference by source: ``shared``, and ``by_run`` and ``run`` of one run on each
    side.

    ``whole`` has the three of the means as they were compared, which add up to the squared standard error.
    ``paired`` says whether runs were compared one by one, ``runs`` how many a side has at least; ``freedom``
    are the degrees of freedom of the patients' variance.

    >>> parts = Parts((1e-6, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> {row["source"]: row["fraction"] for row in parts.rows()}, parts.at_worst().by_run
    ({'patients': 0.25, 'patients x run': 0.5, 'run': 0.25}, 4e-05)
    """

    whole: tuple[float, float, float]
    shared: float
    by_run: float
    run: float
    paired: bool
    runs: int
    patients: int
    freedom: float
    worst: tuple[float, float]

    def rows(self) -> list[dict[str, Any]]:
        """Rows of source, variance and fraction of the whole."""
        total = sum(self.whole)
        shares = [part / total if total else None for part in self.whole]
        return [
            {"source": source, "variance": part, "fraction": share}
            for source, part, share in zip(SOURCES, self.whole, shares, strict=True)
        ]

    def at_worst(self) -> Parts:
        """The same where runs of one number have nothing in common; never better than as measured, which the
        few runs of a pilot would sometimes say."""
        by_run, run = self.worst
        return self if by_run + run < self.by_run + self.run else replace(self, by_run=by_run, run=run)


@dataclass(frozen=True)
class Needs:
    """Power to show equal platforms equivalent within ``margin``, with ``runs`` on each side and
    ``patients``;
    runs and patients with which it is 80 %, the other staying as it is, None where no number suffices."""

    margin: float
    runs: int
    patients: int
    power_as_measured: float
    power_at_worst: float
    runs_needed_as_measured: int | None
    runs_needed_at_worst: int | None
    patients_needed_as_measured: int | None
    patients_needed_at_worst: int | None


def parts_of(
    a: Mapping[int, Estimate], b: Mapping[int, Estimate], k: int, patients: int, paired: bool
) -> Parts:
    """The variance of the difference in column ``k`` by source; each side has two runs or more.

    >>> from cxrbench.statistics.auroc import auroc
    >>> from cxrbench.statistics.examples import predictions
    >>> from cxrbench.statistics.sample import sample_of
    >>> a, b = ({s: auroc(sample_of(predictions(10 * k + s))) for s in range(3)} for k in (0, 1))
    >>> parts = parts_of(a, b, 0, patients=40, paired=True)
    >>> parts.runs, [f"{part:.1e}" for part in parts.whole]
    (3, ['0.0e+00', '5.6e-04', '0.0e+00'])
    """
    sides = [[_column(run, k) for run in side.values()] for side in (a, b)]
    influence = mean_influence(sides[0]) - mean_influence(sides[1])
    groups = [[between_networks(*pair) for pair in zip(*sides, strict=True)]] if paired else sides
    of_patients = float((influence**2).sum())
    by_run, observed = (
        [float(part(group)[0]) for group in groups] for part in (patient_sampling_variance, seed_variance)
    )
    luck = sum(part / len(group) for part, group in zip(by_run, groups, strict=True))
    seen = sum(part / len(group) for part, group in zip(observed, groups, strict=True))
    apart = [[float(part(side)[0]) for side in sides] for part in (patient_sampling_variance, seed_variance)]
    counted = min(float(run.freedom[0]) for side in sides for run in side)
    shared = max(of_patients - luck, 0.0)
    return Parts(
        whole=(shared, of_patients - shared, max(seen - luck, 0.0)),
        shared=shared,
        by_run=sum(by_run),
        run=max(sum(observed) - sum(by_run), 0.0),
        paired=paired,
        runs=min(map(len, sides)),
        patients=patients,
        freedom=min(counted, float(effective_clusters(influence)[0])),
        worst=(sum(apart[0]), max(sum(apart[1]) - sum(apart[0]), 0.0)),
    )


def _column(run: Estimate, k: int) -> Estimate:
    return Estimate(run.value[k : k + 1], run.influence[:, k : k + 1], run.freedom[k : k + 1])


def power(parts: Parts, design: Design, margin: float) -> float:
    """The probability of "equivalent" within ``margin`` at a true difference of zero.

    >>> parts = Parts((0, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> round(power(parts, Design(patients=500, seeds=3), margin=0.01), 2)
    0.52
    """
    scale = parts.patients / design.patients
    shared, luck = parts.shared * scale, parts.by_run * scale / design.seeds
    total = shared + luck + parts.run / design.seeds
    if total == 0:
        return 1.0
    freedom = (design.seeds - 1) * (1 if parts.paired else 2)
    of_patients = max(parts.freedom / scale, 1.0)
    seen = (luck + parts.run / design.seeds) * chi_squared(freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = (shared + seen) ** 2 / (seen**2 / freedom + shared**2 / of_patients)
    mixed = np.minimum(np.maximum(mixed, design.seeds - 1), of_patients)
    beyond = seen > luck
    reach = stdtrit(np.where(beyond, mixed, of_patients), 1 - ALPHA)
    room = margin - reach * np.sqrt(shared + np.where(beyond, seen, luck))
    inside = 2 * ndtr(room / np.sqrt(total)) - 1
    return float(np.maximum(inside, 0).mean())


def needs(parts: Parts, margin: float, runs: int | None = None, patients: int | None = None) -> Needs:
    """The power of a comparison of so many ``runs`` and ``patients``, the pilot's own by default, and
    what 80 % takes.

    >>> parts = Parts((0, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    >>> found = needs(parts, margin=0.01)
    >>> found.runs_needed_as_measured, found.runs_needed_at_worst
    (5, 7)
    """
    design = Design(patients or parts.patients, max(runs or parts.runs, 2))
    found: dict[str, Any] = {}
    for name, of in (("as_measured", parts), ("at_worst", parts.at_worst())):

        def chance(other: Design, of: Parts = of) -> float:
            return power(of, other, margin)

        found[f"power_{name}"] = chance(design)
        found[f"runs_needed_{name}"] = fewest("seeds", chance, design)
        found[f"patients_needed_{name}"] = fewest("patients", chance, design)
    return Needs(margin=margin, runs=design.seeds, patients=design.patients, **found)
