"""The paper's tables of calibration and average precision, from metrics.csv."""

from __future__ import annotations

import pandas as pd

from cxrbench.datasets.findings import FINDINGS
from cxrbench.paper import provenance
from cxrbench.paper.results import (
    INTERVAL_OF,
    PHANTOM,
    UNDEFINED,
    Group,
    Results,
    Table,
    finding_name,
    group_name,
    range_of_seeds,
)

MACRO = "macro"


def calibration(read: Results) -> Table:
    """Do scores mean what they say? Means over the findings, every network on real radiographs.

    Calibration error: mean distance between score and share of positives in fifteen bins with equally many
    images; by chance: what perfectly calibrated scores would show with these patients; both from the lowest
    seed to the highest, as neither has an interval. In the large: mean score less share of positives. The
    other columns are means over seeds with the interval of that mean, or of the one network. Average
    precision stands beside prevalence, which it has without skill.
    """
    rows = []
    for group in _real(read):
        error, chance = (
            range_of_seeds(read.of(group, name, MACRO)["value"])
            for name in ("calibration_error", "calibration_error_by_chance")
        )
        rows.append(
            {
                "Network": group_name(group),
                "Calibration error": error,
                "By chance": chance,
                "In the large, %": read.mean(group, "calibration_in_the_large", MACRO, scale=100),
                "Brier score": read.mean(group, "brier", MACRO),
                "Average precision": read.mean(group, "average_precision", MACRO),
                "Prevalence": _number(_prevalence(read, group).mean()),
                INTERVAL_OF: read.interval_of(group),
                provenance.COLUMN: provenance.of_group(read, *group),
            }
        )
    return pd.DataFrame(rows), "lrrrrrrll"


def average_precision(read: Results) -> Table:
    """Average precision per finding on the main dataset, beside the prevalence, which it has without skill.

    Means over seeds with the 95 % interval of that mean, or of the one network.
    """
    groups = [group for group in read.scored() if group[0] == read.main()]
    if not groups:
        return pd.DataFrame(), ""
    prevalence = _prevalence(read, groups[0])
    columns = {
        "Finding": [*map(finding_name, FINDINGS), "Macro", INTERVAL_OF, provenance.COLUMN],
        "Prevalence": [*map(_number, prevalence), _number(prevalence.mean()), "", ""],
    }
    for group in groups:
        columns[group_name(group)] = [
            *(read.mean(group, "average_precision", label) for label in (*FINDINGS, MACRO)),
            read.interval_of(group),
            provenance.of_group(read, *group),
        ]
    return pd.DataFrame(columns), "lr" + "c" * len(groups)


def _real(read: Results) -> list[Group]:
    """The scored groups on real radiographs; all where there are none."""
    real = [group for group in read.scored() if not group[0].startswith(PHANTOM)]
    return real or read.scored()


def _prevalence(read: Results, group: Group) -> pd.Series:
    """Share of positive test images of each finding."""
    shares = [
        (rows["n_positive"] / rows["n_images"]).astype(float).mean()
        for rows in (read.of(group, "average_precision", label) for label in FINDINGS)
    ]
    return pd.Series(shares, index=FINDINGS)


def _number(value: float) -> str:
    return f"{value:.3f}" if pd.notna(value) else UNDEFINED
