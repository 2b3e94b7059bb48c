"""All metrics of one split of one predictions table, with intervals over patients, as a tidy table.

A row is named by (split, label, metric, ci_method). ``label`` is a finding, ``macro`` for the mean over
findings (``f1_macro`` too), or ``all`` for the F1 definitions that are no such mean. AUROC has two rows,
equal but for their interval: ``delong-patient`` is the one to report, ``delong-image`` the usual wrong
answer; :func:`headline` keeps one row per metric. Other intervals are ``influence-patient``, or
``influence-patient-refit`` where a threshold is chosen anew for other validation patients
(:mod:`cxrbench.analysis.estimates`). Without a patient column only the ``-image`` methods exist. Intervals
are 95 % for this one trained network; the spread over training seeds is in :mod:`cxrbench.analysis.spread`.

Calibration error is noise made positive: each resample of calibrated scores lies above zero, so that no
bootstrap interval can hold the truth. It has none, and stands beside ``calibration_error_by_chance``, what
perfectly calibrated scores would show with these patients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import auroc, interval
from cxrbench.analysis.bootstrap import weight_blocks
from cxrbench.analysis.estimates import WITH_THRESHOLDS, CellEstimate, bounds, estimate_cell
from cxrbench.analysis.sample import Sample
from cxrbench.analysis.scope import Scope
from cxrbench.analysis.sums import calibration_by_chance, patient_sums, per_label_measures, totals_of
from cxrbench.analysis.thresholds import MIN_PATIENTS, REFITS, Thresholds

COLUMNS = [
    *("split", "label", "metric", "value", "ci_low", "ci_high", "ci_method"),
    *("n_images", "n_patients", "n_positive", "note"),
]


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
    :mod:`cxrbench.analysis.predictions`). ``replicates`` and ``seed`` are of the draws of patients behind
    ``calibration_error_by_chance``. Raises UserError when the split has no rows.
    """
    cell = estimate_cell(predictions, split)
    rows = [*_rows(cell), *_calibration_rows(cell, replicates, seed)]
    rows.sort(key=lambda row: row[1] != "auroc")  # the rest stays in order
    table = pd.DataFrame(rows, columns=["label", "metric", "value", "ci_low", "ci_high", "ci_method", "note"])
    return Evaluation(_with_sizes(table, cell.sample, split), _notes(cell.scope), cell.scope.thresholds)


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """One row per metric: where AUROC has an interval over patients, without its image-level one. In a
    table of several cells (column ``cell``) each cell is judged alone."""
    cells = table["cell"] if "cell" in table else pd.Series("", index=table.index)
    by_patient = (table["ci_method"] == "delong-patient").groupby(cells).transform("any")
    return table[~(by_patient & (table["ci_method"] == "delong-image"))].reset_index(drop=True)


def _rows(cell: CellEstimate) -> Iterator[tuple]:
    one, unit = cell.estimate, cell.scope.unit
    low, high = bounds(cell.keys, one.value, one.error, one.degrees)
    for k, (label, metric) in enumerate(cell.keys):
        tuned = metric in WITH_THRESHOLDS
        if tuned and cell.scope.thresholds is None:
            continue
        method = f"delong-{unit}" if metric == "auroc" else f"influence-{unit}{'-refit' * tuned}"
        note = cell.note[k]
        if one.error[k] == 0:
            alike = "the scores order" if metric == "auroc" else "it is the same for"
            note = _join(note, f"no interval: {alike} every {unit}{' alike' * (metric == 'auroc')}")
        yield label, metric, one.value[k], low[k], high[k], method, note
    if cell.sample.by_patient:
        both = auroc(cell.sample.as_images()).with_mean(cell.scope.averaged(cell.scope.counted))
        low, high = interval(both.value, both.error, both.degrees)
        for k, (label, _) in enumerate(cell.keys[: len(both.value)]):
            yield label, "auroc", both.value[k], low[k], high[k], "delong-image", cell.note[k]


def _calibration_rows(cell: CellEstimate, replicates: int, seed: int) -> Iterator[tuple]:
    """Calibration error, and what chance would make of it: of each finding, and the mean of those with both
    classes."""
    sample, scope = cell.sample, cell.scope
    sums = patient_sums(sample, None, scope.counted)
    blocks = weight_blocks(sample.n_clusters, replicates, seed)
    drawn = [{name: (block @ part).astype(np.float64) for name, part in sums.items()} for block in blocks]
    whole, totals = totals_of(sums), {name: np.vstack([one[name] for one in drawn]) for name in sums}
    averaged = scope.averaged(scope.counted)
    values = {
        "calibration_error": per_label_measures(whole)["calibration_error"],
        "calibration_error_by_chance": calibration_by_chance(whole, totals),
    }
    notes = dict(zip(cell.keys, cell.note, strict=True))
    beside = {"calibration_error": "biased upwards: compare with calibration_error_by_chance"}
    for metric, value in values.items():
        value = np.where(scope.counted, value, np.nan)
        mean = value[averaged].mean() if averaged.any() else np.nan
        for label, each in zip([*scope.names, "macro"], [*value, mean], strict=True):
            note = notes[label, "auroc"].partition("no interval")[0].removesuffix("; ")
            yield label, metric, each, np.nan, np.nan, "none", _join(note, beside.get(metric, ""))


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
    else:
        notes.append(
            "intervals of F1, sensitivity and specificity hold for thresholds chosen anew: they include "
            f"{REFITS} other draws of the validation {scope.unit}s"
        )
    if scope.thresholds is not None and not np.isfinite(scope.thresholds.any_finding):
        notes.append(
            f"any-finding and no-finding F1 are left out: fewer than {MIN_PATIENTS} "
            f"validation {scope.unit}s with, or without, a finding"
        )
    notes += [f"{scope.names[k]}: {why}" for k in range(len(scope.names)) if (why := scope.reason(k))]
    return notes
