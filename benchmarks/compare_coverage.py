"""How often `cxrbench compare` errs: simulated studies of two platforms with real scores.

Patients are drawn with replacement from a recorded network's test and validation patients, with their images
and labels. A run's score of an image is the network's (log-odds, mean over its seeds, in units of their
deviation) plus noise of the run: ``IMAGE`` of each image and finding, and ``SKILL`` of each finding on its
positive images. Runs of one number share half of that variance between platforms. On the second platform the
positive images score lower by as much as makes its expected AUROC, over all pairs of the network's images,
lower by the ``difference`` in each finding: so the truth is known without a simulation. Seeds are fixed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import logit, ndtr

from benchmarks.coverage import Archive, _rate_of, archive, drawn
from cxrbench.results import simulated
from cxrbench.statistics.auroc import Estimate, auroc
from cxrbench.statistics.comparison import MARGIN, difference_of
from cxrbench.statistics.components import Verdict, verdict_of
from cxrbench.statistics.sample import Sample

SCORED = ("nih128-32px/resnet18", "nih128-32px/convnext_pico")
IMAGE, SKILL = 0.35, 0.05  # as between recorded runs: 1.4e-5 of patients x run (510 patients), 1e-5 of runs
SHARE = 0.5  # of the variance of runs, which platforms make anew for a run of one number
DIFFERENCES, RUNS = (0.0, 0.005, 0.01, 0.02), (3, 5, 10)
# By number of patients: studies, and true differences; many patients take long, so these are two there.
SETTINGS = {200: (300, DIFFERENCES), 500: (300, DIFFERENCES), 2000: (150, (0.0, MARGIN))}
FEWEST_POSITIVE = 10  # patients with a finding of the endpoint


@cache
def base(network: Path) -> Archive:
    """Return the patients of a recorded network with its standardised log-odds."""
    everyone = archive(network)
    odds = logit(np.clip(everyone.scores, 1e-7, 1 - 1e-7))
    scores = (odds - odds.mean(axis=0)) / odds.std(axis=0)
    return Archive(everyone.labels, everyone.starts, everyone.sizes, scores)


@cache
def shifts(network: Path, difference: float) -> np.ndarray:
    """Return by how much (L,) positive images of a finding score lower where its AUROC is lower by
    ``difference``."""
    patients = base(network)
    noise = np.sqrt(2 * IMAGE**2 + SKILL**2)
    found = np.zeros(patients.labels.shape[1])
    for k, positive in enumerate(patients.labels.T):
        if not difference or positive.sum() < 2:
            continue
        apart = (patients.scores[positive, k][:, None] - patients.scores[~positive, k][None, :]).ravel()
        expected = ndtr(apart / noise).mean() - difference
        found[k] = brentq(lambda s, a=apart, e=expected: ndtr((a - s) / noise).mean() - e, 0, 3, xtol=1e-6)
    return found


def simulate_comparisons(recorded: Path, patients: Iterable[int] = SETTINGS) -> pd.DataFrame:
    """One row per statement, true difference, number of runs, pairing and number of patients."""
    rows = []
    for count in patients:
        studies, differences = SETTINGS[count]
        work = partial(_study, recorded, count, differences)
        made = pd.DataFrame(row for study in drawn(work, studies, 5) for row in study)
        names = ["difference", "runs", "paired"]
        for (difference, runs, paired), cases in made.groupby(names, sort=False):
            for statement in simulated.STATEMENTS:
                rate = _rate_of(cases[statement].to_numpy())
                rows.append(
                    (statement, difference, runs, paired, count, *rate, round(cases["width"].mean(), 4))
                )
    return pd.DataFrame(rows, columns=simulated.COMPARISONS.columns)


def _study(recorded: Path, count: int, differences: Sequence[float], number: int) -> list[dict]:
    """Return what is said in one study of ``count`` patients, by difference, number of runs and pairing."""
    network = recorded / SCORED[number % len(SCORED)]
    rng = np.random.default_rng([5, count, number])
    patients = base(network)
    study = patients.of(rng.integers(0, len(patients.starts), count))
    most, rows = max(RUNS), []
    common = [_noise(rng, study) for _ in range(2 * most)]
    first = {seed: _scored(study, _mixed(common[seed], _noise(rng, study))) for seed in range(most)}
    mixed = [_mixed(common[seed], _noise(rng, study)) for seed in range(2 * most)]
    for difference in differences:
        lower = shifts(network, difference) * study.labels
        second = {seed: _scored(study, noise - lower) for seed, noise in enumerate(mixed)}
        for runs in RUNS:
            for paired in (True, False):
                seeds = range(runs) if paired else range(most, most + runs)
                found = difference_of(
                    {seed: first[seed] for seed in range(runs)}, {seed: second[seed] for seed in seeds}
                )
                ends = [float(end[0]) for level in (0.9, 0.95) for end in found.interval(level)]
                verdict = verdict_of(ends, MARGIN)
                rows.append(
                    {
                        **{"difference": difference, "runs": runs, "paired": paired},
                        simulated.SAID_DIFFERENT: verdict is Verdict.DIFFERENT,
                        simulated.SAID_EQUIVALENT: verdict is Verdict.EQUIVALENT,
                        simulated.HOLDS: ends[2] <= difference <= ends[3],
                        "width": ends[3] - ends[2],
                    }
                )
    return rows


def _noise(rng: np.random.Generator, study: Sample) -> np.ndarray:
    """Return the noise (images, L) of a run."""
    shape = study.labels.shape
    return IMAGE * rng.normal(size=shape) + SKILL * rng.normal(size=shape[1]) * study.labels


def _mixed(common: np.ndarray, own: np.ndarray) -> np.ndarray:
    return np.sqrt(1 - SHARE) * common + np.sqrt(SHARE) * own


def _scored(study: Sample, noise: np.ndarray) -> Estimate:
    """Return the mean AUROC of a run over findings with enough positive patients."""
    areas = auroc(replace(study, scores=study.scores + noise))
    many = study.positive_clusters(study.labels) >= FEWEST_POSITIVE
    return areas.mean(many & np.isfinite(areas.error))
