"""What could a published "F1 = 0.80" be? One cell's predictions under every definition.

Besides the value at validation thresholds and at 0.5, each definition has its best single threshold (chosen
on validation images), the prevalence at which networks of this skill would reach the target, and the value
without skill: calling every finding in every image, or none in any. The thresholds at each prevalence are the
best of those tried on the scored images, so the answer is the most that this skill allows; but both-class
macro pools the best threshold of each label alone, and the two samples definitions have one for all labels.

``OTHERS`` are scores that are called F1, or reported in its place, without being one of the definitions:

- ``fifteen_micro``, ``fifteen_samples``: "no finding" is a class of its own, called where no score reaches
  its threshold (:func:`cxrbench.statistics.sample.choose_thresholds`);
- ``one_finding_balanced``: one finding against images without any, both weighing the same, the threshold
  chosen on validation images weighed so; the mean over findings;
- ``subset_accuracy``: the share of images all of whose findings are called right.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.statistics.measures import (
    both_classes,
    calls_at,
    f1,
    f1_measures,
    multilabel_f1,
    patient_sums,
    samples_f1,
    totals_of,
)
from cxrbench.statistics.metrics import DEFINITIONS, IMAGE_LEVEL
from cxrbench.statistics.sample import (
    Sample,
    Thresholds,
    best_f1_thresholds,
    choose_thresholds,
    sample_of,
    scope_of,
    validation_of,
)

TARGET = 0.80
OTHERS = ("fifteen_micro", "fifteen_samples", "one_finding_balanced", "subset_accuracy")
_STEPS = 200  # thresholds, and prevalences, that are tried
PREVALENCES = 1 / (1 + np.exp(-np.linspace(-7, 7, _STEPS)))  # even in log-odds, 0.001 to 0.999
COLUMNS = [
    *("definition", "value", "value_at_half", "best_threshold", "value_at_best", "value_no_skill"),
    *("prevalence_of", "prevalence", "prevalence_needed", "value_elsewhere", "no_skill_elsewhere"),
    *("target", "reached", "note"),
]

_Curves = dict[str, np.ndarray]
_Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class _Nearest(NamedTuple):
    """The definition whose mean over seeds is nearest to the target, and that mean without skill."""

    definition: str
    no_skill: float


def nearest_definition(table: pd.DataFrame) -> _Nearest | None:
    """The definition (none of ``OTHERS``) nearest to ``TARGET`` in rows of :func:`f1_search`; None where none
    has a value.

    >>> rows = {"definition": ["f1_macro", "f1_micro"], "value": [0.62, 0.79], "value_no_skill": [0.57, 0.81]}
    >>> nearest_definition(pd.DataFrame(rows))
    _Nearest(definition='f1_micro', no_skill=0.81)
    """
    defined = table[~table["definition"].isin(OTHERS)]
    means = defined.groupby("definition")[["value", "value_no_skill"]].mean().dropna(subset="value")
    if means.empty:
        return None
    definition = str((means["value"] - TARGET).abs().idxmin())
    return _Nearest(definition, float(means.loc[definition, "value_no_skill"]))


def f1_search(predictions: pd.DataFrame, elsewhere: float = np.nan) -> pd.DataFrame:
    """One row per definition of :mod:`cxrbench.statistics.measures` and of ``OTHERS`` (``COLUMNS``); none
    without a finding that has positive and negative images.

    ``reached`` says whether ``value``, ``value_at_half`` or ``value_at_best`` is at least ``TARGET``;
    ``value_no_skill`` is the higher of the values when everything and when nothing is called;
    ``prevalence_needed`` is NaN where no prevalence gives the target and 0 where each does. Without val
    rows ``value`` and the best threshold are NaN. ``OTHERS`` have neither prevalences nor a best threshold.

    ``elsewhere``: the share of images with a finding in another test set. ``value_elsewhere`` is the most
    that networks of this skill reach there, ``no_skill_elsewhere`` the value of one answer for every image;
    both of the definitions over images alone. Raises UserError when there are no test rows.

    >>> from cxrbench.statistics.examples import predictions
    >>> table = f1_search(predictions(patients=150))
    >>> table[["definition", "value", "value_at_half", "prevalence_needed"]][:2].round(2).to_numpy().tolist()
    [['f1_macro', 0.62, 0.62, 0.64], ['f1_micro', 0.62, 0.62, 0.64]]
    """
    sample, val = sample_of(predictions), validation_of(predictions)
    counted = scope_of(sample, None).counted
    if not counted.any():  # no finding has positive and negative images
        return pd.DataFrame(columns=COLUMNS)
    tuned, note = _at_validation_thresholds(sample, val)
    half = _at_shared(sample, np.array([0.5]), counted)
    no_skill = _at_shared(sample, np.array([-np.inf, np.inf]), counted)
    best = _best_shared(sample, val, counted)
    curves = values_by_prevalence(sample, counted)
    rows = []
    for name in DEFINITIONS:
        unit, observed = _prevalence(name, sample, counted)
        threshold, at_best = best.get(name, (np.nan, np.nan))
        values = [tuned.get(name, np.nan), float(half[name][0]), at_best]
        alike = float(np.fmax.reduce(no_skill[name]))
        needed = crossing(PREVALENCES, curves[name], TARGET, observed)
        reached = any(value >= TARGET for value in values)
        about = "" if name in IMAGE_LEVEL and val is not None else note
        figures = (name, *values[:2], threshold, at_best, alike)
        there = _elsewhere(name, curves[name], elsewhere)
        rows.append((*figures, unit, observed, needed, *there, TARGET, reached, about))
    for name, values in _others(sample, val, counted).items():
        reached = any(value >= TARGET for value in values[:2])
        figures = (name, *values[:2], np.nan, np.nan, values[2])
        rows.append((*figures, "", np.nan, np.nan, np.nan, np.nan, TARGET, reached, note))
    return pd.DataFrame(rows, columns=COLUMNS)


def _elsewhere(name: str, curve: np.ndarray, share: float) -> tuple[float, float]:
    """The highest value at a ``share`` of images with a finding, and that of one answer for every image."""
    if name not in IMAGE_LEVEL:
        return np.nan, np.nan
    positive = share if name == "f1_any_finding" else 1 - share
    return float(np.interp(positive, PREVALENCES, curve)), 2 * positive / (1 + positive)


def _others(sample: Sample, val: Sample | None, counted: np.ndarray) -> dict[str, list[float]]:
    """Each of ``OTHERS`` at validation thresholds, at 0.5, and without skill: the better of all and none."""
    tuned = dict.fromkeys(OTHERS, np.nan)
    if val is not None:
        thresholds = choose_thresholds(val)
        even = _balanced_thresholds(val, thresholds)
        tuned = _others_at(sample, counted, thresholds.f1, thresholds.no_finding, even)
    shared = (np.full(len(counted), cut) for cut in (0.5, -np.inf, np.inf))
    half, everything, nothing = (_others_at(sample, counted, cut, cut[0], cut) for cut in shared)
    return {
        name: [tuned[name], half[name], float(np.fmax(everything[name], nothing[name]))] for name in OTHERS
    }


def _others_at(
    sample: Sample, counted: np.ndarray, cuts: np.ndarray, none: float, even: np.ndarray
) -> dict[str, float]:
    """Each of ``OTHERS`` at ``cuts`` (L,), the threshold ``none`` of "no finding", and balanced ones (L,).

    NaN where there is no threshold.
    """
    whole, labels = sample.complete, counted & ~np.isnan(cuts)
    if not (labels.any() and whole.any()):
        return dict.fromkeys(OTHERS, np.nan)
    truth, scores, abnormal = sample.labels[whole][:, labels], sample.scores[whole], sample.abnormal[whole]
    calls = scores[:, labels] >= cuts[labels]
    fifteen, called = np.column_stack([truth, ~abnormal]), np.column_stack([calls, scores.max(axis=1) < none])
    micro = float(f1((fifteen & called).sum(), called.sum(), fifteen.sum()))
    by_image = _mean(samples_f1(fifteen, called)[0])
    rates = np.array([_balanced_f1(sample, k, even[k]) for k in np.flatnonzero(labels)])
    unknown = np.isnan(none)
    return {
        "fifteen_micro": np.nan if unknown else micro,
        "fifteen_samples": np.nan if unknown else by_image,
        "one_finding_balanced": _mean(rates[~np.isnan(rates)]),
        "subset_accuracy": _mean((calls == truth).all(axis=1)),
    }


def _one_against_none(sample: Sample, label: int | np.integer) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores (m,) of the images with a finding and of those without any."""
    clear = sample.complete & ~sample.abnormal
    rows = sample.labels[:, label] | clear
    return sample.labels[rows, label], sample.scores[rows, label]


