"""How often verdicts on two platforms, and intervals of means over seeds, err in simulated studies.

`make coverage` records the table beside that of :mod:`cxrbench.analysis.coverage`. The networks' spread over
seeds (``SKILL_SD``) is large: the harder case, because with a small one patients decide, of whom there are
many.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import Estimate, auroc, interval
from cxrbench.analysis.components import ALPHA, between_platforms, over_seeds
from cxrbench.analysis.coverage import PATIENTS, rate_of
from cxrbench.analysis.parity import holm
from cxrbench.analysis.studies import Archive, Spread, skill_of
from cxrbench.study.cores import cores

FILE = "simulated/verdicts.csv"  # below the folder of recorded evidence
COLUMNS = ["what", "platform_share", "seeds", "cases", "rate", "monte_carlo_error"]
STUDIES = 1000
SEEDS = (3, 5)
SHARES = (0.2, 0.5, 1.0)
TRUTH, MARGIN = 0.8, 0.1  # mean AUROC of each finding; what the first finding lacks on the third platform
SKILL_SD, OWN = 0.15, 0.1
DIFFERENT, SOME_DIFFERENT = "macro different, none is", "some finding different, none is"
EQUIVALENT = "finding equivalent, at the margin"
EVERY_EQUIVALENT = "every finding equivalent, one at the margin"
MACRO_EQUIVALENT = "macro equivalent, at the margin"
MEAN_HOLDS = "interval of the mean over seeds holds the truth"
ERRORS = (DIFFERENT, SOME_DIFFERENT, EQUIVALENT, EVERY_EQUIVALENT, MACRO_EQUIVALENT)

Platform = dict[int, Estimate]


def simulate_verdicts(studies: int = STUDIES) -> pd.DataFrame:
    """One row per kind of statement, share and number of seeds (columns ``COLUMNS``)."""
    rows = []
    with ProcessPoolExecutor(cores()) as pool:
        for share in SHARES:
            found = list(pool.map(partial(_study, share), range(studies), chunksize=50))
            for what, seeds in product((*ERRORS, MEAN_HOLDS), SEEDS):
                rate = rate_of(np.array([study[what, seeds] for study in found]))
                rows.append(dict(zip(COLUMNS, (what, share, seeds, *rate), strict=True)))
    return pd.DataFrame(rows, columns=COLUMNS)


@cache
def _archive() -> Archive:
    return Archive.read()


def _study(share: float, number: int) -> dict[tuple[str, int], bool]:
    """Whether each statement is made in one study of three platforms, the first two of which are equal."""
    rng = np.random.default_rng([2, round(10 * share), number])
    study = _archive().draw(rng, PATIENTS)
    truth = np.full((2, study.labels.shape[1]), TRUTH)
    truth[1, 0] -= MARGIN
    same, worse = skill_of(truth, SKILL_SD)
    spread = Spread(SKILL_SD, OWN, share)
    networks = spread.networks(rng, study, max(SEEDS), [same, same, worse])
    areas = [[auroc(network) for network in platform] for platform in networks]
    known = np.isfinite(areas[0][0].error)
    platforms = [{seed: each.with_mean(known) for seed, each in enumerate(platform)} for platform in areas]
    return {
        (what, seeds): made
        for seeds in SEEDS
        for what, made in _statements([dict(list(each.items())[:seeds]) for each in platforms], known)
    }


def _statements(platforms: list[Platform], known: np.ndarray) -> Iterator[tuple[str, bool]]:
    first, second, third = platforms
    null = between_platforms(first, second)
    yield DIFFERENT, bool(null.p_different()[-1] < ALPHA)
    yield SOME_DIFFERENT, bool((holm(null.p_among_many(len(first))[:-1][known]) < ALPHA).any())
    apart = between_platforms(first, third)
    margin = np.append(np.full(len(known), MARGIN), MARGIN / known.sum())
    equivalent = apart.p_equivalent(margin) < ALPHA
    yield EQUIVALENT, bool(equivalent[0])
    yield EVERY_EQUIVALENT, bool(equivalent[:-1][known].all())
    yield MACRO_EQUIVALENT, bool(equivalent[-1])
    mean = over_seeds(list(first.values()))
    low, high = interval(mean.value, mean.error, mean.freedom)
    yield MEAN_HOLDS, bool(low[-1] <= TRUTH <= high[-1])
