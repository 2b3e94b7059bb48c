"""The paper's figures about data: drawn radiographs, how frequent findings are, which occur together."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxrbench.analysis.matrix import NOT_RUN
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.phantom import VIEWS, examples
from cxrbench.evidence.record import RECORD, read_record
from cxrbench.paper.figures import COLOURS, MARKERS, WIDTH
from cxrbench.paper.fmt import words

_PIXELS = 160  # of a sample: finer than the paper prints it
_SAMPLES = (*VIEWS, "Cardiomegaly", "Effusion", "Pneumothorax", "Mass", "Infiltration", "Emphysema")


def samples() -> Figure:
    """Phantoms, one of each kind: what the embedded dataset looks like."""
    pictures = examples(_SAMPLES, 1, _PIXELS)
    columns = 4
    lines = -(-len(pictures) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(WIDTH, 1.62 * lines), layout="constrained")
    for axes, (caption, picture) in zip(panels.flat, pictures, strict=True):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(words(caption), fontsize=8, pad=2)
        axes.axis("off")
    return figure


def labels(cells: pd.DataFrame, folder: Path) -> Figure:
    """Share of positive images per finding and dataset; and which findings occur together in all of NIH's."""
    counts = _shares(cells, folder)
    table = read_nih_table()[list(FINDINGS)]
    shares = {"ChestX-ray14, all": (table.mean()).to_dict(), **counts}
    order = sorted(FINDINGS, key=lambda finding: -shares["ChestX-ray14, all"][finding])
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(WIDTH, 3.1), layout="constrained", width_ratios=(1, 1.15), sharey=True
    )
    for number, (name, share) in enumerate(shares.items()):
        left.plot(
            [100 * share[finding] for finding in order], range(len(order)), MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)], ms=4, mfc="none" if number else None, label=name,
        )  # fmt: skip
    left.set(xscale="log", xlabel="positive images (%)")
    left.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    left.grid(axis="both", color="0.92", lw=0.5)
    left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=1)
    _together(right, table[order])
    left.set_yticks(range(len(order)), [words(finding) for finding in order])
    return figure


def _together(axes: Axes, table: pd.DataFrame) -> None:
    """Of the images with the finding of a row, the percentage that has the finding of a column too."""
    values = table.to_numpy(dtype=np.float64)
    together = values.T @ values
    share = 100 * together / np.diag(together)[:, None]
    np.fill_diagonal(share, np.nan)
    image = axes.imshow(share, cmap="Greys", vmin=0, vmax=np.nanmax(share), aspect="auto")
    names = [words(finding) for finding in table]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.tick_params(length=0, labelleft=False)
    axes.spines[:].set_visible(False)
    for row, column in np.argwhere(share >= np.nanmax(share) / 3):
        dark = share[row, column] > 0.6 * np.nanmax(share)
        axes.text(
            column, row, f"{share[row, column]:.0f}", ha="center", va="center", fontsize=6,
            color="white" if dark else "black",
        )  # fmt: skip
    axes.figure.colorbar(image, ax=axes, label="also has the column's finding (%)", shrink=0.8, pad=0.02)


def _shares(cells: pd.DataFrame, folder: Path) -> dict[str, dict[str, float]]:
    """Return the share of positive images per dataset and finding; datasets of equal shares together."""
    datasets: dict[tuple[float, ...], list[str]] = {}
    for dataset, some in cells[cells["status"] != NOT_RUN].groupby("dataset", sort=False):
        if identity := read_record(folder / some["cell"].iloc[0] / RECORD).dataset:
            total = sum(identity.images.values())
            shares = tuple(sum(identity.positive_images[name].values()) / total for name in FINDINGS)
            datasets.setdefault(shares, []).append(str(dataset))
    return {", ".join(alike): dict(zip(FINDINGS, shares, strict=True)) for shares, alike in datasets.items()}
