"""All metrics of a predictions table's test rows, with intervals over patients, as a tidy table.

A row is named by (split, label, metric, ci_method). ``label`` is a finding, ``macro`` for the mean over
findings, or ``all`` for the F1 definitions that are no such mean. ``endpoint`` is the mean AUROC over
findings with enough positive test patients. AUROC has two rows, equal but for their interval:
``delong-patient`` is to be reported, ``delong-image`` the usual wrong answer. Other intervals are
``influence-patient``, or ``influence-patient-refit`` where a threshold is chosen anew for other validation
patients. Without a patient column only the ``-image`` methods exist. Intervals are 95 % for this one trained
network. Calibration error has none (docs/statistics.md says why). ``too_few`` patients of a finding have no
interval. Before a cell is scored its controls are: scores whose worth is known.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate, ImageParts, auroc, satterthwaite
from cxrbench.statistics.errors import UserError
from cxrbench.statistics.estimates import (
    CERTAIN,
    FEWEST_POSITIVE,
    CellEstimate,
    areas_with_ends,
    bounds,
    estimate_cell,
    interval,
    patients_part,
)
from cxrbench.statistics.measures import (
    binned_gaps,
    calibration_by_chance,
    calibration_error,
    totals_of,
)
from cxrbench.statistics.metrics import ENDPOINT, IMAGE_LEVEL, MACRO, WITH_THRESHOLDS, in_words
from cxrbench.statistics.sample import MIN_PATIENTS, REFITS, Sample, Scope, sample_of, weight_blocks

COLUMNS = [
    *("split", "label", "metric", "value", "ci_low", "ci_high", "ci_method", "too_few"),
    *("n_images", "n_patients", "n_positive", "n_findings", "note"),
]
REPLICATES, MANY = 2000, 5000  # draws for the calibration error by chance; fewer from so many patients on
_SLACK = 1e-12  # of a control's macro AUROC
SHUFFLED = 0.9999  # level of the control's interval: a hundred sound cells should not fail by chance


class Evaluation(NamedTuple):
    """The tidy table (columns ``COLUMNS``), and notes for the reader."""

    table: pd.DataFrame
    notes: list[str]


def evaluate(
    predictions: pd.DataFrame, *, replicates: int | None = None, least: int = FEWEST_POSITIVE
) -> Evaluation:
    """Every metric of the test rows; thresholds come from the ``val`` rows only.

    ``predictions`` are already checked (:mod:`cxrbench.statistics.predictions`); ``patient`` may be absent.
    ``replicates`` are draws of patients behind ``calibration_error_by_chance``: :data:`REPLICATES`, and from
    :data:`MANY` patients on as many fewer as there are more patients, 200 at least. ``least``: how many
    positive test patients a finding of the main endpoint has at least. Raises UserError when there are no
    test rows.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"image": list("abcdef"), "patient": [1, 1, 2, 3, 4, 4], "split": "test"})
    >>> table = table.assign(label_Mass=[1, 0, 1, 0, 0, 0], score_Mass=[0.9, 0.4, 0.6, 0.7, 0.2, 0.1])
    >>> rows = evaluate(table, replicates=10).table
    >>> rows.query("label == 'Mass' and metric == 'auroc'")[["value", "ci_method"]].to_numpy().tolist()
    [[0.875, 'delong-patient'], [0.875, 'delong-image']]
    """
    return evaluation_of(estimate_cell(predictions, least), replicates)


def evaluation_of(cell: CellEstimate, replicates: int | None = None) -> Evaluation:
    """:func:`evaluate` of what :func:`~cxrbench.statistics.estimates.estimate_cell` gave.

    >>> from cxrbench.statistics.examples import predictions
    >>> again = evaluation_of(estimate_cell(predictions()), 10).table
    >>> again.equals(evaluate(predictions(), replicates=10).table)
    True
    """
    rows = [*_rows(cell), *_calibration_rows(cell, replicates)]
    rows.sort(key=lambda row: row[1] != "auroc")  # the rest stays in order
    named = ["label", "metric", "value", "ci_low", "ci_high", "ci_method", "too_few", "note"]
    table = pd.DataFrame(rows, columns=named)
    return Evaluation(_with_sizes(table, cell), [*_notes(cell.scope), *_about_means(cell)])


def one_per_metric(table: pd.DataFrame) -> pd.DataFrame:
    """One row per metric: AUROC's interval is over patients, where its cell has one.

    >>> from cxrbench.statistics.examples import predictions
    >>> table = evaluate(predictions(), replicates=10).table
    >>> len(table) - len(one_per_metric(table))  # of AUROC, the rows over images
    4
    """
    cells = table["cell"] if "cell" in table else pd.Series("", index=table.index)
    by_patient = (table["ci_method"] == "delong-patient").groupby(cells).transform("any")
    return table[~(by_patient & (table["ci_method"] == "delong-image"))].reset_index(drop=True)


def prevalence(rows: pd.DataFrame) -> pd.Series:
    """The share of positive images of each label in rows of the table, a mean over seeds.

    >>> from cxrbench.statistics.examples import predictions
    >>> rows = evaluate(predictions(), replicates=10).table.query("metric == 'auroc' and label == 'Mass'")
    >>> prevalence(rows).round(3).to_dict()
    {'Mass': 0.275}
    """
    return (rows["n_positive"] / rows["n_images"]).groupby(rows["label"], sort=False).mean()


def _rows(cell: CellEstimate) -> Iterator[tuple]:
    estimate, unit = cell.estimate, cell.scope.unit
    variance, degrees = patients_part([cell])
    low, high = bounds(cell.keys, estimate.value, np.sqrt(variance), degrees)
    for end in (low, high):
        end[list(cell.alone)] = end[list(cell.alone.values())]
    few, error = cell.too_few, estimate.error
    for k, (label, metric) in enumerate(cell.keys):
        tuned = metric in WITH_THRESHOLDS
        if tuned and cell.scope.thresholds is None:
            continue
        method, note = f"influence-{unit}{'-refit' * tuned}", cell.note[k]
        why = f"no interval: it is the same for every {unit}"
        if metric == "auroc":
            method, why = f"delong-{unit}", f"no interval: the scores order every {unit} alike"
        note = _join(note, why) if error[k] == 0 else note
        if few[k] and error[k] > 0:
            note = _join(note, cell.few_note)
        yield label, metric, estimate.value[k], low[k], high[k], method, few[k], note
    if cell.sample.by_patient:
        images, averaged = cell.sample.as_images(), cell.scope.averaged(cell.scope.counted)
        areas = by_image(cell.parts["auroc"])
        both = areas.with_mean(averaged).with_column(areas.mean(averaged & cell.scope.many))
        ends = areas_with_ends(images, both)
        for mean, single in cell.alone.items():
            if mean < len(ends):  # the columns of AUROC are the first
                ends.loc[mean] = ends.loc[single]
        for k, row in enumerate(ends.itertuples()):
            found_by_image = row.value, row.ci_low, row.ci_high, "delong-image", row.too_few
            yield cell.keys[k][0], "auroc", *found_by_image, cell.note[k]


def by_image(parts: ImageParts) -> Estimate:
    """What :func:`~cxrbench.statistics.auroc.auroc` gives of the same images, each its own cluster, from the
    ``parts`` of its estimate by patient: the order of the scores is not needed again.

    >>> from cxrbench.statistics.examples import scored
    >>> sample, _ = scored()
    >>> again, same = by_image(auroc(sample).parts), auroc(sample.as_images())
    >>> (again.influence == same.influence).all() and (again.freedom == same.freedom).all()
    np.True_
    """
    influence, freedom = np.zeros(parts.influence.shape), np.full(len(parts.value), np.nan)
    scored = parts.share > 0
    counts = np.array([(scored & parts.positive).sum(axis=0), (scored & ~parts.positive).sum(axis=0)])
    for k, of_label in enumerate(counts.T):
        if of_label.min() < 2:
            influence[:, k] = np.nan
            continue
        variances = []
        for count, member in zip(of_label, (parts.positive[:, k], ~parts.positive[:, k]), strict=True):
            sums = np.where(scored[:, k] & member, parts.influence[:, k], 0)
            sums *= np.sqrt((count - 1) / count) / (1 - 1 / count)
            influence[:, k] += sums
            variances.append(sums @ sums)
        freedom[k] = satterthwaite(np.array(variances), of_label - 1)
    return Estimate(parts.value, influence, freedom, replace(parts, patients=counts.min(axis=0)))


def _calibration_rows(cell: CellEstimate, replicates: int | None) -> Iterator[tuple]:
    """Yield calibration error, and what chance would make of it: of each finding, and the mean of those with
    both classes."""
    scope, clusters = cell.scope, cell.sample.n_clusters
    counted = cell.sample.by_cluster(cell.sample.counts).astype(np.float32)
    sums = {"total": counted, "gaps": binned_gaps(cell.sample)}
    fewer = max(REPLICATES // 10, REPLICATES * MANY // max(clusters, MANY))
    blocks = weight_blocks(clusters, replicates or fewer, seed=0)
    drawn = [{name: (block @ part).astype(np.float64) for name, part in sums.items()} for block in blocks]
    whole, totals = totals_of(sums), {name: np.vstack([block[name] for block in drawn]) for name in sums}
    averaged = scope.averaged(scope.counted)
    biased = "biased upwards: compare with calibration_error_by_chance"
    reasons = [scope.reason(k) if not counted else "" for k, counted in enumerate(scope.counted)]
    reasons.append(scope.mean_note(averaged, scope.counted))
    for metric, value, note in (
        ("calibration_error", calibration_error(whole), biased),
        ("calibration_error_by_chance", calibration_by_chance(whole, totals), ""),
    ):
        value = np.where(scope.counted, value, np.nan)
        mean = value[averaged].mean() if averaged.any() else np.nan
        for label, figure, why in zip([*scope.names, MACRO], [*value, mean], reasons, strict=True):
            yield label, metric, figure, np.nan, np.nan, "none", False, _join(why, note)


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _with_sizes(table: pd.DataFrame, cell: CellEstimate) -> pd.DataFrame:
    sample = cell.sample
    finding = sample.abnormal[sample.complete]
    positive = dict(zip(sample.names, sample.labels.sum(axis=0).tolist(), strict=True))
    by_metric = {"f1_any_finding": finding.sum(), "f1_no_finding": (~finding).sum()}
    images = dict(zip(sample.names, sample.counts.sum(axis=0), strict=True))
    table["split"] = "test"
    whole = dict.fromkeys(("f1_samples", "f1_samples_empty_is_1", *IMAGE_LEVEL), sample.complete.sum())
    table["n_images"] = table["label"].map(images).fillna(table["metric"].map(whole)).fillna(sample.n_images)
    table["n_patients"] = sample.n_clusters if sample.by_patient else pd.NA
    table["n_positive"] = table["label"].map(positive).fillna(table["metric"].map(by_metric))
    means = {cell.keys[k]: findings.sum() for k, findings in cell.averaged.items()}
    calibration = (table["label"] == MACRO) & table["metric"].str.startswith("calibration_error")
    table["n_findings"] = pd.Series([*map(means.get, zip(table["label"], table["metric"], strict=True))])
    table.loc[calibration, "n_findings"] = cell.scope.averaged(cell.scope.counted).sum()
    counts = ["n_images", "n_patients", "n_positive", "n_findings"]
    return table[COLUMNS].astype(dict.fromkeys(counts, "Int64") | {"value": "float64"})


def _notes(scope: Scope) -> list[str]:
    notes, thresholds = [], scope.thresholds
    if scope.unit == "image":
        notes.append(
            "no patient column: every image counts as its own patient, so intervals ignore clustering "
            "and are too narrow where patients have several images"
        )
    if thresholds is None:
        notes.append("no val rows: metrics that need a threshold (F1, sensitivity) are left out")
    else:
        notes.append(
            "intervals of F1, sensitivity and specificity allow for the choice of thresholds, "
            f"by {REFITS} draws of the validation {scope.unit}s"
        )
        if not np.isfinite(thresholds.any_finding):
            notes.append(
                f"any-finding and no-finding F1 are left out: fewer than {MIN_PATIENTS} "
                f"validation {scope.unit}s with, or without, a finding"
            )
    reasons = ((name, scope.reason(k)) for k, name in enumerate(scope.names))
    if scope.whole is not None:
        notes.append(
            f"some labels are missing: a finding is judged on the images that have its label (n_images), and "
            f"a measure of whole images on the {scope.whole} that have all labels"
        )
    return [*notes, *(f"{name}: {why}" for name, why in reasons if why)]


def _about_means(cell: CellEstimate) -> Iterator[str]:
    """Yield notes on AUROCs without an error, and on what means over findings leave out, each text once."""
    yield from (f"{why}: {CERTAIN}" for why in cell.certain().values())
    same: dict[str, dict[str, None]] = {}  # by note the means that it is about, as a set in order
    for (label, metric), note in zip(cell.keys, cell.note, strict=True):
        left_out = metric in WITH_THRESHOLDS and cell.scope.thresholds is None  # as all of its rows
        if label in (ENDPOINT, MACRO) and note and not left_out:
            same.setdefault(note, {})[in_words(label, metric)] = None
    yield from (f"{', '.join(names)}: {note}" for note, names in same.items())


class Control(NamedTuple):
    """A control: the macro AUROC, and between which bounds it must be.

    >>> Control("constant score", value=0.52, low=0.5, high=0.5).ok
    False
    """

    name: str
    value: float
    low: float
    high: float

    @property
    def ok(self) -> bool:
        """Whether the value is within its bounds."""
        return self.low <= self.value <= self.high


def check_controls(predictions: pd.DataFrame, *, seed: int = 0) -> list[Control]:
    """Macro AUROC of a constant score (0.5), of the label as score (1.0) and of shuffled labels.

    Shuffled labels must give 0.5 within the patient-clustered interval at ``SHUFFLED``. Labels in patient
    order go to patients in random order (fixed by ``seed``), so that they stay clustered.

    >>> from cxrbench.statistics.examples import predictions
    >>> {control.name: control.ok for control in check_controls(predictions())}
    {'constant score': True, 'label as score': True, 'shuffled labels': True}
    """
    sample = sample_of(predictions)
    constant, perfect = np.full_like(sample.scores, 0.5), sample.labels.astype(float)
    shuffled, reach = _macro(_shuffled(sample, seed))
    return [
        Control("constant score", _macro(replace(sample, scores=constant))[0], 0.5 - _SLACK, 0.5 + _SLACK),
        Control("label as score", _macro(replace(sample, scores=perfect))[0], 1 - _SLACK, 1 + _SLACK),
        Control("shuffled labels", shuffled, 0.5 - reach, 0.5 + reach),
    ]


def require_controls(predictions: pd.DataFrame, where: str) -> None:
    """Raise UserError, naming ``where`` the predictions come from, when a control fails.

    >>> from cxrbench.statistics.examples import predictions
    >>> require_controls(predictions().assign(label_Edema=1, label_Mass=1), "a.csv")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cxrbench.statistics.errors.UserError: a.csv: the control 'constant score' gives a macro AUROC of nan, ...
    """
    for control in check_controls(predictions):
        if not control.ok:
            raise UserError(
                f"{where}: the control '{control.name}' gives a macro AUROC of {control.value:.4f}, outside "
                f"{control.low:.4f} to {control.high:.4f}; the metrics or these labels are wrong: "
                "restore the file with git or run the cell again, and do not publish until it passes"
            )


def _shuffled(sample: Sample, seed: int) -> Sample:
    """The sample with labels in patient order assigned to images in random patient order."""
    rng = np.random.default_rng(seed)
    given = np.argsort(sample.clusters, kind="stable")
    taken = np.argsort(rng.permutation(sample.n_clusters)[sample.clusters], kind="stable")
    labels, unknown = np.empty_like(sample.labels), np.empty_like(sample.unknown)
    labels[taken], unknown[taken] = sample.labels[given], sample.unknown[given]
    return replace(sample, labels=labels, unknown=unknown)


def _macro(sample: Sample) -> tuple[float, float]:
    """The macro AUROC and half the width of its interval."""
    estimate = auroc(sample)
    # few patients leave an error too wide to catch anything; without errors at all the value still counts
    estimable = np.isfinite(estimate.error)
    choices = (estimable & (estimate.freedom >= MIN_PATIENTS - 1), estimable, np.isfinite(estimate.value))
    macro = estimate.mean(next((labels for labels in choices if labels.any()), estimable))
    low, high = interval(macro.value, macro.error, macro.degrees, SHUFFLED)
    return float(macro.value[0]), float(high[0] - low[0]) / 2
