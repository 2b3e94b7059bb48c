"""How often the intervals of F1, average precision, Brier score and calibration hold the truth.

Of one network and of the mean over three, in studies like those of :mod:`cxrbench.analysis.coverage`, with a
validation part from which each network takes its thresholds. The truth of F1 is what choosing thresholds
and scoring gives on average over validation parts. Beside its intervals stand those that take thresholds as
fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr

from cxrbench.analysis.components import over_seeds
from cxrbench.analysis.coverage import BANDS, PATIENTS, rate_of
from cxrbench.analysis.estimates import CellEstimate, bounds, estimate
from cxrbench.analysis.studies import Archive, noise, scored, skill_noise, skill_of
from cxrbench.analysis.thresholds import MIN_PATIENTS, choose_thresholds
from cxrbench.analysis.verdicts import OWN, SKILL_SD, TRUTH
from cxrbench.study.cores import cores

FILE = "simulated/means.csv"  # below the folder of recorded evidence
COLUMNS = ["what", "metric", "positive_patients", "cases", "rate", "monte_carlo_error"]
STUDIES = 500
SEEDS = 3
VALIDATION = 260  # patients, about nih128's
ONE, MEAN, FIXED = "one network", "mean of three", ", thresholds fixed"
METRICS = {
    **{"average_precision": "average precision", "f1": "F1", "f1_macro": "F1", "f1_micro": "F1, micro"},
    **{"f1_weighted": "F1, weighted", "f1_samples": "F1, samples"},
    **{"brier": "Brier score", "calibration_in_the_large": "calibration in the large"},
}

Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Study:
    """Keys and intervals of a study, and what their truth depends on: skills (seeds, L) and thresholds
    (seeds, L) of its networks, on the scale of the drawn scores; F1 of samples (seeds,); labels averaged
    (L,) or tuned."""

    keys: tuple[tuple[str, str], ...]
    ends: dict[str, Ends]
    skills: np.ndarray
    cuts: np.ndarray
    samples: np.ndarray
    averaged: np.ndarray
    patients: np.ndarray

    @property
    def tuned(self) -> np.ndarray:
        return np.isfinite(self.cuts[0])


def simulate_means(studies: int = STUDIES) -> pd.DataFrame:
    """One row per kind of interval, metric and band of positive patients (columns ``COLUMNS``)."""
    with ProcessPoolExecutor(cores()) as pool:
        found = list(pool.map(_study, range(studies), chunksize=10))
    one, mean = _truths(found, _archive().labels.mean(axis=0))
    return pd.DataFrame(_rows(found, one, mean), columns=COLUMNS)


@cache
def _archive() -> Archive:
    return Archive.read()


def _study(number: int) -> _Study:
    rng = np.random.default_rng([3, number])
    study, prevalence = _archive().draw(rng, VALIDATION + PATIENTS), _archive().labels.mean(axis=0)
    common, cells, skills, cuts = noise(rng, study), [], [], []
    for _ in range(SEEDS):
        skill = skill_of(TRUTH, SKILL_SD) + SKILL_SD * skill_noise(rng, study)
        network = scored(study, skill, np.sqrt(1 - OWN) * common + np.sqrt(OWN) * noise(rng, study))
        network = replace(network, scores=expit(logit(prevalence) + skill * network.scores - skill**2 / 2))
        val = network.take(network.clusters < VALIDATION)
        cells.append(estimate(network.take(network.clusters >= VALIDATION), val).only(*METRICS))
        chosen = choose_thresholds(val).f1
        cuts.append(
            np.where(
                cells[-1].scope.tuned, (logit(chosen) - logit(prevalence) + skill**2 / 2) / skill, np.nan
            )
        )
        skills.append(skill)
    test, scope = cells[0].sample, cells[0].scope
    ends = {ONE: _of_network(cells[0]), ONE + FIXED: _of_network(_with_fixed(cells[0]))}
    ends |= {MEAN: _of_mean(cells), MEAN + FIXED: _of_mean([_with_fixed(each) for each in cells])}
    samples = np.array([_samples_f1(*each) for each in zip(skills, cuts, strict=True)])
    patients = test.positive_clusters(test.labels)
    averaged = scope.averaged(scope.counted)
    return _Study(cells[0].keys, ends, np.array(skills), np.array(cuts), samples, averaged, patients)


def _with_fixed(cell: CellEstimate) -> CellEstimate:
    """The same with thresholds that do not vary: nothing below the test patients' rows."""
    kept = cell.estimate.influence[: cell.sample.n_clusters]
    return replace(cell, estimate=replace(cell.estimate, influence=kept))


