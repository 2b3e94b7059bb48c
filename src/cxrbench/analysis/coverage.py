"""How often the intervals hold the truth in simulated studies of NIH's patients.

`make coverage` records the table, and the paper and docs/statistics.md quote it. Seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import Estimate, auroc, interval
from cxrbench.analysis.studies import Archive, noise, scored, skill_of

FILE = "simulated/coverage.csv"  # below the folder of recorded evidence
COLUMNS = ["what", "auroc", "positive_patients", "cases", "rate", "monte_carlo_error"]
PATIENTS = 510  # of nih128's test part
STUDIES = 2000
AUROCS = (0.7, 0.9)  # the skill of all findings
BANDS = ((2, 4), (5, 9), (10, 14), (15, 29), (30, 99), (100, PATIENTS))
FINDING, FINDING_BY_IMAGE, MACRO = "finding", "finding, images as patients", "macro"


def simulate(studies: int = STUDIES) -> pd.DataFrame:
    """One row per kind of interval, skill and band of positive patients (columns ``COLUMNS``)."""
    return pd.DataFrame(_intervals(Archive.read(), studies), columns=COLUMNS)


def rate_of(hits: np.ndarray) -> tuple[int, float, float]:
    """The number of cases, the share of ``hits`` (cases,) and its Monte-Carlo error."""
    rate = float(np.mean(hits))
    error = float(np.sqrt(rate * (1 - rate) / len(hits)))
    return len(hits), round(rate, 4), round(error, 4)


def _row(what: str, auroc: float, band: str, hits: np.ndarray) -> dict:
    return dict(zip(COLUMNS, (what, auroc, band, *rate_of(hits)), strict=True))


def _intervals(archive: Archive, studies: int) -> Iterator[dict]:
    for number, truth in enumerate(AUROCS):
        positive, hits, by_image, macro = [], [], [], []
        for study in range(studies):
            rng = np.random.default_rng([number, study])
            drawn = archive.draw(rng, PATIENTS)
            sample = scored(drawn, skill_of(truth), noise(rng, drawn))
            areas = auroc(sample)
            positive.append(sample.positive_clusters(sample.labels))
            hits.append(_covers(areas, truth))
            by_image.append(_covers(auroc(sample.as_images()), truth))
            macro.append(_covers(areas.mean(np.isfinite(areas.error)), truth)[0])
        patients = np.concatenate(positive)
        for low, high in BANDS:
            inside = (patients >= low) & (patients <= high)
            band = f"{low} or more" if high == PATIENTS else f"{low} to {high}"
            for what, each in ((FINDING, hits), (FINDING_BY_IMAGE, by_image)):
                yield _row(what, truth, band, np.concatenate(each)[inside])
        yield _row(MACRO, truth, "", np.array(macro))


def _covers(areas: Estimate, truth: float) -> np.ndarray:
    """Whether each 95 % interval holds the ``truth``; an interval that does not exist holds nothing."""
    low, high = interval(areas.value, areas.error, areas.degrees)
    return np.asarray((low <= truth) & (truth <= high))
