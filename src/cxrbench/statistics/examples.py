"""Predictions of a few made-up patients, on which the examples of this room run."""

import numpy as np
import pandas as pd

FINDINGS = ("Edema", "Mass")
_PATIENTS, _POSITIVE = 60, 0.4  # with two images each; how often a patient has a finding


def predictions(run: int = 0, skill: float = 1.0) -> pd.DataFrame:
    """A table of predictions: 40 test and 20 validation patients, whose labels are the same in every ``run``.

    >>> table = predictions()
    >>> table["split"].value_counts().to_dict(), list(table)[3:]
    ({'test': 80, 'val': 40}, ['label_Edema', 'label_Mass', 'score_Edema', 'score_Mass'])
    """
    truth, noise = np.random.default_rng(1), np.random.default_rng([2, run])
    patient = np.repeat(np.arange(_PATIENTS), 2)
    table = pd.DataFrame({"image": [f"i{k:03}" for k in range(len(patient))], "patient": patient})
    table["split"] = np.where(patient < 40, "test", "val")
    labels = (truth.random((_PATIENTS, len(FINDINGS))) < _POSITIVE)[patient].astype(int)
    hidden = truth.normal(size=labels.shape) + 0.5 * noise.normal(size=labels.shape)
    scores = 1 / (1 + np.exp(-hidden - skill * labels))
    for prefix, values in (("label", labels), ("score", scores.round(4))):
        for name, column in zip(FINDINGS, values.T, strict=True):
            table[f"{prefix}_{name}"] = column
    return table
