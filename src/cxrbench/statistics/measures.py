"""Metrics that are functions of sums over patients: Brier, calibration error, sensitivity, every F1.

Sums are taken once per patient; a metric, and its values without each patient or at other thresholds, then
come from the same few lines, applied to other totals. Arrays have any leading shape, labels last. F1 is

- over labels: ``f1_macro`` the mean, ``f1_micro`` of all decisions, ``f1_weighted`` by labels' positives;
- over images: ``f1_samples`` the mean of each image's set, 0 (as in scikit-learn) or in ``..._empty_is_1`` 1
  for an image without called or true finding;
- of both classes, present and absent: ``f1_both_class_weighted`` by their sizes, then the mean over labels,
  ``f1_both_class_macro`` the mean of the two over all decisions;
- per image, an abnormal film against a clear one: ``f1_any_finding``, ``f1_no_finding``.

A label that is not known counts in no sum; image-level measures use only images with all labels.
"""

import numpy as np

from cxrbench.statistics.auroc import ImageParts, empty_parts
from cxrbench.statistics.sample import Sample, Thresholds, in_threads

BINS = 15  # of the calibration error, with equally many images each (Nixon et al. 2019, "adaptive")

_OF_LABELS = ("f1", "specificity")  # thresholds

Sums = dict[str, np.ndarray]