def _balanced_f1(sample: Sample, label: int | np.integer, cut: float) -> float:
    """F1 of one finding against images without any, as if there were equally many of both."""
    positive, scores = _one_against_none(sample, label)
    if positive.all() or np.isnan(cut):
        return np.nan
    caught, alarms = ((scores[mask] >= cut).mean() for mask in (positive, ~positive))
    return float(2 * caught / (1 + caught + alarms))


def _balanced_thresholds(val: Sample, thresholds: Thresholds) -> np.ndarray:
    """The thresholds (L,) of the best such F1 on validation images, of labels that have any threshold."""
    cuts = np.full(len(thresholds.tuned), np.nan)
    for k in np.flatnonzero(thresholds.tuned):
        positive, scores = _one_against_none(val, k)
        if not positive.all():
            weights = np.where(positive, 1, positive.sum() / (~positive).sum())
            cuts[k] = best_f1_thresholds(positive, scores, weights[None])[0]
    return cuts


def _at_validation_thresholds(sample: Sample, val: Sample | None) -> tuple[dict[str, float], str]:
    if val is None:
        return {}, "no val rows: no thresholds"
    thresholds = choose_thresholds(val)
    scope = scope_of(sample, thresholds)
    measures = f1_measures(totals_of(patient_sums(sample, thresholds, scope.counted)))
    return {name: float(value) for name, value in measures.items()}, scope.mean_note(scope.tuned, scope.tuned)


