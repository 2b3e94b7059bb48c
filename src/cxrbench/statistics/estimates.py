"""Every metric of one cell with the influence of every patient, from which all intervals follow.

AUROC and average precision are linearised (:mod:`cxrbench.statistics.auroc`); of other metrics a patient's
influence is what leaving it out changes (the jackknife). Metrics with a threshold depend on the validation
patients too: below the test patients' rows the influence has a row for each of ``REFITS`` draws of them, with
what the thresholds chosen from it would change. The draws are the same for all networks, so that means over
seeds and differences need no other formula. The interval of a single finding has another variance
(:func:`~cxrbench.statistics.moderated.variance_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import (
    Estimate,
    ImageParts,
    auroc,
    average_precision,
    effective_clusters,
    mean_influence,
)
from cxrbench.statistics.measures import (
    Sums,
    f1_measures,
    patient_sums,
    per_label_measures,
    threshold_measures,
    totals_at,
    totals_of,
    tuned_parts,
)
from cxrbench.statistics.metrics import (
    ENDPOINT,
    IMAGE_LEVEL,
    MACRO,
    METRICS,
    PLAIN,
    POOLED,
    RANKED,
    TUNED,
    Basis,
    findings_among,
)
from cxrbench.statistics.moderated import FEWEST, variance_of
from cxrbench.statistics.sample import (
    REFITS,
    Sample,
    Scope,
    choose_thresholds,
    refitted,
    sample_of,
    scope_of,
    validation_of,
)

FEWEST_POSITIVE = 10  # test patients with a finding of the main endpoint, where nothing else was declared
_BY_FINDING = (*RANKED, *PLAIN, *TUNED)
CERTAIN = "an AUROC without an error has no interval, and means take it as known exactly"
ALL_METRICS = (*_BY_FINDING, *POOLED, *IMAGE_LEVEL)


class Run(Protocol):
    """The name of a trained network; networks that differ in ``seed`` alone repeat one training."""

    @property
    def dataset(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def seed(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


RunT = TypeVar("RunT", bound=Run)


@dataclass(frozen=True)
class CellEstimate:
    """Estimates of one cell; column k of ``estimate`` is ``keys[k]``, a (label, metric).

    The keys are ``RANKED``, ``PLAIN`` and ``TUNED`` of every label and macro (``f1_macro``), then the
    pooled definitions of F1 (label ``all``); those with a threshold are undefined without validation rows.
    ``note`` says, per key, what a mean leaves out and why a value or an interval is missing. ``parts``, by
    metric, are those of single findings. Two cells are paired when ``same_images`` holds.

    >>> from cxrbench.statistics.examples import predictions
    >>> estimate_cell(predictions()).keys[:4]
    (('Edema', 'auroc'), ('Mass', 'auroc'), ('macro', 'auroc'), ('endpoint', 'auroc'))
    """

    sample: Sample
    keys: tuple[tuple[str, str], ...]
    estimate: Estimate
    note: tuple[str, ...]
    scope: Scope
    parts: Mapping[str, ImageParts] = field(default_factory=dict)

    @property
    def too_few(self) -> np.ndarray:
        """Which columns (K,) are of a finding, or a mean over one, with too few patients for an interval."""
        few = np.zeros(len(self.keys), dtype=bool)
        for columns, metric in self._of_findings():
            few[columns] = self.parts[metric].patients < FEWEST
        few[list(self.alone)] = few[list(self.alone.values())]
        return few & np.isfinite(self.estimate.value)

    @property
    def few_note(self) -> str:
        """Why such a column has no interval."""
        return f"no interval: fewer than {FEWEST} {self.scope.unit}s"

    @cached_property
    def averaged(self) -> dict[int, np.ndarray]:
        """The columns of means over findings, each with which findings (L,) it is over."""
        means = (_means(self.scope, name.replace("f1_macro", "f1")).get(label) for label, name in self.keys)
        return {k: findings for k, findings in enumerate(means) if findings is not None}

    @cached_property
    def alone(self) -> dict[int, int]:
        """The columns of means over a single finding, each with that finding's."""
        columns, names = {key: k for k, key in enumerate(self.keys)}, self.sample.names
        over_one = {k: names[int(np.argmax(mean))] for k, mean in self.averaged.items() if mean.sum() == 1}
        single = {k: (name, self.keys[k][1].replace("f1_macro", "f1")) for k, name in over_one.items()}
        return {k: columns[key] for k, key in single.items() if key in columns}

    def certain(self) -> dict[str, str]:
        """By finding inside the mean, why its AUROC has no error: means take it as known exactly."""
        reasons = {}
        for k in np.flatnonzero(self.scope.averaged(self.scope.counted)):
            value = self.estimate.value[self.keys.index(((name := self.sample.names[k]), "auroc"))]
            if np.isfinite(value) and np.ptp(self.sample.scores[self.sample.counts[:, k], k]) == 0:
                reasons[name] = f"all scores of {name} are equal"
            elif value in (0, 1):
                reasons[name] = f"the AUROC of {name} is {value:.0f}"
        return reasons

    def _of_findings(self) -> list[tuple[list[int], str]]:
        """The columns of single findings of each metric that has ``parts``."""
        keys = dict(zip(self.keys, range(len(self.keys)), strict=True))
        names = self.sample.names
        by_metric = (([keys[name, m] for name in names if (name, m) in keys], m) for m in self.parts)
        return [(columns, metric) for columns, metric in by_metric if columns]

    @property
    def why(self) -> tuple[str, ...]:
        """Why a column has no value or no standard error; empty where it has both."""
        estimable = np.isfinite(self.estimate.error)
        return tuple("" if has_error else note for note, has_error in zip(self.note, estimable, strict=True))

    def only(self, *metrics: str) -> CellEstimate:
        """The columns of these ``metrics``."""
        kept = [k for k, (_, metric) in enumerate(self.keys) if metric in metrics]
        whole = self.estimate
        columns = Estimate(whole.value[kept], whole.influence[:, kept], whole.freedom[kept])
        keys, note = tuple(self.keys[k] for k in kept), tuple(self.note[k] for k in kept)
        return replace(self, keys=keys, estimate=columns, note=note)

    def same_images(self, other: CellEstimate) -> bool:
        """Whether both scored the same images of the same patients against the same labels."""
        return all(
            np.array_equal(getattr(self.sample, part), getattr(other.sample, part))
            for part in ("images", "clusters", "labels", "unknown")
        )


