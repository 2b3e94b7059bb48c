"""The recorded simulations of intervals and verdicts: files, columns and labels.

:mod:`benchmarks.coverage` writes them (`make coverage`); the paper and docs/statistics.md quote them.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from cxrbench.statistics.metrics import MACRO, METRICS, PLAIN, TUNED, as_title


class Simulation(NamedTuple):
    """A recorded table: its file below the folder of recorded evidence, and its columns."""

    file: str
    columns: list[str]

    def read(self, recorded: Path) -> pd.DataFrame:
        """The table below ``recorded``; empty where nothing is recorded."""
        path = recorded / self.file
        return (
            pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame(columns=self.columns)
        )


_RATE = ["cases", "rate", "monte_carlo_error"]
_WIDTH = ["mean_width", "wide"]  # of the intervals; the share that is wider than WIDE
WIDE = 0.5
COVERAGE = Simulation("simulated/coverage.csv", ["what", "auroc", "positive_patients", *_RATE, *_WIDTH])
VERDICT_RATES = Simulation("simulated/verdicts.csv", ["what", "platform_share", "seeds", *_RATE])
MEAN_COVERAGE = Simulation("simulated/means.csv", ["what", "metric", "positive_patients", *_RATE, *_WIDTH])
COMPARISONS = Simulation(
    "simulated/comparisons.csv",
    ["what", "difference", "runs", "paired", "patients", *_RATE, "mean_width"],
)
REFERENCES = Simulation("simulated/references.csv", ["what", *_RATE, "noticeable"])
PILOTS = Simulation("simulated/pilots.csv", ["network", "pilot_runs", "runs", "power_said", *_RATE])
OF_RUNS = ("endpoint", "macro", "findings")  # labels in the column ``what`` of REFERENCES
# labels in the column ``what`` of COMPARISONS
SAID_DIFFERENT, SAID_EQUIVALENT, HOLDS = "different", "equivalent", "95 % interval holds the truth"
STATEMENTS = (SAID_DIFFERENT, SAID_EQUIVALENT, HOLDS)

FEW = "5 to 14"  # in the column ``positive_patients``: findings with the fewest

# labels in the column ``what``: of COVERAGE
FINDING, FINDING_BY_IMAGE = "finding", "finding, images as patients"  # and MACRO
FINDING_OWN = "finding, variance not moderated"  # as of means and differences: CR3, effective patients
# of real scores: with, and without, the patient who has most of the finding's variance among all of them
FINDING_WITH, FINDING_WITHOUT = "finding, heaviest patient drawn", "finding, heaviest patient not drawn"
REAL = "real scores"  # in the column ``auroc``: drawn with their patients from recorded networks'
# of VERDICT_RATES: false statements, and an interval
DIFFERENT, SOME_DIFFERENT = "macro different, none is", "some finding different, none is"
EQUIVALENT = "finding equivalent, at the margin"
EVERY_EQUIVALENT = "every finding equivalent, one at the margin"
MACRO_EQUIVALENT = "macro equivalent, at the margin"
ERRORS = (DIFFERENT, SOME_DIFFERENT, EQUIVALENT, EVERY_EQUIVALENT, MACRO_EQUIVALENT)
MEAN_HOLDS = "interval of the mean over seeds holds the truth"
# of MEAN_COVERAGE: each kind also with FIXED behind it, for thresholds taken as fixed
ONE, MEAN, FIXED = "one network", "mean of three", ", thresholds fixed"


# labels in the column ``metric`` of MEAN_COVERAGE, by (label, metric) of a cell's table; no label: of
# each finding
def _titles(*names: str, single: bool = False) -> dict[tuple[str, str], str]:
    keys = [("" if single else METRICS[name].label, name) for name in names]
    return {key: as_title(*key) for key in keys}


F1_WHOLE = _titles("f1_macro", "f1_weighted", "f1_micro", "f1_samples")
PRECISION_WHOLE = _titles("average_precision")
CALIBRATION_WHOLE = _titles(*PLAIN)
BY_FINDING = _titles("average_precision", *TUNED, single=True)
SIMULATED_METRICS = PRECISION_WHOLE | CALIBRATION_WHOLE | F1_WHOLE | BY_FINDING


def rates(recorded: Path) -> dict[str, pd.Series]:
    """The coverage of intervals, by the names of the values: ``coverage/...``."""
    rows = COVERAGE.read(recorded)
    findings, macro = (rows[rows["what"] == label] for label in (FINDING, MACRO))
    few = findings["positive_patients"] == FEW
    means = MEAN_COVERAGE.read(recorded).query("positive_patients == ''").set_index("metric")
    refit = means.loc[~means["what"].str.endswith(FIXED), "rate"]
    anew, fixed = (means.loc[means["what"] == label, "rate"] for label in (MEAN, MEAN + FIXED))
    rate_by_name = {
        "coverage/many": findings.loc[~few, "rate"],
        "coverage/few": findings.loc[few, "rate"],
        "coverage/macro": macro["rate"],
        "coverage/f1": anew[anew.index.isin(F1_WHOLE.values())],
        "coverage/f1 fixed": fixed[fixed.index.isin(F1_WHOLE.values())],
        "coverage/precision": refit[refit.index.isin(PRECISION_WHOLE.values())],
        "coverage/brier": refit[refit.index.isin(CALIBRATION_WHOLE.values())],
    }
    return {name: rate.astype(float) for name, rate in rate_by_name.items()}
