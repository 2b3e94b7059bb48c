"""What thresholds taken as fixed leave out of the intervals of F1, in simulated studies.

An interval of F1 speaks of the network at its thresholds. Chosen on other validation patients they would be
others, and so would F1: how often the same interval holds the F1 that the whole procedure has on average?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtrit

from cxrbench.metrics.coverage import PATIENTS, rate_of
from cxrbench.metrics.estimates import f1_estimates
from cxrbench.metrics.studies import Archive, noise, scored, skill_of
from cxrbench.metrics.thresholds import choose_thresholds

FILE = "simulated/thresholds.csv"  # below the folder of recorded evidence
COLUMNS = ["what", "auroc", "cases", "rate", "monte_carlo_error"]
STUDIES = 1000
TRUTH = 0.8
VALIDATION = 260  # patients, about nih128's
FIXED = "F1 at these thresholds"
CHOSEN = "F1 of choosing thresholds and scoring, on average"


def simulate_thresholds(studies: int = STUDIES) -> pd.DataFrame:
    """How often the interval of macro F1 holds each of the two truths (columns ``COLUMNS``)."""
    archive = Archive.read()
    found = list(_studies(archive, studies))
    low, high = np.array([ends for ends, _ in found]).T
    values = np.array([each for _, each in found])  # NaN where a finding has no threshold
    tuned = np.isfinite(values)
    typical = np.where(tuned, np.nansum(values, axis=0) / np.maximum(tuned.sum(axis=0), 1), np.nan)
    truths = {FIXED: np.nanmean(values, axis=1), CHOSEN: np.nanmean(typical, axis=1)}
    rows = [(what, TRUTH, *rate_of((low <= truth) & (truth <= high))) for what, truth in truths.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def _studies(archive: Archive, studies: int) -> Iterator[tuple[tuple[float, float], np.ndarray]]:
    """The interval of macro F1 in each study, and the true F1 (L,) at its thresholds."""
    prevalence, skill = archive.labels.mean(axis=0), skill_of(TRUTH)
    for number in range(studies):
        rng = np.random.default_rng([3, number])
        val, test = (archive.draw(rng, patients) for patients in (VALIDATION, PATIENTS))
        thresholds = choose_thresholds(scored(val, skill, noise(rng, val)))
        macro, _ = f1_estimates(scored(test, skill, noise(rng, test)), thresholds)
        reach = stdtrit(macro.degrees[0], 0.975) * macro.error[0]
        ends = (macro.value[0] - reach, macro.value[0] + reach)
        hits, false = ndtr(skill - thresholds.f1), ndtr(-thresholds.f1)
        called = prevalence * hits + (1 - prevalence) * false
        yield ends, 2 * prevalence * hits / (called + prevalence)