def _means(scope: Scope, metric: str) -> dict[str, np.ndarray]:
    """Which findings (L,) each mean of a ``metric`` by finding is over."""
    means = {MACRO: scope.averaged(scope.tuned if metric in TUNED else scope.counted)}
    if METRICS[metric].endpoint:
        means[ENDPOINT] = means[MACRO] & scope.many
    return means


def patients_part(networks: Sequence[CellEstimate]) -> tuple[np.ndarray, np.ndarray]:
    """The variance (K,) of the mean over ``networks`` due to patients, and its degrees of freedom (K,).

    The networks scored the same images; one is its own mean. Single findings have a moderated variance, with
    the part of their thresholds added, and NaN where they have too few patients.

    >>> from cxrbench.statistics.examples import predictions
    >>> variance, degrees = patients_part([estimate_cell(predictions(run)).only("auroc") for run in (0, 1)])
    >>> np.sqrt(variance[:2]).round(3).tolist()
    [0.051, 0.055]
    """
    first, *others = networks
    influence = mean_influence([network.estimate for network in networks])
    variance = (influence**2).sum(axis=0)
    counted = np.min([network.estimate.freedom for network in networks], axis=0)
    freedom = np.minimum(counted, effective_clusters(influence))
    for columns, metric in first._of_findings():
        parts = first.parts[metric].mean([network.parts[metric] for network in others])
        of_test, freedom[columns] = variance_of(first.sample, parts)
        chosen = influence[first.sample.n_clusters :, columns]
        variance[columns] = of_test + (chosen**2).sum(axis=0)
    return variance, freedom


def areas_with_ends(sample: Sample, areas: Estimate) -> pd.DataFrame:
    """A table of value, ci_low, ci_high and too_few of one network's AUROC (K rows).

    ``areas``: of :func:`~cxrbench.statistics.auroc.auroc`, perhaps with means over labels behind.

    >>> from cxrbench.statistics.examples import scored
    >>> areas_with_ends(scored()[0], auroc(scored()[0])).round(3).to_numpy().tolist()
    [[0.674, 0.589, 0.748, False], [0.786, 0.71, 0.847, False]]
    """
    error, degrees, few = areas.error.copy(), areas.degrees, np.zeros(len(areas.value), dtype=bool)
    if areas.parts:
        labels = len(areas.parts.patients)
        variance, degrees[:labels] = variance_of(sample, areas.parts)
        error[:labels] = np.sqrt(variance)
        few[:labels] = (areas.parts.patients < FEWEST) & np.isfinite(areas.parts.value)
    low, high = interval(areas.value, error, degrees)
    return pd.DataFrame({"value": areas.value, "ci_low": low, "ci_high": high, "too_few": few})


