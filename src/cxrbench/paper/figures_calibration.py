"""The paper's reliability figure: share of positives beside the mean score, per network."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cxrbench.analysis.calibration import reliability
from cxrbench.analysis.sample import sample_of
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS
from cxrbench.paper.figures import COLOURS, WIDTH, no_evidence
from cxrbench.paper.results import PHANTOM

_FLOOR = 5e-4  # a share of zero has no place on a logarithmic axis: its interval ends here
_COLUMNS = 3


def reliability_curves(cells: pd.DataFrame, folder: Path) -> Figure:
    """Share of positives against mean score, all findings pooled, of each network's first seed on the main
    dataset; bars are 95 % intervals clustered by patient. On the diagonal scores mean what they say."""
    ok = cells[cells["status"] == "ok"].sort_values(
        "dataset", key=lambda names: names.str.startswith(PHANTOM), kind="stable"
    )
    if ok.empty:
        return no_evidence("No cell has run.")
    first = ok[ok["dataset"] == ok["dataset"].iloc[0]].drop_duplicates(["architecture", "platform"])
    lines = -(-len(first) // _COLUMNS)
    figure, panels = plt.subplots(
        *(lines, min(len(first), _COLUMNS)),
        figsize=(WIDTH, 0.4 + 2.0 * lines),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes in panels.flat[len(first) :]:
        axes.axis("off")
    for axes, row in zip(panels.flat, first.itertuples(), strict=False):
        bins = reliability(sample_of(read_predictions(folder / row.cell / PREDICTIONS), "test"))
        axes.plot([_FLOOR, 1], [_FLOOR, 1], color="0.7", lw=0.6)
        axes.vlines(bins["score"], bins["ci_low"].clip(_FLOOR), bins["ci_high"], color=COLOURS[1], lw=1)
        some = bins[bins["share"] > 0]
        axes.plot(some["score"], some["share"], "o", color=COLOURS[1], ms=3.5)
        axes.set(xscale="log", yscale="log", xlim=(_FLOOR, 1), ylim=(_FLOOR, 1))
        axes.set_title(f"{row.architecture}, {row.platform}", fontsize=9)
    figure.supxlabel("mean score", fontsize=9)
    figure.supylabel("share of positives", fontsize=9)
    return figure
