"""Predictions of a few made-up patients, on which the examples of this room run."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.sample import Sample, Thresholds, choose_thresholds, sample_of

_FINDINGS = ("Edema", "Mass")
_POSITIVE = 0.4  # how often a patient has a finding


def predictions(run: int = 0, skill: float = 1.0, patients: int = 60) -> pd.DataFrame:
    """A table of predictions, whose labels are the same in every ``run``. Two thirds of the ``patients``, who
    have two images each, are test patients, the others validation patients; 60 are too few for thresholds.

    >>> table = predictions()
    >>> table["split"].value_counts().to_dict(), list(table)[3:]
    ({'test': 80, 'val': 40}, ['label_Edema', 'label_Mass', 'score_Edema', 'score_Mass'])
    """
    truth, noise = np.random.default_rng(1), np.random.default_rng([2, run])
    patient = np.repeat(np.arange(patients), 2)
    table = pd.DataFrame({"image": [f"i{k:03}" for k in range(len(patient))], "patient": patient})
    table["split"] = np.where(patient < patients * 2 // 3, "test", "val")
    labels = (truth.random((patients, len(_FINDINGS))) < _POSITIVE)[patient].astype(int)
    hidden = truth.normal(size=labels.shape) + 0.5 * noise.normal(size=labels.shape)
    scores = 1 / (1 + np.exp(-hidden - skill * labels))
    for prefix, values in (("label", labels), ("score", scores.round(4))):
        for name, column in zip(_FINDINGS, values.T, strict=True):
            table[f"{prefix}_{name}"] = column
    return table


def scored() -> tuple[Sample, Thresholds]:
    """The test images of 100 patients, and the thresholds that 50 validation patients give.

    >>> sample, thresholds = scored()
    >>> sample.labels.shape, thresholds.f1.tolist()  # of two findings
    ((200, 2), [0.2686, 0.6482])
    """
    table = predictions(patients=150)
    return sample_of(table), choose_thresholds(sample_of(table, "val"))


class RunName(NamedTuple):
    """The name of a run."""

    dataset: str
    architecture: str
    platform: str
    seed: int


def cells(seeds: int = 3) -> dict[RunName, CellEstimate]:
    """Estimates of ``seeds`` runs on each of the platforms ``one`` and ``two``, by name.

    >>> {name.platform: name.seed for name in cells()}  # the last seed of each
    {'one': 2, 'two': 2}
    """
    names = [RunName("drawn", "net", platform, seed) for platform in ("one", "two") for seed in range(seeds)]
    return {name: estimate_cell(predictions(number, patients=150)) for number, name in enumerate(names)}
