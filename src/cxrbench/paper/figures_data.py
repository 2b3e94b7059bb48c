"""The figures of the data: phantoms, and which findings images have."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from cxrbench.datasets.nih_table import FINDINGS, drawn_rows, read_nih_table
from cxrbench.datasets.phantom import draw
from cxrbench.paper.figures import COLOURS, WIDTH, styled, width
from cxrbench.paper.formats import first_of, words
from cxrbench.paper.results import Results


def samples(_: Results) -> Figure:
    """Draw six phantoms: what the embedded dataset looks like."""
    return phantoms(("PA", "AP", "Cardiomegaly", "Effusion", "Pneumothorax", "Mass"), 1, 6)


def phantoms(kinds: Sequence[str], count: int, columns: int) -> Figure:
    """Draw ``count`` phantoms of each of the ``kinds`` of :func:`rows_of`."""
    rows = drawn_rows(kinds, count)
    size = WIDTH, 1.25 * 6 * len(rows) / columns**2
    figure, panels = plt.subplots(len(rows) // columns, columns, figsize=size, layout="constrained")
    for axes, kind, picture in zip(
        panels.flat, rows["kind"], draw(rows, 160, seed=0, workers=1), strict=True
    ):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        name = words(kind) if kind in FINDINGS else f"No Finding ({kind})"
        axes.set_title(name, fontsize=48 / columns, pad=2)
        axes.axis("off")
    return figure


def labels(read: Results) -> Figure:
    """Draw the share of positive images per finding and dataset, and which findings occur together."""
    table = read_nih_table()[list(FINDINGS)]
    table = table[table.mean().sort_values(ascending=False, kind="stable").index].astype(float)
    names = [words(finding) for finding in table]
    shares = {"ChestX-ray14, all": dict(table.mean())} | _positive_shares(read)
    figure, (left, right) = plt.subplots(1, 2, figsize=(width(), 3.1), width_ratios=(1, 1.15), sharey=True)
    for (name, share), colour, marker in styled(shares.items()):
        fill = colour if colour == COLOURS[0] else "none"
        percent = [100 * share[finding] for finding in table]
        left.plot(percent, np.arange(len(names)) + 0.5, marker, color=colour, ms=4, mfc=fill, label=name)
    left.set(xscale="log", xlabel="positive images (%)")
    left.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    left.grid(axis="both", color="0.92", lw=0.5)
    left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=1)
    # Of the images with the finding of a row, the percentage that has the finding of a column too.
    together = table.T.to_numpy() @ table.to_numpy()
    percent = 100 * together / np.diag(together)[:, None]
    np.fill_diagonal(percent, np.nan)
    texts = np.where(percent >= np.nanmax(percent) / 3, np.char.mod("%.0f", percent), "")
    sns.heatmap(
        percent, vmin=0, cmap="Greys", annot=texts, fmt="", annot_kws={"size": 6}, xticklabels=names,
        cbar_kws={"label": "also has the column's finding (%)", "shrink": 0.8, "pad": 0.02}, ax=right,
    )  # fmt: skip
    right.tick_params(length=0, labelleft=False, labelsize=7)
    left.set_yticks(np.arange(len(names)) + 0.5, names)
    return figure


def _positive_shares(read: Results) -> dict[str, dict[str, float]]:
    """The share of positive images per dataset and finding; datasets of equal shares together."""
    datasets: dict[tuple[float, ...], list[str]] = {}
    for dataset in read.cells["dataset"].unique():
        identity = read.identity(dataset)
        if identity and identity.positive_images.keys() >= set(FINDINGS):
            total = sum(identity.images.values())
            shares = tuple(sum(identity.positive_images[name].values()) / total for name in FINDINGS)
            datasets.setdefault(shares, []).append(dataset)
    return {first_of(alike): dict(zip(FINDINGS, shares, strict=True)) for shares, alike in datasets.items()}
