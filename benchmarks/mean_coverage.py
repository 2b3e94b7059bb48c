"""How often the intervals of F1, sensitivity, average precision, Brier score and calibration hold the truth.

Of one network and of the mean over three, in studies like those of :mod:`benchmarks.coverage`, with a
validation part from which each network takes its thresholds. The truth of F1 is what choosing thresholds
and scoring gives on average over validation parts. Beside its intervals stand those that take thresholds as
fixed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtr

from benchmarks.coverage import (
    OWN,
    PATIENTS,
    SKILL_SD,
    TRUTH,
    archive,
    draw,
    drawn,
    judged,
    noise,
    scored,
    skill_noise,
    skill_of,
)
from cxrbench.results.simulated import FIXED, MEAN, MEAN_COVERAGE, ONE, SIMULATED_METRICS
from cxrbench.statistics.components import over_seeds
from cxrbench.statistics.estimates import CellEstimate, bounds, estimate, patients_part
from cxrbench.statistics.metrics import WITH_THRESHOLDS

SEEDS = 3
_VALIDATION = 260  # patients, about nih128's

Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Study:
    """Keys and intervals of a study, and what their truth depends on: skills (seeds, L) and thresholds of F1
    and of specificity (seeds, L) of its networks, on the scale of the drawn scores; F1 of samples (seeds,);
    labels averaged (L,); positive patients (L,)."""

    keys: tuple[tuple[str, str], ...]
    ends: dict[str, Ends]
    skills: np.ndarray
    cuts: np.ndarray
    strict: np.ndarray
    samples: np.ndarray
    averaged: np.ndarray
    patients: np.ndarray


def simulate_means(studies: int = 120) -> pd.DataFrame:
    """Return one row per kind of interval, metric and band of positive patients."""
    _label_sets()  # once, for all processes
    made = drawn(_study, studies)
    return pd.DataFrame(_rows(made, _truths(made, _prevalence())), columns=MEAN_COVERAGE.columns)


@cache
def _prevalence() -> np.ndarray:
    return archive().labels.mean(axis=0)


def _study(number: int) -> _Study:
    rng = np.random.default_rng([3, number])
    study, prevalence = draw(rng, _VALIDATION + PATIENTS), _prevalence()
    common, cells, skills = noise(rng, study), [], []
    cuts, strict = list[np.ndarray](), list[np.ndarray]()
    for _ in range(SEEDS):
        skill = skill_of(TRUTH, SKILL_SD) + SKILL_SD * skill_noise(rng, study)
        network = scored(study, skill, np.sqrt(1 - OWN) * common + np.sqrt(OWN) * noise(rng, study))
        network = replace(network, scores=expit(logit(prevalence) + skill * network.scores - skill**2 / 2))
        val = network.take(network.clusters < _VALIDATION)
        cell = estimate(network.take(network.clusters >= _VALIDATION), val)
        cells.append(cell.only(*(metric for _, metric in SIMULATED_METRICS)))
        assert cell.scope.thresholds is not None
        for chosen, place in ((cell.scope.thresholds.f1, cuts), (cell.scope.thresholds.specificity, strict)):
            odds = logit(np.where(cell.scope.tuned, chosen, np.nan))
            place.append((odds - logit(prevalence) + skill**2 / 2) / skill)
        skills.append(skill)
    test, scope = cells[0].sample, cells[0].scope
    samples = np.array([samples_f1(*network) for network in zip(skills, cuts, strict=True)])
    return _Study(
        keys=cells[0].keys,
        ends=_intervals(cells),
        skills=np.array(skills),
        cuts=np.array(cuts),
        strict=np.array(strict),
        samples=samples,
        averaged=scope.averaged(scope.counted),
        patients=test.positive_clusters(test.labels),
    )


def _intervals(networks: list[CellEstimate]) -> dict[str, Ends]:
    """Return intervals of the first network and of the mean, each also for thresholds that do not vary."""
    # Nothing below the rows of the test patients: no other validation patients.
    patients, keys = networks[0].sample.n_clusters, networks[0].keys
    estimates = [network.estimate for network in networks]
    fixed = [
        replace(network, estimate=replace(network.estimate, influence=network.estimate.influence[:patients]))
        for network in networks
    ]
    ends = {}
    for thresholds, cells in (("", networks), (FIXED, fixed)):
        variance, degrees = patients_part(cells[:1])
        mean = over_seeds([cell.estimate for cell in cells], patients_part(cells))
        ends[ONE + thresholds] = bounds(keys, estimates[0].value, np.sqrt(variance), degrees)
        ends[MEAN + thresholds] = bounds(keys, mean.value, mean.error, mean.freedom)
    return ends


@cache
def _label_sets() -> tuple[np.ndarray, np.ndarray]:
    """Return the sets of findings that images have (sets, L), and how common they are (sets,)."""
    sets, counts = np.unique(archive().labels, axis=0, return_counts=True)
    return sets, counts / counts.sum()


def samples_f1(skill: np.ndarray, cuts: np.ndarray) -> float:
    """Return the true mean over images of the F1 of its labels; findings are called independently."""
    sets, share = _label_sets()
    tuned = np.isfinite(cuts)
    true, chance = sets & tuned, np.where(tuned, ndtr(skill * sets - np.where(tuned, cuts, 0)), 0)
    most = int(true.sum(axis=1).max()) + 1
    states = np.zeros((len(sets), most, tuned.sum() + 1))  # probabilities of numbers of hits, of false calls
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


def _truths(studies: list[_Study], prevalence: np.ndarray) -> dict[tuple[str, str], Ends]:
    """Return, by label and metric, the true values of the first network of each study and of the recipe,
    each (S,) or, where the label is empty, (S, L)."""
    skills, cuts, strict = (
        np.concatenate([getattr(part, name) for part in studies]) for name in ("skills", "cuts", "strict")
    )
    sensitivity, specificity = (_typical(skills, part) for part in (ndtr(skills - strict), ndtr(strict)))
    hits = prevalence * ndtr(skills - cuts)
    called = hits + (1 - prevalence) * ndtr(-cuts)
    hits, called, f1 = (_typical(skills, part) for part in (hits, called, 2 * hits / (called + prevalence)))
    tuned = _tuned(studies)
    mean_tuned = tuned / np.maximum(tuned.sum(axis=1, keepdims=True), 1)
    by_case = tuned * prevalence / np.maximum((tuned * prevalence).sum(axis=1, keepdims=True), 1e-12)
    ranked, brier = of_skill(skills, prevalence)
    averaged = np.array([part.averaged for part in studies])
    mean_averaged = averaged / averaged.sum(axis=1, keepdims=True)
    first = slice(0, None, SEEDS)  # the first network of each study

    def both(network: np.ndarray, weights: np.ndarray) -> Ends:
        """Return means over labels, by the weights of each study (S, L): of its first network, of all."""
        return (network[first] * weights).sum(axis=1), weights @ network.mean(axis=0)

    def by_label(network: np.ndarray) -> Ends:
        return network[first], np.tile(network.mean(axis=0), (len(studies), 1))

    pooled = [part @ tuned.T.astype(float) for part in (2 * hits, called + prevalence)]
    micro = pooled[0] / np.maximum(pooled[1], 1e-12)
    return {
        ("macro", "average_precision"): both(ranked, mean_averaged),
        ("macro", "brier"): both(brier, mean_averaged),
        ("macro", "calibration_in_the_large"): (np.zeros(len(studies)),) * 2,
        ("macro", "f1_macro"): both(f1, mean_tuned),
        ("all", "f1_weighted"): both(f1, by_case),
        ("all", "f1_micro"): (micro[first][np.diag_indices(len(studies))], micro.mean(axis=0)),
        ("all", "f1_samples"): _typical_samples(studies, tuned),
        ("", "average_precision"): by_label(ranked),
        ("", "f1"): by_label(f1),
        ("", "sensitivity_at_specificity_90"): by_label(sensitivity),
        ("", "specificity_at_that_threshold"): by_label(specificity),
    }


def _tuned(studies: list[_Study]) -> np.ndarray:
    return np.array([np.isfinite(study.cuts[0]) for study in studies])


def _typical(skills: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What networks (N, L) of each skill have on average over validation parts: a parabola each."""
    typical = np.zeros_like(skills)
    for k, (skill, value) in enumerate(zip(skills.T, values.T, strict=True)):
        finite = np.isfinite(value)
        if finite.sum() > 10:
            typical[:, k] = np.polyval(np.polyfit(skill[finite], value[finite], 2), skill)
    return typical


