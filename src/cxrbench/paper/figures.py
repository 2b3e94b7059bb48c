"""The paper's figures, from adopted evidence: vector PDF without dates, readable in grey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # never a window

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from cxrbench.analysis.evaluate import read_metrics
from cxrbench.analysis.matrix import NOT_RUN, State, in_words, matrix, tally
from cxrbench.datasets.findings import FINDINGS
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, read_record
from cxrbench.paper.items import Item, figures
from cxrbench.paper.results import parity_drawn, processors_differ, read_measurements, read_parity
from cxrbench.study.files import written_aside

WIDTH = 6.3  # inches: the text width of the paper
STYLE = {
    "font.family": "STIXGeneral",  # the paper is set in Times
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
# Okabe and Ito's colours, dark to light, so that they differ in grey and for the colour-blind.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")


def write_figures(results: Path, out: Path, recorded: Path) -> None:
    """Write every figure of the paper into ``out``; speeds come from ``recorded``/bench."""
    for item, figure in drawn_figures(results, recorded):
        with written_aside(out / f"{item.name}.pdf") as aside:
            figure.savefig(aside, format="pdf", metadata={"CreationDate": None, "Producer": None})


def drawn_figures(results: Path, recorded: Path) -> Iterator[tuple[Item, Figure]]:
    """Draw every figure of the paper, one after another, in the paper's style; close each after its use."""
    read = {
        "cells": lambda: pd.read_csv(results / "tables/cells.csv", keep_default_na=False),
        "metrics": lambda: read_metrics(results / "tables/metrics.csv"),
        "parity": lambda: read_parity(results / "tables"),
        "throughput": lambda: read_measurements(recorded, "train"),
        "steps": lambda: read_measurements(recorded, "steps"),
        "evidence": lambda: results / "cells",
    }
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        for item in figures().values():
            inputs = (
                read[name]() if name in read else pd.read_csv(results / f"tables/{name}.csv")
                for name in item.inputs
            )
            figure = item.make(*inputs)
            yield item, figure
            plt.close(figure)


# -- cells -----------------------------------------------------------------------------------------

_FILL = {"fresh": "#0072B2", "recorded": "#56B4E9", NOT_RUN: "#FFFFFF"}


def cells_by_status(cells: pd.DataFrame) -> Figure:
    """One square per group of seeds: what was run here, what is recorded, what nobody ran."""
    rows, columns = matrix(cells, in_words(cells)), list(cells["platform"].unique())
    figure, axes = plt.subplots(figsize=(WIDTH, 0.5 + 0.32 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        for x, platform in enumerate(columns):
            if counts := tally([row.platforms[platform]]):
                _draw_states(axes, x, y, counts)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), [f"{row.dataset}, {row.architecture}" for row in rows])
    axes.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.5, -0.5))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _draw_states(axes: Axes, x: int, y: int, counts: dict[State, int]) -> None:
    """Draw one entry of the matrix: a colour where all seeds are in one state, and the counts."""
    words = [state.word for state in counts]
    colour = _FILL.get(words[0], "#E69F00") if len(words) == 1 else "#E4F1FA"
    axes.add_patch(plt.Rectangle((x - 0.48, y - 0.42), 0.96, 0.84, facecolor=colour, edgecolor="0.4", lw=0.5))
    text = ", ".join(f"{state} ({count})" for state, count in counts.items())
    dark = words == ["fresh"]
    axes.text(x, y, text, ha="center", va="center", color="white" if dark else "black", fontsize=8)


# -- curves ----------------------------------------------------------------------------------------