def _of_network(cell: CellEstimate) -> Ends:
    one = cell.estimate
    return bounds(cell.keys, one.value, one.error, one.degrees)


def _of_mean(cells: list[CellEstimate]) -> Ends:
    mean = over_seeds([each.estimate for each in cells])
    return bounds(cells[0].keys, mean.value, mean.error, mean.freedom)


@cache
def _label_sets() -> tuple[np.ndarray, np.ndarray]:
    """The sets of findings that images have (sets, L), and how common they are (sets,)."""
    sets, counts = np.unique(_archive().labels, axis=0, return_counts=True)
    return sets, counts / counts.sum()


def _samples_f1(skill: np.ndarray, cuts: np.ndarray) -> float:
    """The true mean over images of the F1 of its labels: findings are called independently of each other."""
    sets, share = _label_sets()
    tuned = np.isfinite(cuts)
    true, chance = sets & tuned, np.where(tuned, ndtr(skill * sets - np.where(tuned, cuts, 0)), 0)
    most = int(true.sum(axis=1).max()) + 1
    states = np.zeros(
        (len(sets), most, tuned.sum() + 1)
    )  # probabilities of so many hits and so many false calls
    states[:, 0, 0] = 1
    for k in np.flatnonzero(tuned):
        call = chance[:, k, None, None]
        moved = np.zeros_like(states)
        hit = true[:, k]
        moved[hit, 1:] = states[hit, :-1]
        moved[~hit, :, 1:] = states[~hit, :, :-1]
        states = (1 - call) * states + call * moved
    hits, false = np.arange(most)[:, None], np.arange(states.shape[2])
    sizes = true.sum(axis=1)[:, None, None] + hits + false
    return float(share @ (states * 2 * hits / np.maximum(sizes, 1)).sum(axis=(1, 2)))


