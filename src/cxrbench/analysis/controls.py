"""Controls: the metrics of scores whose worth is known. A failing control stops the paper."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import auroc, interval
from cxrbench.analysis.sample import Sample, sample_of
from cxrbench.analysis.thresholds import MIN_PATIENTS
from cxrbench.study.errors import UserError

EXACT = 1e-12
LEVEL = 0.9999  # of the shuffled control: a study of a hundred sound cells should not fail by chance


class Control(NamedTuple):
    """A control: the macro AUROC, and between which bounds it must be."""

    name: str
    value: float
    low: float
    high: float

    @property
    def ok(self) -> bool:
        """Whether the value is within its bounds."""
        return self.low <= self.value <= self.high


def check_controls(predictions: pd.DataFrame, *, seed: int = 0) -> list[Control]:
    """Return macro AUROC of a constant score (0.5), of the label as score (1.0) and of shuffled labels.

    Shuffled labels must give 0.5 within the patient-clustered interval at ``LEVEL``. Labels in patient
    order go to patients in random order (fixed by ``seed``), so that they stay clustered.
    """
    sample = sample_of(predictions)
    constant, perfect = np.full_like(sample.scores, 0.5), sample.labels.astype(float)
    shuffled, reach = _macro(_shuffled(sample, seed))
    return [
        Control("constant score", _macro(replace(sample, scores=constant))[0], 0.5 - EXACT, 0.5 + EXACT),
        Control("label as score", _macro(replace(sample, scores=perfect))[0], 1 - EXACT, 1 + EXACT),
        Control("shuffled labels", shuffled, 0.5 - reach, 0.5 + reach),
    ]


def require_controls(predictions: pd.DataFrame, where: str) -> None:
    """Raise UserError, naming ``where`` the predictions come from, when a control fails."""
    for control in check_controls(predictions):
        if not control.ok:
            raise UserError(
                f"{where}: the control '{control.name}' gives a macro AUROC of {control.value:.4f}, outside "
                f"{control.low:.4f} to {control.high:.4f}; the metrics or these labels are wrong: "
                "restore the file with git or run the cell again, and do not publish until it passes"
            )


def _shuffled(sample: Sample, seed: int) -> Sample:
    """Return the sample with labels in patient order assigned to images in random patient order."""
    rng = np.random.default_rng(seed)
    given = np.argsort(sample.clusters, kind="stable")
    taken = np.argsort(rng.permutation(sample.n_clusters)[sample.clusters], kind="stable")
    labels, unknown = np.empty_like(sample.labels), np.empty_like(sample.unknown)
    labels[taken], unknown[taken] = sample.labels[given], sample.unknown[given]
    return replace(sample, labels=labels, unknown=unknown)


def _macro(sample: Sample) -> tuple[float, float]:
    """Return the macro AUROC and half the width of its interval."""
    estimate = auroc(sample)
    # few patients leave an error too wide to catch anything; without errors at all the value still counts
    estimable = np.isfinite(estimate.error)
    choices = (estimable & (estimate.freedom >= MIN_PATIENTS - 1), estimable, np.isfinite(estimate.value))
    macro = estimate.mean(next((labels for labels in choices if labels.any()), estimable))
    low, high = interval(macro.value, macro.error, macro.degrees, LEVEL)
    return float(macro.value[0]), float(high[0] - low[0]) / 2