def learning_curves(cells: pd.DataFrame, folder: Path) -> Figure:
    """Loss by epoch, training and validation, one panel per dataset; thin lines are single seeds."""
    scored = cells[cells["status"] == "ok"]
    datasets = list(dict.fromkeys(scored["dataset"]))
    if not datasets:
        return no_evidence("No cell has run.")
    each = {dataset: _groups(scored[scored["dataset"] == dataset]) for dataset in datasets}
    height = 2.6 + _more_entries(map(len, each.values()))
    figure, panels = plt.subplots(
        1, len(datasets), figsize=(WIDTH, height), layout="constrained", squeeze=False
    )
    for (dataset, groups), axes in zip(each.items(), panels[0], strict=True):
        for (name, some), colour, dash in zip(groups.items(), cycle(COLOURS), cycle(DASHES), strict=False):
            for number, cell in enumerate(some):
                history = pd.DataFrame([vars(one) for one in read_record(folder / cell / RECORD).history])
                axes.plot(history["epoch"], history["train_loss"], color=colour, ls=dash, lw=0.6, alpha=0.6)
                label = name if number == 0 else None
                axes.plot(history["epoch"], history["val_loss"], color=colour, ls=dash, label=label)
        axes.set(title=dataset, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _legend_below(axes)
    panels[0][0].set_ylabel("mean binary cross-entropy")
    return figure


def roc_per_label(cells: pd.DataFrame, folder: Path) -> Figure:
    """Test ROC curves per finding of the first real dataset with scores (else of the phantoms)."""
    scored = cells[cells["status"] == "ok"]
    if scored.empty:
        return no_evidence("No cell has run.")
    datasets = sorted(dict.fromkeys(scored["dataset"]), key=lambda name: name.startswith("phantom"))
    groups = _groups(scored[scored["dataset"] == datasets[0]])
    beside = len(groups) <= _ENTRIES  # the legend, where the last panel would be
    height = 3.1 if beside else 3.1 + _ENTRY * np.ceil(len(groups) / 3)
    figure, panels = plt.subplots(
        3, 5, figsize=(WIDTH, height), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    styles = list(zip(cycle(COLOURS), cycle(DASHES), groups, strict=False))
    for colour, dash, name in styles:
        predictions = read_predictions(folder / groups[name][0] / PREDICTIONS)
        test = predictions[predictions["split"] == "test"]
        for finding, axes in zip(FINDINGS, panels.flat, strict=False):
            _roc(axes, test[f"label_{finding}"].to_numpy(), test[f"score_{finding}"].to_numpy(), colour, dash)
    for finding, axes in zip(FINDINGS, panels.flat, strict=False):
        axes.plot([0, 1], [0, 1], color="0.7", lw=0.5)
        axes.set_title(finding.replace("_", " "), fontsize=8, pad=2)
        axes.set(aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    last = panels[-1, -1]
    last.axis("off")
    handles = [plt.Line2D([], [], color=colour, ls=dash, label=name) for colour, dash, name in styles]
    if beside:
        last.legend(handles=handles, loc="center", title=datasets[0], title_fontsize=8)
    else:
        figure.legend(handles=handles, loc="outside lower center", ncols=3, title=datasets[0])
    panels[-1, 2].set_xlabel("1 - specificity", fontsize=9)  # the figure's own label would cross the legend
    figure.supylabel("sensitivity", fontsize=9)
    return figure


def _roc(axes: Axes, labels: np.ndarray, scores: np.ndarray, colour: str, dash: str) -> None:
    from sklearn.metrics import roc_curve

    if 0 < labels.sum() < len(labels):
        false_positive, true_positive, _ = roc_curve(labels, scores)
        axes.plot(false_positive, true_positive, color=colour, ls=dash, lw=0.9)
    else:
        axes.text(0.5, 0.3, "undefined:\none class only", ha="center", fontsize=7)


# -- AUROC -----------------------------------------------------------------------------------------


def auroc_per_label(metrics: pd.DataFrame, spread: pd.DataFrame) -> Figure:
    """Test AUROC per finding, one panel per dataset: means over seeds with 95 % intervals of these means.

    ``spread`` (spread.csv) has the intervals over patients and seeds; one seed has its own, over patients.
    """
    rows = metrics[metrics["metric"] == "auroc"]
    datasets = list(dict.fromkeys(rows["dataset"]))
    if not datasets:
        return no_evidence("No cell has run.")
    groups_of = rows.drop_duplicates(["dataset", "architecture", "platform"])["dataset"].value_counts()
    height = 3.6 + _more_entries(groups_of)
    figure, panels = plt.subplots(
        1, len(datasets), figsize=(WIDTH, height), layout="constrained", sharey=True, squeeze=False
    )
    labels = [*FINDINGS, "macro"]
    for dataset, axes in zip(datasets, panels[0], strict=True):
        groups = rows[rows["dataset"] == dataset].groupby(["architecture", "platform"], sort=False)
        offsets = np.linspace(-0.25, 0.25, len(groups)) if len(groups) > 1 else [0.0]
        for (group, some), offset, colour, marker in zip(
            groups, offsets, cycle(COLOURS), cycle(MARKERS), strict=False
        ):
            mean = _mean_of_seeds(some, spread).reindex(labels)
            y = np.arange(len(labels)) + offset
            axes.hlines(y, mean["ci_low"], mean["ci_high"], color=colour, lw=0.9)
            axes.plot(mean["value"], y, marker, color=colour, ms=3.5, label=", ".join(group))
        axes.axvline(0.5, color="0.7", lw=0.5)
        axes.axhline(len(FINDINGS) - 0.5, color="0.7", lw=0.5)
        axes.set(title=dataset, xlabel="AUROC", xlim=(0.3, 1.0))
        axes.set_yticks(range(len(labels)), [label.replace("_", " ") for label in labels])
        _legend_below(axes)
    panels[0][0].invert_yaxis()
    return figure


def _mean_of_seeds(some: pd.DataFrame, spread: pd.DataFrame) -> pd.DataFrame:
    """Value and interval by label of one group's AUROC."""
    shown = ["value", "ci_low", "ci_high"]
    if some["cell"].nunique() == 1:
        return some.set_index("label")[shown]
    keys = ["dataset", "architecture", "platform", "metric"]
    same = (spread[keys] == some[keys].iloc[0].tolist()).all(axis=1)
    return spread[same].rename(columns={"mean": "value"}).set_index("label")[shown]


# -- parity ----------------------------------------------------------------------------------------


def parity(rows: pd.DataFrame) -> Figure:
    """Differences in macro AUROC between platforms, and between seeds of one platform, beside the margin.

    A star marks rows whose two sides ran on different processors.
    """
    rows = parity_drawn(rows)
    if rows.empty:
        return no_evidence("No pair of platforms, and no platform, has the seeds that an interval needs.")
    figure, axes = plt.subplots(figsize=(WIDTH, 0.6 + 0.2 * len(rows)), layout="constrained")
    margin = rows["margin"].iloc[0]
    axes.axvspan(-margin, margin, color="0.9", lw=0)
    axes.axvline(0, color="0.6", lw=0.5)
    names = []
    for y, row in enumerate(rows.itertuples()):
        floor = row.kind == "noise floor"
        colour = "0.45" if floor else COLOURS[1]
        axes.hlines(y, row.ci_low, row.ci_high, color=colour, lw=1)
        axes.plot(
            row.difference, y, "o" if floor else "s", color=colour, ms=4, mfc="white" if floor else colour
        )
        pair = f"{row.platform_a}, other seeds" if floor else f"{row.platform_a} - {row.platform_b}"
        names.append(f"{row.dataset} {row.architecture} {pair}{' *' if processors_differ(row) else ''}")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="difference in macro AUROC", ylim=(len(names) - 0.5, -0.5))
    return figure


# -- speed -----------------------------------------------------------------------------------------


def throughput(rows: pd.DataFrame) -> Figure:
    """Share of the device's limit that our loop and timm reach, per machine and network."""
    if rows.empty:
        return no_evidence("No speed has been recorded.")
    contenders = {"ours": "this paper's loop", "timm_best": "timm, channels last", "timm": "timm, defaults"}
    names = [f"{row.architecture}, {row.platform}, {row.pixels} px\n{row.host}" for row in rows.itertuples()]
    figure, axes = plt.subplots(figsize=(WIDTH, 0.6 + 0.36 * len(rows)), layout="constrained")
    offsets = np.linspace(-0.22, 0.22, len(contenders))
    for (name, label), offset, colour, marker in zip(
        contenders.items(), offsets, COLOURS, MARKERS, strict=False
    ):
        shares = [np.divide(blocks[name], blocks["limit"]) for blocks in rows["blocks_of_each"]]
        low, middle, high = np.array([np.percentile(share, [25, 50, 75]) for share in shares]).T
        y = np.arange(len(rows)) + offset
        axes.hlines(y, low, high, color=colour, lw=0.9)
        axes.plot(middle, y, marker, color=colour, ms=4, label=label)
    axes.axvline(1, color="0.7", lw=0.5)
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlabel="share of the device's limit", ylim=(len(rows) - 0.5, -0.5))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


# -- common ----------------------------------------------------------------------------------------


_ENTRY = 0.2  # inches that one more line of a legend takes
_ENTRIES = 4  # lines that every figure has room for


def _more_entries(counts: Iterable[int]) -> float:
    """Inches that a figure grows by when a legend of ``counts`` lines stands below each of its panels."""
    return _ENTRY * max(0, max(counts) - _ENTRIES)


def _legend_below(axes: Axes) -> None:
    """A legend under a panel that has no free corner; placed in inches, so that the layout finds room."""
    anchor = axes.transAxes + ScaledTranslation(0, -0.38, axes.figure.dpi_scale_trans)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=anchor)


def _groups(cells: pd.DataFrame) -> dict[str, list[str]]:
    """'architecture, platform' -> its cells, one per seed."""
    found = cells.groupby(["architecture", "platform"], sort=False)["cell"]
    return {", ".join(group): list(some) for group, some in found}


def no_evidence(text: str) -> Figure:
    """A figure that says in words why there is nothing to see."""
    figure, axes = plt.subplots(figsize=(WIDTH, 0.6))
    axes.text(0.5, 0.5, text, ha="center", va="center")
    axes.axis("off")
    return figure