def estimate_cell(predictions: pd.DataFrame, least: int = FEWEST_POSITIVE) -> CellEstimate:
    """Every metric of the test rows with its influence; thresholds come from the ``val`` rows.

    ``least``: how many positive test patients a finding of the main endpoint has at least.

    >>> table = pd.DataFrame({"image": list("abcdef"), "patient": [1, 1, 2, 3, 4, 4], "split": "test"})
    >>> table = table.assign(label_Mass=[1, 0, 1, 0, 0, 0], score_Mass=[0.9, 0.4, 0.6, 0.7, 0.2, 0.1])
    >>> cell = estimate_cell(table, least=2)
    >>> float(cell.estimate.value[cell.keys.index(("Mass", "auroc"))])  # one of 2 x 4 pairs is out of order
    0.875
    """
    return estimate(sample_of(predictions), validation_of(predictions), least)


def estimate(
    sample: Sample, val: Sample | None, least: int = FEWEST_POSITIVE, metrics: Collection[str] = ALL_METRICS
) -> CellEstimate:
    """The same of two samples, the second of which gives the thresholds.

    ``metrics``: those that are wanted, of ``ALL_METRICS``; a metric comes with all its labels and means.

    >>> from cxrbench.statistics.examples import predictions
    >>> table = predictions()
    >>> cell = estimate(sample_of(table), validation_of(table), least=5, metrics=["auroc"])
    >>> dict(zip((label for label, _ in cell.keys), cell.estimate.value.round(3).tolist(), strict=True))
    {'Edema': 0.73, 'Mass': 0.767, 'macro': 0.749, 'endpoint': 0.749}
    """
    thresholds = choose_thresholds(val) if val is not None else None
    scope = scope_of(sample, thresholds, least)
    values, without, refits, by_image = {}, {}, {}, {}
    if not set(RANKED).issuperset(metrics):
        sums = patient_sums(sample, thresholds, scope.counted)
        whole = totals_of(sums)
        values = _measures(whole, scope)
        with np.errstate(divide="ignore", invalid="ignore"):  # leaving out the only patient leaves none
            without = _measures({name: whole[name] - part for name, part in sums.items()}, scope)
        refits = _measures(totals_at(sample, refitted(val), scope.counted), scope) if val is not None else {}
        by_image = tuned_parts(sample, thresholds, scope.tuned) if thresholds else {}
    keys, parts, notes = [], [], []
    for metric in (metric for metric in ALL_METRICS if metric in metrics):
        if metric in RANKED:
            part = _ranked(sample, metric)
            by_image |= {metric: part.parts} if part.parts else {}
            part = replace(part, influence=_stacked(part.influence, None))
        else:
            influence = np.sqrt(1 - 1 / sample.n_clusters) * (values[metric] - without[metric])
            part = Estimate(values[metric], _stacked(influence, refits.get(metric)), _freedom(sample, metric))
        labels, part, note = _described(scope, metric, part)
        keys += [(label, "f1_macro" if (label, metric) == (MACRO, "f1") else metric) for label in labels]
        parts.append(part)
        notes += note
    joined = Estimate(
        np.concatenate([part.value for part in parts]),
        np.hstack([part.influence for part in parts]),
        np.concatenate([part.freedom for part in parts]),
    )
    return CellEstimate(sample, tuple(keys), joined, tuple(notes), scope, by_image)


def _ranked(sample: Sample, metric: str) -> Estimate:
    if metric == "average_precision":
        return average_precision(sample)
    return auroc(sample, by_patient=metric != "auroc")


def _measures(sums: Sums, scope: Scope) -> dict[str, np.ndarray]:
    """Metrics of sums (..., k): of labels (..., L), or pooled (..., 1); NaN where there are none."""
    shape = sums["total"].shape[:-1]
    measures = dict.fromkeys(TUNED, np.full((*shape, len(scope.names)), np.nan))
    measures |= dict.fromkeys((*POOLED, *IMAGE_LEVEL), np.full((*shape, 1), np.nan))
    if "squares" in sums:
        plain = per_label_measures(sums)
        measures |= {name: np.where(scope.counted, plain[name], np.nan) for name in PLAIN}
    if "called" in sums:
        for name, value in threshold_measures(sums).items():
            measures[name] = measures[name].copy()
            measures[name][..., scope.tuned] = value
        measures |= {name: value[..., None] for name, value in f1_measures(sums).items()}
        for name in IMAGE_LEVEL:
            if not np.isfinite(getattr(scope.thresholds, name.removeprefix("f1_"))):
                measures[name] = np.full((*shape, 1), np.nan)
    return measures


def _stacked(influence: np.ndarray, refits: np.ndarray | None) -> np.ndarray:
    """The ``influence`` (clusters, K) above the deviations of the ``refits`` (REFITS, K), zero if none."""
    if refits is None:
        return np.vstack([influence, np.zeros((REFITS, influence.shape[1]))])
    return np.vstack([influence, (refits - refits.mean(axis=0)) / np.sqrt(REFITS - 1)])


