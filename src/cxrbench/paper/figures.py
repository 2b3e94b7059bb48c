"""The paper's figures, from adopted evidence: vector PDF without dates, readable in grey."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, cycle
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib

matplotlib.use("Agg")  # never a window

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.transforms import blended_transform_factory
from sklearn.metrics import roc_curve

from cxrbench.common.files import written_aside
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, read_record
from cxrbench.paper.formats import words
from cxrbench.paper.items import Item, figures, printed
from cxrbench.paper.results import Results, real_first
from cxrbench.results.matrix import NOT_RUN, matrix, run_and_unrun, tally, unreviewed_states
from cxrbench.statistics.calibration import reliability
from cxrbench.statistics.metrics import ENDPOINT, MACRO
from cxrbench.statistics.predictions import findings_of
from cxrbench.statistics.sample import sample_of
from cxrbench.study.names import GROUP
from cxrbench.study.platforms import PLATFORMS

WIDTH = 6.3  # inches: the text width of the paper
# Okabe and Ito's colours, dark to light, so that they differ in grey and for the colour-blind.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D00")
MARKERS = ("o", "s", "^", "D", "v", "P")
MARKER_OF = dict(zip(PLATFORMS, cycle(MARKERS), strict=False))
DASHES = ("", (4, 1.5), (1, 1), (3, 1, 1, 1), (6, 2))
DASHES_OF: dict[str, Any] = dict(zip(PLATFORMS, cycle(DASHES), strict=False))
STYLE: Any = {
    "font.family": "STIXGeneral",  # the paper is set in Times
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.prop_cycle": plt.cycler(color=COLOURS),
    "figure.figsize": (WIDTH, WIDTH),
    "figure.constrained_layout.use": True,
    "figure.labelsize": 9,
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


def write_figures(read: Results, out: Path) -> None:
    """Write every figure of the paper into ``out``."""
    for item, figure in drawn_figures(read, printed(figures())):
        with written_aside(out / f"{item.name}.pdf") as aside:
            figure.savefig(aside, format="pdf", metadata={"CreationDate": None, "Producer": None})


def write_picture(read: Results, path: Path) -> None:
    """Draw the README's figure, the variance of a score by source, as PNG."""
    with plt.rc_context(STYLE), written_aside(path) as aside:
        figure = figures()["variance"].make(read)
        figure.savefig(aside, format="png", dpi=150, metadata={"Software": None})
        plt.close(figure)


def drawn_figures(
    read: Results, items: Iterable[Item] | None = None, inches: float = WIDTH, style: Any = STYLE
) -> Iterator[tuple[Item, Figure]]:
    """Draw ``items`` (all figures) so wide, one after another in a style; close each after use."""
    with plt.rc_context(style | {"figure.figsize": (inches, inches)}):
        for item in figures().values() if items is None else items:
            yield item, (figure := item.make(read))
            plt.close(figure)


def width() -> float:
    """The width of a figure in inches: that of the paper, or of a phone."""
    return float(plt.rcParams["figure.figsize"][0])


def beside() -> int:
    """How many panels stand in a line."""
    return 3 if width() >= WIDTH else 1


def height_of(inches: float) -> float:
    """The height of a panel; where panels stand below each other they are lower."""
    return inches if beside() > 1 else 0.7 * inches


