"""All metrics of one split of one predictions table, with intervals over patients, as a tidy table.

A row is named by (split, label, metric, ci_method). ``label`` is a finding, ``macro`` for the mean over
findings (``f1_macro`` too), or ``all`` for the F1 definitions that are no such mean. AUROC has three
rows, equal but for their interval: ``delong-patient`` is the one to report, ``bootstrap-patient`` its
check, ``delong-image`` the usual wrong answer; :func:`headline` keeps one row per metric. Without a
patient column only the ``-image`` methods exist. Intervals are 95 % over the test patients, for this
one trained network; the spread over training seeds is in :mod:`cxrbench.metrics.spread`.

Bootstrap intervals are percentiles with two exceptions, both found by simulation (docs/statistics.md).
Replicates of average precision are biased upwards, and in a mean over labels the bias outgrows the
spread: percentiles covered 58 to 75 %, the basic interval (``bootstrap-patient-basic``) 92 to 94 %.
Calibration error is noise made positive: no bootstrap interval covers it, so it has none, and stands beside
``calibration_error_by_chance``, what perfectly calibrated scores would show with these patients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cxrbench.metrics.auroc import Estimate, auroc, interval
from cxrbench.metrics.f1 import IMAGE_LEVEL
from cxrbench.metrics.sample import Sample, has_split, sample_of
from cxrbench.metrics.scope import Scope, scope_of
from cxrbench.metrics.sums import (
    Sums,
    calibration_by_chance,
    f1_measures,
    patient_sums,
    per_label_measures,
    threshold_measures,
    totals_of,
)
from cxrbench.metrics.thresholds import MIN_PATIENTS, Thresholds, choose_thresholds

COLUMNS = [
    *("split", "label", "metric", "value", "ci_low", "ci_high", "ci_method"),
    *("n_images", "n_patients", "n_positive", "note"),
]
TOLERATED = 0.05  # share of undefined replicates from which on a note says so


@dataclass(frozen=True)
class Evaluation:
    """The tidy table (columns ``COLUMNS``), notes for the reader, and the thresholds used, if any."""

    table: pd.DataFrame
    notes: list[str]
    thresholds: Thresholds | None


def evaluate(
    predictions: pd.DataFrame, *, split: str = "test", replicates: int = 2000, seed: int = 0
) -> Evaluation:
    """Every metric of ``split``; thresholds come from the ``val`` rows only.

    ``predictions`` as in the design, section 4 (``patient`` may be absent), already checked (see
    :mod:`cxrbench.metrics.predictions`). ``seed`` fixes the bootstrap. Raises UserError when the split
    has no rows.
    """
    from cxrbench.metrics.bootstrap import bootstrap, ranked_values

    sample = sample_of(predictions, split)
    # thresholds chosen on the images that are then scored would flatter: none for split="val"
    usable = split != "val" and has_split(predictions, "val")
    thresholds = choose_thresholds(sample_of(predictions, "val")) if usable else None
    scope = scope_of(sample, thresholds)
    sums = patient_sums(sample, thresholds, scope.counted)
    whole = totals_of(sums)
    areas = auroc(sample)
    point = _measures(np.array([areas.value, ranked_values(sample)[1]]), whole, scope)
    ranked, totals = bootstrap(sample, sums, replicates, seed)
    chance = np.where(scope.counted, calibration_by_chance(whole, totals), np.nan)
    rows = [
        *_delong_rows(sample, scope, areas),
        *_bootstrap_rows(scope, point, _measures(ranked, totals, scope)),
        *_chance_rows(scope, chance),
    ]
    table = pd.DataFrame(rows, columns=["label", "metric", "value", "ci_low", "ci_high", "ci_method", "note"])
    return Evaluation(_with_sizes(table, sample, split), _notes(scope), thresholds)


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """One row per metric: AUROC without its bootstrap check and, where there is one over patients, without
    its image-level interval. In a table of several cells (column ``cell``) each cell is judged alone."""
    spare = table["ci_method"].str.startswith("bootstrap")
    by_patient = table["ci_method"] == "delong-patient"
    cells = table["cell"] if "cell" in table else pd.Series("", index=table.index)
    by_patient = by_patient.groupby(cells).transform("any")
    spare |= by_patient & (table["ci_method"] == "delong-image")
    return table[~(spare & (table["metric"] == "auroc"))].reset_index(drop=True)


@dataclass(frozen=True)
class _Measures:
    """Values (..., L) of the metrics with and without thresholds, and pooled ones (...)."""

    counted: Sums
    tuned: Sums
    pooled: Sums


def _measures(ranked: np.ndarray, sums: Sums, scope: Scope) -> _Measures:
    """All metrics from AUROC and average precision (2, ..., L) and sums (..., k)."""
    counted = {"auroc": ranked[0], "average_precision": ranked[1], **per_label_measures(sums)}
    counted = {name: np.where(scope.counted, value, np.nan) for name, value in counted.items()}
    if scope.thresholds is None:
        return _Measures(counted, {}, {})
    tuned = {}
    for name, value in threshold_measures(sums).items():
        tuned[name] = np.full((*value.shape[:-1], len(scope.tuned)), np.nan)
        tuned[name][..., scope.tuned] = value
    pooled = f1_measures(sums)
    pooled.pop("f1_macro", None)  # it is the macro row of f1
    if not np.isfinite(scope.thresholds.any_finding):
        pooled = {name: value for name, value in pooled.items() if name not in IMAGE_LEVEL}
    return _Measures(counted, tuned, pooled)


def _delong_rows(sample: Sample, scope: Scope, areas: Estimate) -> Iterator[tuple]:
    estimates = {f"delong-{scope.unit}": areas}
    if sample.by_patient:
        estimates["delong-image"] = auroc(sample.as_images())
    for method, each in estimates.items():
        both = each.with_mean(scope.averaged(scope.counted))
        low, high = interval(both.value, both.error, both.degrees)
        for k, label in enumerate([*scope.names, "macro"]):
            note = _note(scope, k, scope.counted)
            if np.isfinite(both.value[k]) and not np.isfinite(low[k]):
                note = _join(note, _no_interval(scope, k, scope.counted))
            yield label, "auroc", both.value[k], low[k], high[k], method, note


def _bootstrap_rows(scope: Scope, point: _Measures, drawn: _Measures) -> Iterator[tuple]:
    for included, values, replicates in (
        (scope.counted, point.counted, drawn.counted),
        (scope.tuned, point.tuned, drawn.tuned),
    ):
        for metric in values:
            averaged = scope.averaged(included)
            value, spread = _with_mean(values[metric], averaged), _with_mean(replicates[metric], averaged)
            for k, label in enumerate([*scope.names, "macro"]):
                name = "f1_macro" if (metric, label) == ("f1", "macro") else metric
                base = _note(scope, k, included)
                usable = _estimable(scope, k, included)
                yield (
                    label,
                    name,
                    value[k],
                    *_ends(scope, (label, name), spread[:, k], value[k], usable, base),
                )
    for metric, total in point.pooled.items():
        single = float(total)
        note = "" if metric in IMAGE_LEVEL else scope.mean_note(scope.tuned)
        usable = metric in IMAGE_LEVEL or bool(scope.estimable[scope.tuned].all())
        yield (
            "all",
            metric,
            single,
            *_ends(scope, ("all", metric), drawn.pooled[metric], single, usable, note),
        )


def _chance_rows(scope: Scope, chance: np.ndarray) -> Iterator[tuple]:
    for k, value in enumerate(_with_mean(chance, scope.averaged(scope.counted))):
        label = [*scope.names, "macro"][k]
        note = _note(scope, k, scope.counted)
        yield label, "calibration_error_by_chance", value, np.nan, np.nan, "none", note


def _with_mean(values: np.ndarray, included: np.ndarray) -> np.ndarray:
    """``values`` (..., L) with their mean over the ``included`` labels as one more column."""
    nothing = np.full(values.shape[:-1], np.nan)
    mean = values[..., included].mean(axis=-1) if included.any() else nothing
    return np.concatenate([values, mean[..., None]], axis=-1)


def _note(scope: Scope, column: int, included: np.ndarray) -> str:
    """The note of a label's value, or of the mean, which is the column after the last label."""
    if column == len(scope.names):
        return scope.mean_note(scope.averaged(included))
    return "" if included[column] else scope.reason(column)