def _at_shared(sample: Sample, thresholds: np.ndarray, counted: np.ndarray) -> _Curves:
    """Every definition, (T,), at ``thresholds`` (T,), each the same for all labels."""
    truth, scores = sample.labels[:, counted], sample.scores[:, counted]
    labelled = truth | sample.negative[:, counted]
    hits, called = calls_at(truth, scores, thresholds), calls_at(labelled, scores, thresholds)
    values = multilabel_f1(hits, called, np.broadcast_to(truth.sum(axis=0), hits.shape), labelled.sum(axis=0))
    whole = sample.complete
    # with labels in the slower index, sums over them are sums of whole rows of memory
    sets, ranks = np.asfortranarray(truth[whole]), np.asfortranarray(scores[whole])
    per_image = [samples_f1(sets, ranks >= threshold) for threshold in thresholds]
    values["f1_samples"] = np.array([_mean(value) for value, _ in per_image])
    values["f1_samples_empty_is_1"] = np.array([_mean(value + empty) for value, empty in per_image])
    abnormal, highest = sample.abnormal[whole, None], sample.scores[whole].max(axis=1)[:, None]
    hits, flagged = (calls_at(images, highest, thresholds)[:, 0] for images in (abnormal, abnormal | True))
    clear = len(abnormal) - abnormal.sum()
    values["f1_any_finding"] = f1(hits, flagged, abnormal.sum())
    values["f1_no_finding"] = f1(clear - (flagged - hits), len(abnormal) - flagged, clear)
    return values


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _best_shared(sample: Sample, val: Sample | None, counted: np.ndarray) -> dict[str, tuple[float, float]]:
    """Per definition, the threshold that is best on validation images and the value it gives."""
    seen = counted & scope_of(val, None).counted if val is not None else np.zeros_like(counted)
    if val is None or not seen.any():
        return {}
    tried = np.unique(np.quantile(val.scores, np.linspace(0, 1, _STEPS)))
    on_val, on_test = _at_shared(val, tried, seen), _at_shared(sample, tried, counted)
    best = {name: int(np.nanargmax(on_val[name])) for name in DEFINITIONS if np.isfinite(on_val[name]).any()}
    return {name: (float(tried[k]), float(on_test[name][k])) for name, k in best.items()}


def _prevalence(name: str, sample: Sample, counted: np.ndarray) -> tuple[str, float]:
    """The prevalence that matters to a definition, by name, and its value among these images."""
    abnormal = _mean(sample.abnormal[sample.complete])
    if name == "f1_no_finding":
        return "images without a finding", 1 - abnormal
    if name in ("f1_any_finding", "f1_samples", "f1_samples_empty_is_1"):
        return "images with a finding", abnormal
    labelled = sample.counts[:, counted]
    return "each label, on average", float(sample.labels[:, counted].sum() / labelled.sum())


def values_by_prevalence(sample: Sample, counted: np.ndarray) -> _Curves:
    """Each definition at ``PREVALENCES``, at thresholds chosen for it.

    >>> from cxrbench.statistics.examples import scored
    >>> macro = values_by_prevalence(scored()[0], np.array([True, True]))["f1_macro"]
    >>> macro.shape, np.interp([0.1, 0.5], PREVALENCES, macro).round(2).tolist()
    ((200,), [0.39, 0.7])
    """
    whole = sample.complete
    abnormal, highest = sample.abnormal[whole], sample.scores[whole].max(axis=1)
    parts = [_parts(*sample.of_label(k)[:2]) for k in np.flatnonzero(counted)]
    by_f1 = [_pick(part, f1(*part[:3])) for part in parts]
    by_mean = [_pick(part, np.mean(both_classes(*part), axis=0)) for part in parts]
    by_weight = [_pick(part, _weighted(part)) for part in parts]
    macro = np.mean([f1(*part[:3]) for part in by_f1], axis=0)
    return {
        "f1_macro": macro,
        "f1_micro": _highest_pooled(parts),
        "f1_weighted": macro,  # with one prevalence for all labels their weights are equal
        "f1_both_class_weighted": np.mean([_weighted(part) for part in by_weight], axis=0),
        "f1_both_class_macro": np.mean(both_classes(*np.sum(by_mean, axis=0)), axis=0),
        **_samples_by_prevalence(sample, counted),
        "f1_any_finding": f1(*_parts(abnormal, highest)[:3]).max(axis=0),
        "f1_no_finding": f1(*_parts(~abnormal, -highest)[:3]).max(axis=0),
    }


