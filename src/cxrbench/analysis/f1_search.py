"""What could a published "F1 = 0.80" be? One cell's predictions under every definition.

Besides the value at validation thresholds and at 0.5, each definition is given its best single
threshold (chosen on validation images) and the prevalence at which networks of this skill would reach
the target (:mod:`cxrbench.analysis.f1_prevalence`). Labels are given one common prevalence; for the
definitions over images it is the share of images with (or without) a finding that varies. Beside them
stands what needs no network at all: calling every finding in every image, or none in any.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from cxrbench.analysis.f1 import DEFINITIONS, IMAGE_LEVEL, f1, multilabel_f1, samples_f1
from cxrbench.analysis.f1_prevalence import (
    PREVALENCES,
    STEPS,
    Curves,
    calls_at,
    crossing,
    values_by_prevalence,
)
from cxrbench.analysis.sample import Sample, has_split, sample_of
from cxrbench.analysis.scope import scope_of
from cxrbench.analysis.sums import f1_measures, patient_sums, totals_of
from cxrbench.analysis.thresholds import choose_thresholds

TARGET = 0.80
COLUMNS = [
    *("definition", "value", "value_at_half", "best_threshold", "value_at_best", "value_no_skill"),
    "prevalence_of",
    *("prevalence", "prevalence_needed", "target", "reached", "note"),
]


def f1_search(predictions: pd.DataFrame, *, target: float = TARGET, split: str = "test") -> pd.DataFrame:
    """One row per definition of :mod:`cxrbench.analysis.f1` (columns ``COLUMNS``).

    ``reached`` says whether ``value``, ``value_at_half`` or ``value_at_best`` is at least ``target``;
    ``value_no_skill`` is the higher of the values when everything and when nothing is called;
    ``prevalence_needed`` is NaN where no prevalence gives the target and 0 where each does. Without val
    rows ``value`` and the best threshold are NaN. Raises UserError when the split has no rows.
    """
    sample = sample_of(predictions, split)
    val = sample_of(predictions, "val") if has_split(predictions, "val") else None
    counted = scope_of(sample, None).counted
    tuned, note = _at_validation_thresholds(sample, val)
    half = _at_shared(sample, np.array([0.5]), counted)
    no_skill = _at_shared(sample, np.array([-np.inf, np.inf]), counted)
    best = _best_shared(sample, val, counted)
    curves = values_by_prevalence(sample, counted)
    rows = []
    for name in DEFINITIONS:
        of, observed = _prevalence(name, sample, counted)
        threshold, at_best = best.get(name, (np.nan, np.nan))
        values = [tuned.get(name, np.nan), float(half[name][0]), at_best]
        alike = float(np.fmax.reduce(no_skill[name]))
        needed = crossing(PREVALENCES, curves[name], target, observed)
        reached = any(value >= target for value in values)
        about = "" if name in IMAGE_LEVEL and val is not None else note
        found = (name, *values[:2], threshold, at_best, alike)
        rows.append((*found, of, observed, needed, target, reached, about))
    return pd.DataFrame(rows, columns=COLUMNS)


def _at_validation_thresholds(sample: Sample, val: Sample | None) -> tuple[dict[str, float], str]:
    if val is None:
        return {}, "no val rows: no thresholds"
    thresholds = choose_thresholds(val)
    scope = scope_of(sample, thresholds)
    sums = patient_sums(sample, thresholds, scope.counted)
    measures = f1_measures(totals_of(sums))
    return {name: float(value) for name, value in measures.items()}, scope.mean_note(scope.tuned)


def _at_shared(sample: Sample, thresholds: np.ndarray, counted: np.ndarray) -> Curves:
    """Every definition with one threshold for all labels: name -> values (T,) for ``thresholds`` (T,)."""
    truth, scores = sample.labels[:, counted], sample.scores[:, counted]
    total = np.full(len(thresholds), sample.n_images)
    hits, called = calls_at(truth, scores, thresholds), calls_at(np.ones_like(truth), scores, thresholds)
    values = multilabel_f1(hits, called, np.broadcast_to(truth.sum(axis=0), hits.shape), total)
    per_image = [samples_f1(truth, scores >= threshold) for threshold in thresholds]
    values["f1_samples"] = np.array([one.mean() for one, _ in per_image])
    values["f1_samples_empty_is_1"] = np.array([(one + empty).mean() for one, empty in per_image])
    abnormal, highest = sample.abnormal[:, None], sample.scores.max(axis=1)[:, None]
    found, flagged = (calls_at(which, highest, thresholds)[:, 0] for which in (abnormal, abnormal | True))
    clear = sample.n_images - abnormal.sum()
    values["f1_any_finding"] = f1(found, flagged, abnormal.sum())
    values["f1_no_finding"] = f1(clear - (flagged - found), total - flagged, clear)
    return values


def _best_shared(sample: Sample, val: Sample | None, counted: np.ndarray) -> dict[str, tuple[float, float]]:
    """Per definition the threshold that is best on validation images, and the value there on the test's."""
    if val is None:
        return {}
    tried = np.unique(np.quantile(val.scores, np.linspace(0, 1, STEPS)))
    seen = counted & scope_of(val, None).counted
    if not seen.any():
        return {}
    on_val, on_test = _at_shared(val, tried, seen), _at_shared(sample, tried, counted)
    at = {name: int(np.nanargmax(on_val[name])) for name in DEFINITIONS if np.isfinite(on_val[name]).any()}
    return {name: (float(tried[k]), float(on_test[name][k])) for name, k in at.items()}


def _prevalence(name: str, sample: Sample, counted: np.ndarray) -> tuple[str, float]:
    """Which prevalence matters to a definition, and what it is among these images."""
    abnormal = float(sample.abnormal.mean())
    if name == "f1_no_finding":
        return "images without a finding", 1 - abnormal
    if name == "f1_any_finding" or name.startswith("f1_samples"):
        return "images with a finding", abnormal
    return "each label, on average", float(sample.labels[:, counted].mean())