def panels_of(count: int, height: float, **given: Any) -> tuple[Figure, Sequence[Axes]]:
    """So many panels of ``height`` inches, beside or below each other."""
    lines = 1 if beside() > 1 else count
    size = (width(), height_of(height) * lines)
    figure, panels = plt.subplots(lines, count // lines, figsize=size, squeeze=False, **given)
    return figure, list(panels.flat)


# -- common ----------------------------------------------------------------------------------------


def no_evidence(text: str) -> Figure:
    """A figure that says in words why there is nothing to see."""
    figure, axes = plt.subplots(figsize=(width(), 0.6))
    axes.text(0.5, 0.5, text, ha="center", va="center")
    axes.axis("off")
    return figure


def lines_named(names: Sequence[str], inches: float, more: float = 0.6) -> tuple[Figure, Axes]:
    """Axes with a line of ``inches`` for each of ``names``, the first at the top."""
    figure, axes = plt.subplots(figsize=(width(), more + inches * len(names)))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return figure, axes


def lines_in_groups(
    groups: Sequence[str], names: Sequence[str], inches: float
) -> tuple[Figure, Axes, np.ndarray]:
    """Axes with a line of ``inches`` for each of ``names``, headings of their groups; where each stands."""
    begins = [k == 0 or group != groups[k - 1] for k, group in enumerate(groups)]
    heading = 1.5  # lines, so that it is nearer to its rows than to those above
    y = np.arange(len(names)) + heading * np.cumsum(begins)
    figure, axes = lines_named([""] * round(y[-1] + 1), inches)
    axes.set_yticks(y, names)
    sns.despine(ax=axes, left=True)  # a long heading would cross it
    axes.tick_params(axis="y", length=0)
    left, heads = blended_transform_factory(figure.transFigure, axes.transData), compress(groups, begins)
    for line, head in zip(y[begins] - 1, heads, strict=True):
        axes.axhline(line + 0.5 - heading, color="0.85", lw=0.5)
        axes.text(0.01, line - 0.1, head, va="center", size=8, weight="bold", transform=left, in_layout=False)
    return figure, axes, y


def first_recipes(read: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first dataset of each set of images, without folds, and drawn ones where others are."""
    packed = read.cells.assign(packed=read.cells.get("packed", read.cells["dataset"]))
    first = packed.groupby("dataset", sort=False)["packed"].first().drop_duplicates().index
    return real_first(read.not_set_apart(rows[rows["dataset"].isin(first)]), read.cells)


def _by_dataset(
    read: Results, rows: pd.DataFrame, height: float, share: bool
) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Yield a panel of ``height`` inches for each dataset with its rows, three in a line of the paper; then a
    legend of all networks below. ``share``: the panels have one scale."""
    groups = rows.groupby("dataset", sort=False)
    lines, columns = -(-len(groups) // beside()), min(len(groups), beside())
    size = (width(), height_of(height) * lines + 0.2 * np.ceil(rows["network"].nunique() / beside()))
    figure, panels = plt.subplots(lines, columns, figsize=size, squeeze=False, sharex=share, sharey=share)
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    named: dict[str, Any] = {}
    for axes, (dataset, panel_rows) in zip(panels.flat, groups, strict=False):
        axes.set_title("\n".join(wrap(read.images_and_recipe(dataset), 28)), fontsize=9)
        axes.tick_params(labelbottom=True)  # on a phone a scale that is shared stands far below
        yield axes, panel_rows
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
        if legend := axes.get_legend():
            legend.remove()
    place: Any = f"outside {'lower' if beside() > 1 else 'upper'} center"
    figure.legend(named.values(), named.keys(), ncols=beside(), loc=place)


def styled(items: Iterable[Any]) -> Iterator[tuple[Any, str, str]]:
    """Yield each item with a colour and a marker; colours repeat after eight, markers after six."""
    return zip(items, cycle(COLOURS), cycle(MARKERS), strict=False)


def colours_of(read: Results, others: Iterable[str] = ()) -> dict[str, str]:
    """The colour of each network, the same in every figure: the study's first, then ``others``."""
    return dict(zip(dict.fromkeys([*read.cells["architecture"], *others]), cycle(COLOURS), strict=False))


def points(axes: Axes, rows: pd.DataFrame, column: str, y: pd.Series, apart: float = 0.25) -> None:
    """Draw ``value`` with ``ci_low`` to ``ci_high`` of ``rows`` at ``y``; groups of ``column`` are ``apart``.

    A row has its ``colour``; a group's marker is that of its first row.
    """
    groups = rows.groupby(column, sort=False)
    offsets = np.linspace(-apart, apart, len(groups)) if len(groups) > 1 else [0.0]
    for (name, group), offset in zip(groups, offsets, strict=True):
        ys, marker = y[group.index] + offset, group["marker"].iloc[0]
        axes.hlines(ys, group["ci_low"], group["ci_high"], group["colour"], lw=0.9, label=f"_of {name}")
        axes.scatter(group["value"], ys, 16, group["colour"], marker=marker, label=name, zorder=3)


def with_network(read: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``network``, its ``colour``, and the platform's ``marker`` and ``dashes``."""
    network, colours = rows["architecture"] + ", " + rows["platform"], colours_of(read, rows["architecture"])
    platform = rows["platform"].str.split(",").str[0]  # "cpu, one thread" is a cpu
    looks = {"marker": platform.map(MARKER_OF), "dashes": platform.map(DASHES_OF)}
    return rows.assign(network=network, colour=rows["architecture"].map(colours), **looks)


def curves(axes: Axes, rows: pd.DataFrame, **given: Any) -> None:
    """Draw a line per network of :func:`with_network`: its colour, and the dashes of its platform."""
    networks = rows.drop_duplicates("network").set_index("network")
    looks = {"palette": dict(networks["colour"]), "dashes": dict(networks["dashes"])}
    sns.lineplot(rows, hue="network", style="network", estimator=None, ax=axes, **looks, **given)


def _first_seeds(read: Results) -> pd.DataFrame:
    """The first scored seed of each network on the main dataset."""
    scored = with_network(read, read.ok)
    return scored[scored["dataset"] == read.main()].drop_duplicates("network")


def _predictions(read: Results, cell: str) -> pd.DataFrame:
    return read_predictions(read.folder / "cells" / cell / PREDICTIONS)


# -- cells -----------------------------------------------------------------------------------------

_FILL = {"fresh": "#56B4E9", "recorded": "#A9D9F4", NOT_RUN: "#EFEFEF", "several": "#E4F1FA"}
_FAILED = "#E69F00"


def cells_by_status(read: Results) -> Figure:
    """Draw a square per group of seeds that was run, if any was: states with counts, a colour for one."""
    run, rows = run_and_unrun(matrix(read.cells, unreviewed_states(read.cells)))
    rows, platforms = run or rows, list(read.cells["platform"].unique())
    counts = [[tally([row.platforms[platform]]) for platform in platforms] for row in rows]
    written = "{1} {0}" if beside() > 1 else "({1})"  # the legend names the states then
    texts = [[", ".join(written.format(*pair) for pair in cell.items()) for cell in line] for line in counts]
    kinds = [[next(iter(cell)).word if len(cell) == 1 else "several" for cell in line] for line in counts]
    colours = [[(*_FILL, kind).index(kind) for kind in line] for line in kinds]
    figure, axes = plt.subplots(figsize=(width(), 0.5 + 0.132 * len(rows)))
    sns.heatmap(
        pd.DataFrame(colours, [f"{row.dataset}, {row.architecture}" for row in rows], platforms),
        mask=np.array(texts) == "", annot=np.array(texts), fmt="", yticklabels=True,
        annot_kws={"color": "black", "size": 6},
        cmap=ListedColormap([*_FILL.values(), _FAILED]), vmin=0, vmax=len(_FILL), cbar=False,
        linewidths=2, linecolor="white", ax=axes,
    )  # fmt: skip
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    if beside() == 1:
        axes.set_xticks(axes.get_xticks(), platforms, rotation=35, ha="left")
        named = {**_FILL, "failed": _FAILED}
        seen = [name for n, name in enumerate(named) if n in np.concatenate(colours)]
        patches = [Patch(color=named[name], label=name) for name in seen]
        figure.legend(handles=patches, loc="outside lower center", ncols=3)
    return figure


# -- scores ----------------------------------------------------------------------------------------


def learning_curves(read: Results) -> Figure:
    """Draw losses by epoch, a panel per image size and a line per seed: validation thick, training thin."""
    scored, folder = with_network(read, first_recipes(read, read.ok)), read.folder / "cells"
    if scored.empty:
        return no_evidence("No cell has run.")
    for axes, cells in _by_dataset(read, scored, 2.1, share=False):
        histories = {cell: map(vars, read_record(folder / cell / RECORD).history) for cell in cells["cell"]}
        losses = pd.concat([pd.DataFrame(epochs).assign(cell=cell) for cell, epochs in histories.items()])
        losses = losses.merge(cells[["cell", "network", "colour", "dashes"]])
        curves(axes, losses, x="epoch", y="train_loss", units="cell", lw=0.6, alpha=0.6, legend=False)
        curves(axes, losses, x="epoch", y="val_loss", units="cell")
        axes.set_ylabel("")
        axes.locator_params(axis="x", integer=True)
    plt.gcf().supylabel("mean binary cross-entropy")
    return plt.gcf()


def roc_per_label(read: Results) -> Figure:
    """Draw test ROC curves per finding, of each network's first seed on the main dataset."""
    networks = _first_seeds(read)
    if networks.empty:
        return no_evidence("No cell has run.")
    columns = 5 if beside() > 1 else 3
    in_panel = columns == 5 and len(networks) <= 4  # the legend, where the last panel would be
    findings = findings_of(_predictions(read, networks["cell"].iloc[0]))
    rows = len(findings) // columns + 1  # a panel each, and the last for the legend
    size = (width(), width() / columns * rows + (0 if in_panel else 0.1 * len(networks)))
    figure, panels = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    drawn, (*unused, last) = panels.flat[: len(findings)], panels.flat[len(findings) :]
    for axes in (*unused, last):
        axes.axis("off")
    for row in networks.itertuples():
        test = _predictions(read, row.cell).query("split == 'test'")
        look = {"color": row.colour, "dashes": row.dashes or (None, None)}
        last.plot([], [], label=row.network, **look)
        for finding, axes in zip(findings, drawn, strict=True):
            labelled = test[[f"label_{finding}", f"score_{finding}"]].dropna()
            if labelled.iloc[:, 0].nunique() == 2:
                curve = roc_curve(*labelled.to_numpy().T)
                axes.plot(*curve[:2], lw=0.9, **look)
            else:
                axes.text(0.5, 0.3, "undefined:\none class only", ha="center", fontsize=7)
    for finding, axes in zip(findings, drawn, strict=True):
        axes.axline((0, 0), slope=1, color="0.7", lw=0.5)
        axes.set_title(words(finding), fontsize=8, pad=2)
        axes.set(aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    place: Any = "center" if in_panel else "outside lower center"
    title: Any = {"title": networks["dataset"].iloc[0], "title_fontsize": 8}
    (last if in_panel else figure).legend(*last.get_legend_handles_labels(), loc=place, **title)
    panels[-1, columns // 2].set_xlabel("1 - specificity")  # the figure's own label would cross the legend
    figure.supylabel("sensitivity")
    return figure


def auroc_per_label(read: Results) -> Figure:
    """Draw test AUROC per finding, means over seeds with their 95 % intervals: a panel for each size of the
    real radiographs (of the drawn ones where there are none), with the first recipe on it."""
    rows = with_network(read, _means(read.metrics[read.metrics["metric"] == "auroc"], read.spread))
    if rows.empty:
        return no_evidence("No cell has run.")
    rows = first_recipes(read, rows[rows["label"].isin(labels := [*read.findings(), MACRO])])
    for axes, panel_rows in _by_dataset(read, rows, 5.6, share=True):
        points(axes, panel_rows, "network", panel_rows["label"].map(labels.index), apart=0.3)
        for k in range(0, len(labels), 2):  # a finding's points stand together
            axes.axhspan(k - 0.5, k + 0.5, color="0.95", lw=0)
        axes.axvline(0.5, color="0.7", lw=0.5)
        axes.axhline(len(labels) - 1.5, color="0.7", lw=0.5)
        axes.set(xlabel="AUROC", ylim=(len(labels) - 0.3, -0.7))
        axes.set_yticks(range(len(labels)), map(words, labels))
    return plt.gcf()


def _means(rows: pd.DataFrame, spread: pd.DataFrame) -> pd.DataFrame:
    """Value and interval per network and label: those over seeds, or those of the only seed."""
    keys, shown = [*GROUP, "metric", "label"], ["value", "ci_low", "ci_high"]
    alone = rows.drop_duplicates(keys, keep=False).set_index(keys)[shown]
    means = rows[keys].drop_duplicates().merge(spread.rename(columns={"mean": "value"}), "left")
    return means.set_index(keys)[shown].fillna(alone).reset_index()


def seed_spread(read: Results) -> Figure:
    """Draw the main endpoint per seed, and its mean with an interval, or one seed with that over patients; of
    drawn images only where there are no others. Emulated arithmetic and its controls are in a table."""
    rows, means = (
        with_network(read, real_first(table[table["label"] == ENDPOINT], read.cells))
        .query("metric == 'auroc'")
        .assign(name=lambda rows: [*rows[GROUP].itertuples(index=False, name=None)])
        for table in (read.not_set_apart(read.metrics), read.not_set_apart(read.spread))
    )
    if rows.empty:
        return no_evidence("No cell has run.")
    names = list(dict.fromkeys(rows["name"]))
    headings = [read.images_and_recipe(dataset) for dataset, _, _ in names]
    networks = [f"{network}, {platform}".removesuffix(", cpu") for _, network, platform in names]
    figure, axes, lines = lines_in_groups(headings, networks, 0.13)
    line = dict(zip(names, lines, strict=True))
    seeds = rows.groupby("name")["cell"]
    size = seeds.transform("size")
    apart = (0.8 / size).clip(upper=0.16)  # many seeds stay in their row
    y = rows["name"].map(line) + apart * (seeds.cumcount() - (size - 1) / 2)
    for marker, alike in rows.groupby("marker"):
        axes.scatter(alike["value"], y[alike.index], 9, alike["colour"], marker=marker, zorder=3)
    means = means[means["ci_low"].notna() & means["name"].isin(names)]
    y = means["name"].map(line)
    axes.hlines(y, means["ci_low"], means["ci_high"], color=means["colour"], lw=5, alpha=0.35)
    axes.scatter(means["mean"], y, 120, means["colour"], marker="|", linewidths=1.5)
    for row in rows[size == 1].itertuples():
        axes.hlines(line[row.name], row.ci_low, row.ci_high, color="0.6", lw=0.8)
        axes.text(row.ci_high, line[row.name], " one seed", va="center", fontsize=7, color="0.4")
    axes.set_xlabel("main endpoint (mean AUROC)")
    return figure


def reliability_curves(read: Results) -> Figure:
    """Draw the share of positives against the mean score of each network's first seed, findings pooled."""
    networks = _first_seeds(read)
    if networks.empty:
        return no_evidence("No cell has run.")
    floor = 5e-4  # a share of zero has no place on a logarithmic axis: its interval ends here
    lines, columns = -(-len(networks) // beside()), min(len(networks), beside())
    size = (width(), 0.4 + 2.0 * lines)
    figure, panels = plt.subplots(lines, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(networks) :]:
        axes.axis("off")
    for axes, row in zip(panels.flat, networks.itertuples(), strict=False):
        bins = reliability(sample_of(_predictions(read, row.cell), "test"))
        axes.plot([floor, 1], [floor, 1], color="0.7", lw=0.6)
        axes.vlines(bins["score"], bins["ci_low"].clip(floor), bins["ci_high"], color=row.colour, lw=1)
        positive = bins[bins["share"] > 0]
        axes.plot(positive["score"], positive["share"], row.marker, color=row.colour, ms=3.5)
        axes.set(xscale="log", yscale="log", xlim=(floor, 1), ylim=(floor, 1))
        axes.set_title(row.network, fontsize=9)
    figure.supxlabel("mean score")
    figure.supylabel("share of positives")
    return figure