def _parts(positive: np.ndarray, scores: np.ndarray) -> _Parts:
    """Hits, called, positive and total as shares, each (T, P) or (P,), at each prevalence (P).

    The thresholds (T) are spread over both classes, without those that are never better than a neighbour; NaN
    if a class is empty.
    """
    tried = np.unique(np.quantile(scores, np.linspace(0, 1, _STEPS))) if len(scores) else np.array([0.5])
    if positive.any():
        tried = np.unique(np.append(tried, np.quantile(scores[positive], np.linspace(0, 1, _STEPS))))
    counts = [calls_at(images[:, None], scores[:, None], tried) for images in (positive, ~positive)]
    both = np.hstack(counts)  # fewer from row to row
    both = both[np.diff(both[:, 0], append=-1) < 0]  # of equal hits the fewest alarms
    caught, alarms = both[np.diff(both[:, 1], prepend=np.inf) < 0].T[..., None]  # and the reverse
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = caught / positive.sum() * PREVALENCES
        called = hits + alarms / (~positive).sum() * (1 - PREVALENCES)
    return hits, called, PREVALENCES, np.ones_like(PREVALENCES)


def _weighted(part: _Parts) -> np.ndarray:
    present, absent = both_classes(*part)
    return (part[2] * present + (part[3] - part[2]) * absent) / part[3]


def _pick(part: _Parts, value: np.ndarray) -> _Parts:
    """The parts, each (P,), at each prevalence's best threshold."""
    best = np.argmax(value, axis=0), np.arange(value.shape[1])
    hits, called, *others = part
    return hits[best], called[best], *others


def _highest_pooled(parts: list[_Parts]) -> np.ndarray:
    """The highest F1 (P,) of all labels' decisions together, each label at its own threshold.

    Dinkelbach (Management Science 13, 1967): the thresholds that maximise 2 hits - F (called + positive)
    raise F until it is the maximum. No label's choice depends on another's, F being given.
    """
    reached, before = np.zeros(len(PREVALENCES)), np.full(len(PREVALENCES), -1.0)
    while (reached > before).any():
        before = reached
        best = [_pick(part, 2 * part[0] - before * (part[1] + part[2])) for part in parts]
        reached = np.fmax(before, f1(*np.sum(best, axis=0)[:3]))
    return reached


def _samples_by_prevalence(sample: Sample, counted: np.ndarray) -> _Curves:
    """The two samples definitions: a mixture of the means over images with and without a finding."""
    whole = sample.complete
    truth, scores = (np.asfortranarray(part[:, counted][whole]) for part in (sample.labels, sample.scores))
    abnormal, means = sample.abnormal[whole], []  # per threshold, kind of image and definition
    for threshold in np.unique(np.quantile(sample.scores[:, counted], np.linspace(0, 1, _STEPS))):
        value, empty = samples_f1(truth, scores >= threshold)
        pair = np.array([value, value + empty])
        kinds = (abnormal, ~abnormal)
        means.append([pair[:, rows].mean(axis=1) if rows.any() else [np.nan] * 2 for rows in kinds])
    present, absent = np.array(means).swapaxes(0, 1)[..., None]
    mixed = (present * PREVALENCES + absent * (1 - PREVALENCES)).max(axis=0)
    return {"f1_samples": mixed[0], "f1_samples_empty_is_1": mixed[1]}


def crossing(prevalences: np.ndarray, values: np.ndarray, target: float, observed: float) -> float:
    """The place where ``values`` (P,) meet ``target``, nearest in log-odds to ``observed``.

    0 if all of them reach it, NaN if none does.

    >>> round(crossing(np.array([0.1, 0.5, 0.9]), np.array([0.3, 0.7, 0.95]), target=0.5, observed=0.2), 3)
    0.25
    """
    above = values >= target
    steps = np.flatnonzero(above[1:] != above[:-1])
    if not len(steps):
        return 0.0 if above.all() else np.nan
    share = (target - values[steps]) / (values[steps + 1] - values[steps])
    odds = np.log(prevalences / (1 - prevalences))
    if np.isnan(observed):
        return np.nan
    met = odds[steps] + share * (odds[steps + 1] - odds[steps])
    start = np.log(observed / (1 - observed))
    return float(1 / (1 + np.exp(-met[np.argmin(np.abs(met - start))])))