def _no_interval(scope: Scope, column: int, included: np.ndarray) -> str:
    """Why a defined value has no analytic interval."""
    if _estimable(scope, column, included):
        return f"no interval: the scores order every {scope.unit} alike"
    return f"no interval: one class has a single {scope.unit}"


def _estimable(scope: Scope, column: int, included: np.ndarray) -> bool:
    if column == len(scope.names):
        return bool(scope.estimable[scope.averaged(included)].all())
    return bool(scope.estimable[column])


def _ends(
    scope: Scope, key: tuple[str, str], replicates: np.ndarray, value: float, usable: bool, note: str
) -> tuple[float, float, str, str]:
    """ci_low, ci_high, ci_method and note of one bootstrapped value, named by (label, metric)."""
    from cxrbench.metrics.bootstrap import basic_interval, percentile_interval

    method = f"bootstrap-{scope.unit}"
    if key[1] == "calibration_error":
        return np.nan, np.nan, "none", _join(note, "biased upwards: compare with calibration_error_by_chance")
    if not np.isfinite(value):
        return np.nan, np.nan, method, note
    if not usable:
        return np.nan, np.nan, method, _join(note, f"no interval: one class has a single {scope.unit}")
    low, high, undefined = percentile_interval(replicates)
    if key == ("macro", "average_precision"):
        low, high = basic_interval(value, low, high)
        method += "-basic"
    if undefined > TOLERATED:
        note = _join(note, f"undefined in {undefined:.0%} of the replicates, which are left out")
    return low, high, method, note


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _with_sizes(table: pd.DataFrame, sample: Sample, split: str) -> pd.DataFrame:
    finding = sample.abnormal
    positive = dict(zip(sample.names, sample.labels.sum(axis=0).tolist(), strict=True))
    by_metric = {"f1_any_finding": finding.sum(), "f1_no_finding": (~finding).sum()}
    table["split"] = split
    table["n_images"] = sample.n_images
    table["n_patients"] = sample.n_clusters if sample.by_patient else pd.NA
    table["n_positive"] = table["label"].map(positive).fillna(table["metric"].map(by_metric))
    counts = ["n_images", "n_patients", "n_positive"]
    return table[COLUMNS].astype(dict.fromkeys(counts, "Int64") | {"value": "float64"})


def _notes(scope: Scope) -> list[str]:
    notes = []
    if scope.unit == "image":
        notes.append(
            "no patient column: every image counts as its own patient, so intervals ignore clustering "
            "and are too narrow where patients have several images"
        )
    if scope.thresholds is None:
        notes.append("no val rows: metrics that need a threshold (F1, sensitivity) are left out")
    elif not np.isfinite(scope.thresholds.any_finding):
        notes.append(
            f"any-finding and no-finding F1 are left out: fewer than {MIN_PATIENTS} "
            f"validation {scope.unit}s with, or without, a finding"
        )
    notes += [f"{scope.names[k]}: {why}" for k in range(len(scope.names)) if (why := scope.reason(k))]
    return notes
