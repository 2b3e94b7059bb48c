"""The paper's tables of calibration and average precision, from metrics.csv."""

from __future__ import annotations

import pandas as pd

from cxrbench.datasets.findings import FINDINGS
from cxrbench.report import provenance
from cxrbench.report.results import (
    PHANTOM,
    UNDEFINED,
    Group,
    Results,
    Table,
    finding_name,
    group_name,
    mean_of_seeds,
    with_interval,
)

MACRO = "macro"


def calibration(read: Results) -> Table:
    """Do scores mean what they say? Means over the findings and seeds, every network on real radiographs.

    Calibration error: mean distance between score and share of positives in fifteen bins with equally many
    images; by chance: what perfectly calibrated scores would show with these patients. In the large: mean
    score less share of positives. Average precision stands beside prevalence, which it has without skill.
    """
    rows = []
    for group in _real(read):
        error, chance = (
            read.of(group, name, MACRO)["value"].mean()
            for name in ("calibration_error", "calibration_error_by_chance")
        )
        rows.append(
            {
                "Network": group_name(group),
                "Calibration error": _number(error),
                "By chance": _number(chance),
                "In the large, %": _in_the_large(read, group),
                "Brier score": read.mean(group, "brier", MACRO),
                "Average precision": read.mean(group, "average_precision", MACRO),
                "Prevalence": _number(_prevalence(read, group).mean()),
                provenance.COLUMN: provenance.of_group(read, *group),
            }
        )
    return pd.DataFrame(rows), "lrrrrrrl"


def average_precision(read: Results) -> Table:
    """Average precision per finding on the main dataset, beside the prevalence, which it has without skill.

    Means over seeds; of one seed with its 95 % interval, clustered by patient.
    """
    groups = [group for group in read.scored() if group[0] == read.main()]
    if not groups:
        return pd.DataFrame(), ""
    prevalence = _prevalence(read, groups[0])
    columns = {
        "Finding": [*map(finding_name, FINDINGS), "Macro", provenance.COLUMN],
        "Prevalence": [*map(_number, prevalence), _number(prevalence.mean()), ""],
    }
    for group in groups:
        columns[group_name(group)] = [
            *(read.mean(group, "average_precision", label) for label in (*FINDINGS, MACRO)),
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


def _in_the_large(read: Results, group: Group) -> str:
    """Mean score less share of positives in percent: a seed's with its interval, a mean over seeds alone."""
    rows = read.of(group, "calibration_in_the_large", MACRO)
    percent = rows.assign(**rows[["value", "ci_low", "ci_high"]].astype(float) * 100)
    return with_interval(percent) if len(rows) < 2 else mean_of_seeds(percent["value"])


def _number(value: float) -> str:
    return f"{value:.3f}" if pd.notna(value) else UNDEFINED