def _typical_samples(studies: list[_Study], tuned: np.ndarray) -> Ends:
    """Return the same of F1 over samples, linear in the skills and in which labels have a threshold."""
    skills = np.array([part.skills for part in studies])
    terms = np.concatenate(
        [np.ones((*skills.shape[:2], 1)), np.repeat(tuned[:, None], SEEDS, 1), skills], axis=2
    )
    values = np.concatenate([part.samples for part in studies])
    slopes = np.linalg.lstsq(terms.reshape(len(values), -1), values, rcond=None)[0]
    recipe = terms[:, 0].copy()
    recipe[:, -skills.shape[2] :] = skills.mean(axis=(0, 1))
    return terms[:, 0] @ slopes, recipe @ slopes


def of_skill(skills: np.ndarray, prevalence: np.ndarray) -> Ends:
    """Return the true average precision and Brier score of calibrated networks of ``skills`` (N, L),
    interpolated."""
    grid, score = np.linspace(skills.min(), skills.max(), 25), np.linspace(-8, 12, 4001)
    out = np.empty((2, *skills.shape))
    normal = np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi)
    for k, share in enumerate(prevalence):
        ends = []
        for skill in grid:
            recall, false = ndtr(skill - score), ndtr(-score)
            precision = share * recall / (share * recall + (1 - share) * false)
            chance = expit(logit(share) + skill * score - skill**2 / 2)
            density = share * np.exp(skill * score - skill**2 / 2) * normal + (1 - share) * normal
            brier = np.trapezoid(chance * (1 - chance) * density, score)
            ends.append((np.trapezoid(precision[::-1], recall[::-1]), brier))
        out[:, :, k] = [np.interp(skills[:, k], grid, values) for values in zip(*ends, strict=True)]
    return out[0], out[1]


def _rows(studies: list[_Study], truths: dict[tuple[str, str], Ends]) -> Iterator[tuple]:
    keys = studies[0].keys
    names = [label for label, metric in keys if metric == "average_precision"][:-1]
    patients, tuned = np.array([study.patients for study in studies]), _tuned(studies)
    for kind, (label, metric) in product((ONE, ONE + FIXED, MEAN, MEAN + FIXED), SIMULATED_METRICS):
        has_threshold = metric in WITH_THRESHOLDS
        if FIXED in kind and not has_threshold:
            continue
        columns = [keys.index((name, metric)) for name in ([label] if label else names)]
        low, high = np.array([study.ends[kind] for study in studies]).swapaxes(0, 1)[..., columns]
        truth = truths[label, metric][ONE not in kind].reshape(len(studies), -1)
        if label:
            yield from judged((kind, SIMULATED_METRICS[label, metric]), low, high, truth)
        else:
            truth = np.where(tuned | (not has_threshold), truth, np.nan)
            yield from judged((kind, SIMULATED_METRICS[label, metric]), low, high, truth, patients)