def _truths(found: list[_Study], prevalence: np.ndarray) -> tuple[dict, dict]:
    """The true values of the first network of each study, and of the recipe; by metric, of labels (S, L) or
    (S,)."""
    skills, cuts = (np.concatenate([getattr(one, name) for one in found]) for name in ("skills", "cuts"))
    hits = prevalence * ndtr(skills - cuts)
    called = hits + (1 - prevalence) * ndtr(-cuts)
    hits, called, f1 = (_typical(skills, part) for part in (hits, called, 2 * hits / (called + prevalence)))
    tuned = np.array([one.tuned for one in found])
    mean_tuned = tuned / np.maximum(tuned.sum(axis=1, keepdims=True), 1)
    by_case = tuned * prevalence / np.maximum((tuned * prevalence).sum(axis=1, keepdims=True), 1e-12)
    ranked, brier = _of_skill(skills, prevalence)
    averaged = np.array([one.averaged for one in found])
    mean_averaged = averaged / averaged.sum(axis=1, keepdims=True)
    first = slice(0, None, SEEDS)  # the first network of each study

    def both(network: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means over labels, by the weights of each study (S, L): of its first network, of all networks."""
        return (network[first] * weights).sum(axis=1), weights @ network.mean(axis=0)

    pooled = [part @ tuned.T.astype(float) for part in (2 * hits, called + prevalence)]
    micro = pooled[0] / np.maximum(pooled[1], 1e-12)
    pairs = {
        ("macro", "average_precision"): both(ranked, mean_averaged),
        ("macro", "brier"): both(brier, mean_averaged),
        ("macro", "calibration_in_the_large"): (np.zeros(len(found)),) * 2,
        ("macro", "f1_macro"): both(f1, mean_tuned),
        ("all", "f1_weighted"): both(f1, by_case),
        ("all", "f1_micro"): (micro[first][np.diag_indices(len(found))], micro.mean(axis=0)),
        ("all", "f1_samples"): _typical_samples(found, tuned),
        ("", "average_precision"): (ranked[first], np.tile(ranked.mean(axis=0), (len(found), 1))),
        ("", "f1"): (f1[first], np.tile(f1.mean(axis=0), (len(found), 1))),
    }
    return tuple({key: pair[side] for key, pair in pairs.items()} for side in (0, 1))  # type: ignore[return-value]


def _typical(skills: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What networks (N, L) of each skill have on average over validation parts: a parabola per label."""
    columns = []
    for skill, value in zip(skills.T, values.T, strict=True):
        known = np.isfinite(value)
        some = known.sum() > 10
        columns.append(
            np.polyval(np.polyfit(skill[known], value[known], 2), skill) if some else np.zeros(len(skill))
        )
    return np.column_stack(columns)


def _typical_samples(found: list[_Study], tuned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of F1 over samples, linear in the skills and in which labels have a threshold."""
    skills = np.array([one.skills for one in found])
    terms = np.concatenate(
        [np.ones((*skills.shape[:2], 1)), np.repeat(tuned[:, None], SEEDS, 1), skills], axis=2
    )
    values = np.concatenate([one.samples for one in found])
    slopes = np.linalg.lstsq(terms.reshape(len(values), -1), values, rcond=None)[0]
    recipe = terms[:, 0].copy()
    recipe[:, -skills.shape[2] :] = skills.mean(axis=(0, 1))
    return terms[:, 0] @ slopes, recipe @ slopes


def _of_skill(skills: np.ndarray, prevalence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True average precision and Brier score of calibrated networks of these ``skills`` (N, L),
    interpolated."""
    grid, score = np.linspace(skills.min(), skills.max(), 25), np.linspace(-8, 12, 4001)
    out = np.empty((2, *skills.shape))
    normal = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
    for k, share in enumerate(prevalence):
        at = []
        for skill in grid:
            recall, false = ndtr(skill - score), ndtr(-score)
            precision = share * recall / (share * recall + (1 - share) * false)
            chance = expit(logit(share) + skill * score - skill**2 / 2)
            density = share * np.exp(skill * score - skill**2 / 2) * normal + (1 - share) * normal
            at.append(
                (
                    np.trapezoid(precision[::-1], recall[::-1]),
                    np.trapezoid(chance * (1 - chance) * density, score),
                )
            )
        out[:, :, k] = [np.interp(skills[:, k], grid, values) for values in zip(*at, strict=True)]
    return out[0], out[1]


def _rows(found: list[_Study], one: dict, mean: dict) -> Iterator[dict]:
    keys = found[0].keys
    names = [label for label, metric in keys if metric == "average_precision"][:-1]
    patients = np.array([each.patients for each in found])
    for what in found[0].ends:
        truths = one if what.startswith(ONE) else mean
        low, high = np.array([each.ends[what] for each in found]).swapaxes(0, 1)
        tuned = np.array([each.tuned for each in found])
        for (label, metric), truth in truths.items():
            if FIXED in what and not metric.startswith("f1"):
                continue
            name = METRICS[metric]
            if label:
                k = keys.index((label, metric))
                name = f"{name}, macro" if label == "macro" else name
                yield _row(what, name, "", (low[:, k] <= truth) & (truth <= high[:, k]))
                continue
            columns = [keys.index((finding, metric)) for finding in names]
            hits = (low[:, columns] <= truth) & (truth <= high[:, columns])
            for least, most in BANDS:
                inside = (patients >= least) & (patients <= most) & (tuned | (metric != "f1"))
                if least >= MIN_PATIENTS or metric != "f1":
                    band = f"{least} or more" if most == PATIENTS else f"{least} to {most}"
                    yield _row(what, name, band, hits[inside])


def _row(what: str, metric: str, band: str, hits: np.ndarray) -> dict:
    return dict(zip(COLUMNS, (what, metric, band, *rate_of(hits)), strict=True))