def f1(hits: np.ndarray, called: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """2 TP / (called + positive); NaN where nothing is positive.

    >>> float(f1(np.array(3), np.array(4), np.array(5)).round(4))
    0.6667
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(positive > 0, 2 * hits / (called + positive), np.nan)


def both_classes(
    hits: np.ndarray, called: np.ndarray, positive: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F1 of the positive and of the negative class out of ``total`` decisions.

    >>> [float(part.round(4)) for part in both_classes(*np.array([3, 4, 5, 10]))]
    [0.6667, 0.7273]
    """
    true_negatives = total - called - positive + hits
    return f1(hits, called, positive), f1(true_negatives, total - called, total - positive)


def multilabel_f1(
    hits: np.ndarray, called: np.ndarray, positive: np.ndarray, total: np.ndarray
) -> dict[str, np.ndarray]:
    """The definitions that need only counts per label (..., L); ``total`` (..., L or 1) decisions.

    >>> counts = {"hits": [3, 1], "called": [4, 2], "positive": [5, 2], "total": [10, 10]}
    >>> found = multilabel_f1(**{name: np.array(count) for name, count in counts.items()})
    >>> {name: float(found[name].round(4)) for name in ("f1_macro", "f1_micro")}
    {'f1_macro': 0.5833, 'f1_micro': 0.6154}
    """
    per_label, absent = both_classes(hits, called, positive, total)
    weighted = (positive * per_label + (total - positive) * absent) / total
    all_hits, all_called, all_positive = (part.sum(axis=-1) for part in (hits, called, positive))
    decisions = np.broadcast_to(total, hits.shape).sum(axis=-1)
    return {
        "f1_macro": per_label.mean(axis=-1),
        "f1_micro": f1(all_hits, all_called, all_positive),
        "f1_weighted": np.nansum(positive * per_label, axis=-1) / all_positive,
        "f1_both_class_weighted": weighted.mean(axis=-1),
        "f1_both_class_macro": np.mean(both_classes(all_hits, all_called, all_positive, decisions), axis=0),
    }


def samples_f1(truth: np.ndarray, calls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each image (n,), F1 of its set of labels (0 if empty), and whether both sets are empty.

    >>> truth, calls = np.array([[True, False], [False, False]]), np.array([[True, True], [False, False]])
    >>> values, empty = samples_f1(truth, calls)
    >>> values.round(3).tolist(), empty.tolist()
    ([0.667, 0.0], [False, True])
    """
    # with labels in the slower index, sums over them are sums of whole rows of memory
    kind = np.min_scalar_type(2 * truth.shape[1])
    true, called, both = (
        np.asfortranarray(part).sum(axis=1, dtype=kind) for part in (truth, calls, truth & calls)
    )
    size = true + called
    return 2.0 * both / np.maximum(size, 1), size == 0


def patient_sums(sample: Sample, thresholds: Thresholds | None, counted: np.ndarray) -> Sums:
    """Sums per quantity, arrays (clusters, k) float32; ``counted`` (L,) have both classes.

    Without ``thresholds`` only what needs none.

    >>> from cxrbench.statistics.examples import scored
    >>> sums = patient_sums(*scored(), counted=np.array([True, True]))  # of 100 patients
    >>> {name: sums[name].shape for name in ("total", "hits", "any_finding", "gap")}
    {'total': (100, 2), 'hits': (100, 2), 'any_finding': (100, 3), 'gap': (100, 2)}
    """
    images = {"total": sample.counts, "squares": (sample.scores - sample.labels) ** 2 * sample.counts}
    if thresholds is not None:
        images |= _called(sample, thresholds, counted & thresholds.tuned)
    sums = {name: sample.by_cluster(values).astype(np.float32) for name, values in images.items()}
    gaps = binned_gaps(sample).reshape(sample.n_clusters, -1, BINS)
    return sums | {"gap": gaps.sum(axis=-1, dtype=np.float64)}


def binned_gaps(sample: Sample) -> np.ndarray:
    """Each patient's sums (clusters, L * ``BINS``) float32 of label minus score, by bins of all scores.

    >>> from cxrbench.statistics.examples import scored
    >>> binned_gaps(scored()[0]).shape  # two findings
    (100, 30)
    """
    return np.hstack([_bin_gaps(sample, k) for k in range(sample.labels.shape[1])])


def _bin_gaps(sample: Sample, label: int) -> np.ndarray:
    """Sums (clusters, BINS) of label minus score; the bins are those of the whole sample."""
    positive, scores, clusters = sample.of_label(label)
    if not len(scores):
        return np.zeros((sample.n_clusters, BINS), dtype=np.float32)
    edges = np.quantile(np.sort(scores), np.arange(1, BINS) / BINS)
    place = (scores >= edges[:, None]).sum(axis=0, dtype=np.uint8)  # faster than a search among so few
    cells = clusters.astype(np.int64) * BINS + place
    gaps = np.bincount(cells, positive - scores, sample.n_clusters * BINS)
    return gaps.reshape(sample.n_clusters, BINS).astype(np.float32)


def _called(sample: Sample, thresholds: Thresholds, counted: np.ndarray) -> dict[str, np.ndarray]:
    truth, scores = sample.labels[:, counted], sample.scores[:, counted]
    labelled = sample.counts[:, counted]
    calls = (scores >= thresholds.f1[counted]) & labelled
    strict = (scores >= thresholds.specificity[counted]) & labelled
    whole = sample.complete[:, None]
    per_image, empty = samples_f1(truth, calls)
    finding, highest = sample.abnormal, sample.scores.max(axis=1)
    abnormal, clear = highest >= thresholds.any_finding, highest < thresholds.no_finding
    return {
        "decisions": labelled,
        "whole": whole,
        "positive": truth,
        "called": calls,
        "hits": truth & calls,
        "strict_hits": truth & strict,
        "strict_called": strict,
        "samples": np.column_stack([per_image, empty]) * whole,
        "any_finding": np.column_stack([finding & abnormal, abnormal, finding]) & whole,
        "no_finding": np.column_stack([~finding & clear, clear, ~finding]) & whole,
    }


def tuned_parts(sample: Sample, thresholds: Thresholds, tuned: np.ndarray) -> dict[str, ImageParts]:
    """F1, sensitivity and specificity of the ``tuned`` labels (L,) by image, at fixed thresholds.

    F1 is the mean of hits over images that count once when they are called and once when they are positive.

    >>> from cxrbench.statistics.examples import scored
    >>> parts = tuned_parts(*scored(), tuned=np.array([True, True]))["f1"]
    >>> parts.value.round(3).tolist(), parts.influence.shape
    ([0.595, 0.649], (200, 2))
    """
    called = _called(sample, thresholds, tuned)
    positive, negative = called["positive"], called["decisions"] & ~called["positive"]
    right = negative & ~called["strict_called"]
    fewest = [sample.positive_clusters(part) for part in (sample.labels, sample.negative)]
    means = {
        "f1": (2 * called["hits"].astype("uint8"), called["called"].astype("uint8") + positive, fewest[0]),
        "sensitivity_at_specificity_90": (called["strict_hits"], positive, fewest[0]),
        "specificity_at_that_threshold": (right, negative, fewest[1]),
    }
    return {name: _mean_of(tuned, *mean) for name, mean in means.items()}


def _mean_of(tuned: np.ndarray, hits: np.ndarray, weight: np.ndarray, patients: np.ndarray) -> ImageParts:
    """The parts of the sum of ``hits`` over that of ``weight``, each (n, tuned labels)."""
    influence, share = empty_parts(len(hits), len(tuned))
    value = np.full(len(tuned), np.nan)
    for k, hit, counted in zip(np.flatnonzero(tuned), hits.T, weight.T, strict=True):
        total = max(counted.sum(), 1)
        value[k] = hit.sum() / total
        influence[:, k], share[:, k] = (hit - counted * value[k]) / total, counted / total
    return ImageParts(value, influence, share, np.ones_like(share, dtype=bool), np.asarray(patients))


def totals_of(sums: Sums) -> Sums:
    """Totals (k,) over all clusters, in float64.

    >>> totals_of({"hits": np.array([[2, 0], [1, 1]], dtype=np.float32)})["hits"].tolist()
    [3.0, 1.0]
    """
    return {name: part.sum(axis=0, dtype=np.float64) for name, part in sums.items()}


def totals_at(sample: Sample, thresholds: list[Thresholds], counted: np.ndarray) -> Sums:
    """Totals (T, k) of what needs a threshold, at each of the ``thresholds`` of the same labels.

    >>> from cxrbench.statistics.examples import scored
    >>> sample, thresholds = scored()
    >>> totals_at(sample, [thresholds], np.array([True, True]))["hits"].tolist()
    [[78.0, 50.0]]
    """
    tuned, times = counted & thresholds[0].tuned, len(thresholds)
    cuts, strict = (np.array([getattr(cut, name)[tuned] for cut in thresholds]) for name in _OF_LABELS)
    truth, labelled, scores = sample.labels[:, tuned], sample.counts[:, tuned], sample.scores[:, tuned]
    whole = sample.complete
    same = {"decisions": labelled, "positive": truth, "whole": whole[:, None], "total": whole[:, None] | True}
    # with labels in the slower index, sums over them are sums of whole rows of memory
    sets, ranks = np.asfortranarray(truth[whole]), np.asfortranarray(scores[whole])
    of_images = in_threads(
        lambda cut: [part.sum() for part in samples_f1(sets, ranks >= cut)], list(cuts), scores.size
    )
    both = np.vstack([cuts, strict])
    called, strict_called = np.split(calls_at(labelled, scores, both), 2)
    hits, strict_hits = np.split(calls_at(truth, scores, both), 2)
    return {
        **{name: np.tile(part.sum(axis=0, dtype=float), (times, 1)) for name, part in same.items()},
        **{"called": called, "hits": hits, "strict_hits": strict_hits, "strict_called": strict_called},
        "samples": np.array(of_images),
        **_image_level_at(sample.abnormal[whole, None], sample.scores[whole].max(axis=1), thresholds),
    }


def _image_level_at(finding: np.ndarray, highest: np.ndarray, thresholds: list[Thresholds]) -> Sums:
    """Hits, calls and positives (T, 3) of images (n, 1) with a ``finding``, and of those without."""
    totals = {}
    for name in ("any_finding", "no_finding"):
        cuts = np.array([[getattr(cut, name)] for cut in thresholds])
        positive = finding if name == "any_finding" else ~finding
        both = np.hstack([positive, positive | True])
        calls = calls_at(both, np.column_stack([highest, highest]), np.hstack([cuts, cuts]))
        if name == "no_finding":  # called below its threshold
            calls = both.sum(axis=0) - calls
        totals[name] = np.column_stack([calls, np.full(len(cuts), positive.sum())])
    return totals


def calls_at(images: np.ndarray, scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The number of ``images`` (n, K; a mask) that score at least each of ``thresholds``, (T,) or (T, K),
    as (T, K).

    >>> images, scores = np.array([[True], [True], [False]]), np.array([[0.2], [0.5], [0.9]])
    >>> calls_at(images, scores, np.array([0.1, 0.5, 0.6])).tolist()
    [[2.0], [1.0], [0.0]]
    """
    cuts = np.broadcast_to(thresholds.T, (images.shape[1], len(thresholds)))
    calls = np.empty(cuts.shape[::-1])
    for k, cut in enumerate(cuts):
        ordered = np.sort(scores[:, k][images[:, k]])
        calls[:, k] = len(ordered) - np.searchsorted(ordered, cut, side="left")
    return calls


def per_label_measures(sums: Sums) -> dict[str, np.ndarray]:
    """Metrics (..., L) of sums (..., L); calibration in the large is mean score less prevalence.

    >>> sums = {"total": np.array([10]), "squares": np.array([1.5]), "gap": np.array([1.0])}
    >>> {name: value.round(3).tolist() for name, value in per_label_measures(sums).items()}
    {'brier': [0.15], 'calibration_in_the_large': [-0.1]}
    """
    with np.errstate(invalid="ignore"):  # without a known label there is no mean
        return {
            "brier": sums["squares"] / sums["total"],
            "calibration_in_the_large": -sums["gap"] / sums["total"],
        }


def calibration_error(sums: Sums) -> np.ndarray:
    """The calibration error (..., L) of sums (..., k): the bins' gaps without their signs.

    >>> sums = {"total": np.array([10]), "gaps": np.r_[2, -1, np.zeros(BINS - 2)]}
    >>> calibration_error(sums).round(3).tolist()
    [0.3]
    """
    return np.asarray(np.abs(_gaps(sums)).sum(axis=-1))


def calibration_by_chance(whole: Sums, replicates: Sums) -> np.ndarray:
    """The calibration error (L,) that perfectly calibrated scores have from sampling patients.

    ``whole`` holds sums (k,), ``replicates`` (R, k): the mean absolute noise of the bins' gaps.

    >>> whole = {"total": np.array([10]), "gaps": np.zeros(BINS)}
    >>> drawn = {"total": np.array([[10], [10]]), "gaps": np.outer([0.1, -0.1], np.ones(BINS))}
    >>> calibration_by_chance(whole, drawn).round(3).tolist()
    [0.15]
    """
    return np.abs(_gaps(replicates) - _gaps(whole)).sum(axis=-1).mean(axis=0)


def _gaps(sums: Sums) -> np.ndarray:
    """Label minus score per bin (..., L, BINS), as shares of all labelled images."""
    total = sums["total"]
    with np.errstate(invalid="ignore"):  # without a known label there is no share
        return np.asarray(sums["gaps"].reshape(*total.shape[:-1], -1, BINS) / total[..., None])


def threshold_measures(sums: Sums) -> dict[str, np.ndarray]:
    """Metrics (..., counted labels) that need a threshold per label.

    >>> sums = {"hits": 7, "called": 9, "positive": 8, "strict_hits": 4, "strict_called": 5, "decisions": 20}
    >>> found = threshold_measures({name: np.array([count]) for name, count in sums.items()})
    >>> [value.round(3).tolist() for value in found.values()]
    [[0.824], [0.5], [0.917]]
    """
    positive, negative = sums["positive"], sums["decisions"] - sums["positive"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "f1": f1(sums["hits"], sums["called"], positive),
            "sensitivity_at_specificity_90": sums["strict_hits"] / positive,
            "specificity_at_that_threshold": 1 - (sums["strict_called"] - sums["strict_hits"]) / negative,
        }


def f1_measures(sums: Sums) -> dict[str, np.ndarray]:
    """F1 over all counted labels in every definition, each (...).

    >>> from cxrbench.statistics.examples import scored
    >>> found = f1_measures(totals_of(patient_sums(*scored(), counted=np.array([True, True]))))
    >>> {name: float(found[name].round(3)) for name in ("f1_macro", "f1_samples", "f1_any_finding")}
    {'f1_macro': 0.622, 'f1_samples': 0.465, 'f1_any_finding': 0.795}
    """
    measures = {}
    if sums["positive"].shape[-1]:
        measures = multilabel_f1(sums["hits"], sums["called"], sums["positive"], sums["decisions"])
        with np.errstate(divide="ignore", invalid="ignore"):
            measures["f1_samples"] = sums["samples"][..., 0] / sums["whole"][..., 0]
            measures["f1_samples_empty_is_1"] = sums["samples"].sum(axis=-1) / sums["whole"][..., 0]
    for name in ("any_finding", "no_finding"):
        measures[f"f1_{name}"] = f1(*np.moveaxis(sums[name], -1, 0))
    return measures
