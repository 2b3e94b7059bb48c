"""The figure of step parity: how far the same steps drift apart on different platforms."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cxrbench.evidence.tolerances import STEP_TOLERANCE, TESTED_STEPS
from cxrbench.paper.figures import COLOURS, DASHES, WIDTH, no_evidence


def step_parity(rows: pd.DataFrame) -> Figure:
    """Relative differences from the CPU per optimizer step: loss, gradient norm and weights."""
    if rows.empty:
        return no_evidence("No steps have been compared.")
    parts = {
        "loss_difference": "loss",
        "gradient_norm_difference": "gradient norm",
        "weights_difference": "weights",
    }
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.0), sharex=True, sharey=True, layout="constrained")
    for (column, title), one in zip(parts.items(), axes, strict=True):
        groups = rows.groupby(["platform", "architecture"], sort=False)
        platforms = list(dict.fromkeys(rows["platform"]))
        networks = list(dict.fromkeys(rows["architecture"]))
        for (platform, network), some in groups:
            one.plot(
                some["step"],
                some[column].clip(lower=1e-9),  # equal bits are drawn at the lower edge
                DASHES[networks.index(network) % len(DASHES)],
                color=COLOURS[platforms.index(platform) % len(COLOURS)],
                label=f"{platform}, {network}",
            )
        one.plot((1, TESTED_STEPS), 2 * (STEP_TOLERANCE[rows["precision"].iloc[0]],), ":", color="grey")
        one.set(title=title, xlabel="optimizer step", yscale="log")
    axes[0].set_ylim(bottom=1e-9)  # shared: after all are drawn
    axes[0].set_ylabel("relative difference from cpu")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
