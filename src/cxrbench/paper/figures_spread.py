"""The paper's figure of seeds: how far trainings of one network lie apart, beside the patients' part."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cxrbench.paper.figures import COLOURS, WIDTH, no_evidence


def seed_spread(metrics: pd.DataFrame, spread: pd.DataFrame) -> Figure:
    """Macro AUROC per seed with its interval over patients (thin), and the mean with that over both (bar).

    ``metrics`` has one row per cell, ``spread`` one per group; a group of one seed has no bar.
    """
    rows = metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")]
    if rows.empty:
        return no_evidence("No cell has run.")
    groups = list(rows.groupby(["dataset", "architecture", "platform"], sort=False))
    figure, axes = plt.subplots(figsize=(WIDTH, 0.6 + 0.2 * len(groups)), layout="constrained")
    means = spread[(spread["metric"] == "auroc") & (spread["label"] == "macro")]
    means = means.set_index(["dataset", "architecture", "platform"])
    for y, (group, some) in enumerate(groups):
        places = [y + 0.16 * (number - (len(some) - 1) / 2) for number in range(len(some))]
        axes.hlines(places, some["ci_low"], some["ci_high"], color="0.6", lw=0.8)
        axes.plot(some["value"], places, "o", color=COLOURS[0], ms=3)
        if group in means.index and pd.notna(means.loc[group, "ci_low"]):
            low, high = means.loc[group, ["ci_low", "ci_high"]]
            axes.hlines(y, low, high, color=COLOURS[1], lw=5, alpha=0.45)
            axes.plot(means.loc[group, "mean"], y, "|", color=COLOURS[1], ms=11, mew=1.5)
        elif len(some) == 1:
            axes.annotate("one seed", (some["ci_high"].iloc[0], y), xytext=(5, 0), textcoords="offset points",
                          va="center", fontsize=7, color="0.4")  # fmt: skip
    axes.set_yticks(range(len(groups)), [" ".join(group) for group, _ in groups])
    axes.set(xlabel="macro AUROC on test images", ylim=(len(groups) - 0.5, -0.5))
    axes.margins(x=0.12)
    return figure