def _freedom(sample: Sample, metric: str) -> np.ndarray:
    """The degrees of freedom that the numbers of patients allow, (L,) or for pooled metrics (1,)."""
    patients = np.full(sample.labels.shape[1] if metric in (*PLAIN, *TUNED) else 1, sample.n_clusters)
    if metric in TUNED:
        absent = metric == "specificity_at_that_threshold"
        patients = sample.positive_clusters(sample.negative if absent else sample.labels)
    return np.maximum(patients - 1.0, 1.0)


def _described(scope: Scope, metric: str, estimate: Estimate) -> tuple[list[str], Estimate, list[str]]:
    """A metric's labels, its columns (per-label ones with their mean added), and a note for each."""
    if metric in _BY_FINDING:
        included = scope.tuned if metric in TUNED else scope.counted
        labels, usable = list(scope.names), scope.estimable
        notes = ["" if has_value else scope.reason(k) for k, has_value in enumerate(included)]
        single = estimate
        for name, averaged in _means(scope, metric).items():
            mean = single.mean(averaged)
            estimate = estimate.with_column(mean)
            labels.append(name)
            usable = np.append(usable, scope.estimable[averaged].all())
            notes.append(scope.endpoint_note() if name == ENDPOINT else scope.mean_note(averaged, included))
    else:
        labels, by_image = ["all"], metric in IMAGE_LEVEL
        usable = np.array([by_image or bool(scope.estimable[scope.tuned].all())])
        notes = ["" if by_image else scope.mean_note(scope.tuned, scope.tuned)]
    if metric not in (*RANKED, *PLAIN) and not np.isfinite(estimate.value[-1]):
        who = "whole images have no" if metric in IMAGE_LEVEL else "no label has a"
        notes[-1] = f"undefined: {who} threshold from validation {scope.unit}s"
    if scope.whole is not None and metric in ("f1_samples", "f1_samples_empty_is_1", *IMAGE_LEVEL):
        notes[-1] = "; ".join(filter(None, [f"of the {scope.whole} images with all labels", notes[-1]]))
    estimate = replace(estimate, influence=np.where(usable, estimate.influence, np.nan))
    lacking = np.isfinite(estimate.value) & ~np.isfinite(estimate.error)
    why = np.where(usable, f"it rests on one {scope.unit}", f"one class has a single {scope.unit}")
    missing = [f"no interval: {reason}" if lacks else "" for lacks, reason in zip(lacking, why, strict=True)]
    return labels, estimate, ["; ".join(filter(None, pair)) for pair in zip(notes, missing, strict=True)]


def interval(
    value: np.ndarray, error: np.ndarray, freedom: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of AUROCs or other areas on the logit scale with Student's t; NaN for an error of 0 or NaN.

    >>> low, high = interval(np.array([0.8]), np.array([0.05]), np.array([30.0]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.679], [0.883])
    """
    from scipy.special import expit, stdtrit  # slow, and reading metrics.csv does without it

    t = stdtrit(freedom, 0.5 + level / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.log(value / (1 - value))
        reach = t * error / (value * (1 - value))
        low, high = (expit(centre + sign * reach) for sign in (-1, 1))
    estimable = (error > 0) & np.isfinite(reach)
    return np.where(estimable, low, np.nan), np.where(estimable, high, np.nan)


def bounds(
    keys: tuple[tuple[str, str], ...], value: np.ndarray, error: np.ndarray, freedom: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals (K,): of ``RANKED`` metrics and of ``TUNED`` ones of single findings on the logit
    scale, of others cut to their range; NaN where the error is zero or unknown.

    >>> keys = (("Mass", "auroc"), ("macro", "brier"))
    >>> low, high = bounds(keys, np.array([0.8, 0.1]), np.array([0.05, 0.02]), np.array([30.0, 30.0]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.679, 0.059], [0.883, 0.141])
    """
    from scipy.special import stdtrit  # as in interval

    metrics = [METRICS[metric] for _, metric in keys]
    of_findings = {*findings_among(label for label, _ in keys)}
    by_logit = [
        metric.basis is Basis.ORDER or (metric.basis is Basis.CALLS and label in of_findings)
        for (label, _), metric in zip(keys, metrics, strict=True)
    ]
    logit = interval(value, error, freedom)
    reach = np.where(error > 0, stdtrit(freedom, 0.975) * error, np.nan)
    least = np.array([metric.lowest for metric in metrics])
    plain = np.clip(value - reach, least, 1), np.clip(value + reach, least, 1)
    low, high = (np.where(by_logit, *ends) for ends in zip(logit, plain, strict=True))
    return low, high
