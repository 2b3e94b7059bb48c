"""The variance of one run's score by its source: test patients, patients x network, the seed, the setting.

A run is scored on patients who happened to be in the test set. All networks share part of what this choice
does to the score; another part depends on the network (patients x network: whom it happens to get right).
Only what is left of the variance between runs is the seed itself, which every choice of patients would show.

The endpoint is smooth in the patients, so their influence gives both of their parts. F1 at the best threshold
is not, and a bootstrap of the threshold would overstate them. So patients are cut into halves at random, and
each run is scored on both, with thresholds from halves of the validation patients. The seed itself is then
the covariance, between the two halves, of the runs' deviations from their mean, because the halves share no
patient; the variance of a mean over patients is a quarter of the expected squared difference of the halves.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from cxrbench.statistics.auroc import mean_influence
from cxrbench.statistics.components import patient_sampling_variance, seed_variance
from cxrbench.statistics.estimates import ENDPOINT, CellEstimate
from cxrbench.statistics.sample import Sample, best_f1_thresholds

HALVINGS = 24
MIN_RUNS = 10  # of a setting: with fewer the covariance of its runs says little
SOURCE_COLUMNS = [
    *(
        "metric",
        "source",
        "setting",
        "network",
        "variance",
        "error",
        "sd",
        "fraction",
        "p",
        "settings",
        "runs",
        "patients",
    ),
]
_METRICS = ("endpoint", "f1_macro")
ESTIMATE_KEYS = ((ENDPOINT, "auroc"), ("macro", "f1_macro"))  # columns of an estimate
_SOURCES = ("patients", "patients x network", "seed")
SETTING = "setting"


def halved_scores(run: CellEstimate, val: Sample | None, halvings: int = HALVINGS) -> np.ndarray:
    """Scores of a run on halves of the patients: (2, ``halvings``, 2), endpoint and macro F1.

    The halves are the same for all runs that scored the same patients; a mean is over the same findings as
    for all patients. NaN where a half has no image with one of them; macro F1 also without ``val``.

    >>> from cxrbench.statistics.estimates import estimate_cell
    >>> from cxrbench.statistics.examples import predictions
    >>> halved_scores(estimate_cell(predictions()), None, halvings=2)[0].round(3).tolist()  # of the endpoint
    [[0.785, 0.704], [0.817, 0.695]]
    """
    test, scope = run.sample, run.scope
    weights = _halves(test.n_clusters, halvings)[:, test.clusters]
    many = np.flatnonzero(scope.many & scope.averaged(scope.counted)).tolist()
    means = [[_weighted_auroc(*test.of_label(k)[:2], weights[:, ~test.unknown[:, k]]) for k in many]]
    if val is not None:
        of_val = _halves(val.n_clusters, halvings)[:, val.clusters]
        tuned = np.flatnonzero(scope.averaged(scope.tuned)).tolist()
        means.append([_weighted_f1(test, val, k, weights, of_val) for k in tuned])
    scores = np.full((2, 2 * halvings), np.nan)
    for number, parts in enumerate(means):
        if parts:
            scores[number] = np.mean(parts, axis=0)
    return scores.reshape(2, halvings, 2)


def _halves(patients: int, halvings: int) -> np.ndarray:
    """Which patients are in each half (2 x ``halvings``, patients), the halves of a cut in two rows."""
    generator = np.random.default_rng(0)
    first = np.array([generator.permutation(patients) < patients // 2 for _ in range(halvings)], dtype=float)
    return np.stack([first, 1 - first], axis=1).reshape(-1, patients)


def _weighted_auroc(positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """AUROC (R,) of images that count as often as ``weights`` (R, n) says, ties half."""
    _, rank = np.unique(scores, return_inverse=True)
    negatives = np.array([np.bincount(rank, row * ~positive, rank.max() + 1) for row in weights])
    below = negatives.cumsum(axis=1) - negatives / 2
    won = (weights * positive * below[:, rank]).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return won / ((weights @ positive) * (weights @ ~positive))


def _weighted_f1(test: Sample, val: Sample, k: int, weights: np.ndarray, of_val: np.ndarray) -> np.ndarray:
    """F1 (R,) of finding ``k`` on halves of the test images, with the best threshold of a half of ``val``."""
    positive, scores, _ = val.of_label(k)
    thresholds = best_f1_thresholds(positive, scores, of_val[:, ~val.unknown[:, k]])
    truth, scores, _ = test.of_label(k)
    counted = weights[:, ~test.unknown[:, k]]
    called = counted * (scores >= thresholds[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        return 2 * (called @ truth) / (called.sum(axis=1) + counted @ truth)


def sources(
    runs: Mapping[str, Mapping[int, tuple[CellEstimate, np.ndarray]]],
    blocks: Mapping[tuple[str, str], Sequence[str]] | None = None,
    repeats: Collection[str] = (),
) -> pd.DataFrame:
    """The variance of one run's score by source (columns ``SOURCE_COLUMNS``).

    ``runs``: by setting (network and recipe) and seed, a run's estimate and :func:`halved_scores`, all of the
    same images. Settings with fewer than ``MIN_RUNS`` runs are left out. ``error`` is the jackknife's over
    settings. ``blocks``: by the one thing that settings differ in (column ``setting``) and network, those
    settings, which share seeds; they have a row each, with the p value of F for "these settings have one
    mean". ``repeats``: settings that are in such a row alone, because their runs nearly repeat others.

    >>> from cxrbench.statistics.examples import cells
    >>> halves = np.zeros((2, 1, 2))  # which only F1 needs
    >>> runs = {seed: (run, halves) for seed, run in enumerate(cells(seeds=5).values())}
    >>> sources({"net": runs})[["metric", "source", "sd"]][:3].round(3).to_numpy().tolist()
    [['endpoint', 'patients', 0.021], ['endpoint', 'patients x network', 0.012], ['endpoint', 'seed', 0.0]]
    """
    used = {name: seeds for name, seeds in runs.items() if len(seeds) >= MIN_RUNS}
    counted = {name: seeds for name, seeds in used.items() if name not in repeats}
    rows: list[dict[str, Any]] = []
    for number, metric in enumerate(_METRICS if counted else ()):
        parts = np.array([_parts(seeds, number) for seeds in counted.values()])
        whole = np.maximum(parts.mean(axis=0), 0).sum()
        place = {"metric": metric, "patients": _first(used).sample.n_clusters}
        for source, variance, error in zip(_SOURCES, parts.mean(axis=0), _jackknife(parts), strict=True):
            counts = {"settings": len(counted), "runs": sum(map(len, counted.values()))}
            rows.append(place | {"source": source, "variance": variance, "error": error} | counts)
        for (setting, network), names in (blocks or {}).items():
            if set(names) <= used.keys():
                scores = _scores({name: used[name] for name in names}, number)
                named = {"source": SETTING, "setting": setting, "network": network}
                rows.append(place | named | _between_settings(scores))
        for row in (row for row in rows if row["metric"] == metric):
            row |= {"sd": max(row["variance"], 0.0) ** 0.5, "fraction": max(row["variance"], 0.0) / whole}
    return pd.DataFrame(rows, columns=SOURCE_COLUMNS)


def _first(used: Mapping[str, Mapping[int, tuple[CellEstimate, np.ndarray]]]) -> CellEstimate:
    return next(iter(next(iter(used.values())).values()))[0]


def _scores(settings: Mapping[str, Mapping[int, tuple[CellEstimate, np.ndarray]]], number: int) -> np.ndarray:
    """Scores (settings, seeds) of the seeds that all ``settings`` have."""
    shared = sorted(set.intersection(*(set(seeds) for seeds in settings.values())))
    return np.array([[_value(seeds[seed][0], number) for seed in shared] for seeds in settings.values()])


def _value(run: CellEstimate, number: int) -> float:
    return float(run.estimate.value[run.keys.index(ESTIMATE_KEYS[number])])


def _between_settings(scores: np.ndarray) -> dict[str, Any]:
    """Variance of settings' means beyond what a setting does to single seeds, from scores (settings, seeds).

    Two-way analysis of variance without replicates (Searle, Casella and McCulloch 1992, section 4.3). The
    variance may be negative.
    """
    settings, seeds = scores.shape
    of_setting = scores.mean(axis=1, keepdims=True)
    rest = scores - of_setting - scores.mean(axis=0) + scores.mean()
    between = seeds * float(of_setting.var(ddof=1))
    within = float((rest**2).sum()) / ((settings - 1) * (seeds - 1))
    freedom = (settings - 1, (settings - 1) * (seeds - 1))
    p = float(fdtrc(*freedom, between / within)) if within else float("nan")
    return {"variance": (between - within) / seeds, "p": p, "settings": settings, "runs": scores.size}


def _parts(seeds: Mapping[int, tuple[CellEstimate, np.ndarray]], number: int) -> tuple[float, float, float]:
    """Variance of one run of a setting: patients common to all runs, patients x network, the seed itself."""
    halves = np.array([halved[number] for _, halved in seeds.values()])  # runs x halvings x 2
    deviation = halves - halves.mean(axis=0)
    own = float(np.nanmean((deviation[..., 0] * deviation[..., 1]).sum(axis=0)) / (len(halves) - 1))
    networks = [run.estimate for run, _ in seeds.values()]
    column = next(iter(seeds.values()))[0].keys.index(ESTIMATE_KEYS[number])
    observed = float(seed_variance(networks)[column])
    if number == 0:  # smooth in the patients: by influence, whose error is smaller than that of halves
        luck = float(patient_sampling_variance(networks)[column])
        own = observed - luck
        of_mean = float((mean_influence(networks)[:, column] ** 2).sum())
    else:
        luck = observed - own
        means = halves.mean(axis=0)
        of_mean = float(np.nanmean((means[:, 0] - means[:, 1]) ** 2)) / 4
    return of_mean - luck / len(halves), luck, own


def _jackknife(parts: np.ndarray) -> np.ndarray:
    """Standard errors (K,) of the means of ``parts`` (settings, K), by leaving out a setting; NaN of one."""
    count = len(parts)
    if count < 2:
        return np.full(parts.shape[1], np.nan)
    without = (parts.sum(axis=0) - parts) / (count - 1)
    return np.asarray(np.sqrt((count - 1) / count * ((without - without.mean(axis=0)) ** 2).sum(axis=0)))
