"""The figures that compare platforms: differences in scores, speed, money."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxrbench.cost.devices import DEVICES
from cxrbench.cost.prices import BASES
from cxrbench.evidence.store import STEP_TOLERANCE, TESTED_STEPS
from cxrbench.paper import seed_pairs
from cxrbench.paper.figures import (
    MARKERS,
    beside,
    colours_of,
    curves,
    lines_in_groups,
    lines_named,
    no_evidence,
    panels_of,
    points,
    styled,
    width,
    with_network,
)
from cxrbench.paper.formats import words
from cxrbench.paper.measurements import steps_in_fp32
from cxrbench.paper.results import (
    Results,
    host_in_words,
    parity_drawn,
    processors_differ,
    read_measurements,
    real_contrasts,
    seeds_of,
)
from cxrbench.results.pairs import EMULATED_PLATFORMS, PRECISION
from cxrbench.statistics.components import POWER
from cxrbench.statistics.power import DIFFERENCE
from cxrbench.statistics.sources import SETTING


def parity(read: Results) -> Figure:
    """Draw differences in the main endpoint between platforms and between seeds of one, without emulated
    arithmetic; a star: two processors."""
    rows = read.not_set_apart(parity_drawn(read.parity))
    if rows.empty:
        return no_evidence("No pair of platforms, and no platform, has the seeds that an interval needs.")
    names = [
        f"{row.architecture}, {row.platform_a}"
        f"{', other seeds' if row.kind == 'noise floor' else f' - {row.platform_b}'}"
        f"{' *' if processors_differ(row) else ''}"
        for row in rows.itertuples()
    ]
    figure, axes, y = lines_in_groups([*map(read.images_and_recipe, rows["dataset"])], names, 0.19)
    colour = rows["architecture"].map(colours_of(read))
    _differences(axes, y, rows, colour, colour.where(rows["kind"] != "noise floor", "w"))
    return figure


def arithmetic(read: Results) -> Figure:
    """Draw differences in the main endpoint between two emulated kinds of arithmetic of one network."""
    rows = seed_pairs.arms_compared(read)
    if rows.empty:
        return no_evidence("No network has all its declared seeds in two kinds of arithmetic.")
    return _by_network(read, rows, [seed_pairs.arms_of(read, row) for row in rows.itertuples()])


def precision(read: Results) -> Figure:
    """Draw differences in the main endpoint between two precisions of one network; a star: two processors."""
    rows = real_contrasts(read)
    if (rows := rows[rows["differs"] == PRECISION]).empty:
        return no_evidence("No network has three seeds in two precisions.")
    names = [
        f"{row.dataset_a} - {row.dataset_b.rsplit('-', 1)[-1]} ({seeds_of(row)} seeds)"
        f"{' *' if processors_differ(row) else ''}"
        for row in rows.itertuples()
    ]
    return _by_network(read, rows, names)


def _by_network(read: Results, rows: pd.DataFrame, names: list[str]) -> Figure:
    """Draw the differences of contrasts.csv in ``rows``, a line for each of ``names``, by network."""
    figure, axes, y = lines_in_groups([*rows["architecture"]], names, 0.19)
    colour = rows["architecture"].map(colours_of(read))
    _differences(axes, y, rows, colour, colour)
    return figure


def _differences(axes: Axes, y: np.ndarray, rows: pd.DataFrame, colour: pd.Series, fill: pd.Series) -> None:
    """Draw a difference at each ``y``: dot, 90 % interval thick and 95 % thin, on the band of the margin."""
    margin = rows["margin"].iloc[0]
    axes.axvspan(-margin, margin, color="0.9", lw=0)
    axes.axvline(0, color="0.6", lw=0.5)
    axes.hlines(y, rows["ci_low"], rows["ci_high"], color=colour, lw=0.8)
    axes.hlines(y, rows["ci90_low"], rows["ci90_high"], color=colour, lw=2.2)
    axes.scatter(rows["difference"], y, 18, fill, edgecolors=colour, zorder=3)
    axes.set_xlabel("difference in the main endpoint (mean AUROC)")


def seeds_against_platforms(read: Results) -> Figure:
    """Draw how far networks lie apart that differ in the seed alone, or in something else with the same
    seed."""
    rows = seed_pairs.pairs_drawn(read)
    if rows.empty:
        return no_evidence("No two networks on real radiographs differ in one thing alone.")
    kinds = [kind for kind in seed_pairs.WORDS if (rows["changed"] == kind).any()]
    figure, panels = panels_of(len(seed_pairs.SCORE_NAMES), 0.7 + 0.2 * len(kinds), sharex=True, sharey=True)
    rng = np.random.default_rng(0)
    for axes, (metric, name) in zip(panels, seed_pairs.SCORE_NAMES.items(), strict=True):
        for y, kind in enumerate(kinds):
            sizes = rows.loc[(rows["changed"] == kind) & (rows["metric"] == metric), "difference"].abs()
            axes.scatter(
                sizes.clip(lower=_LEAST_DRAWN), y + rng.uniform(-0.25, 0.25, len(sizes)), 6, "C0", alpha=0.5
            )
            axes.plot([max(sizes.median(), _LEAST_DRAWN)] * 2, [y - 0.35, y + 0.35], color="black", lw=1.5)
        if metric != "auroc":
            axes.axvline(DIFFERENCE, color="0.5", lw=0.8, ls=":")
        axes.set(xscale="log", title=name, xlabel="absolute difference")
        axes.tick_params(labelbottom=True)  # below each other on a phone
    panels[0].set_yticks(range(len(kinds)), [seed_pairs.WORDS[kind] for kind in kinds])
    panels[0].invert_yaxis()
    return figure


def variance_by_source(read: Results) -> Figure:
    """Draw a bar for each score, divided into the fractions of its variance by source."""
    rows = read.sources
    if rows.empty:
        return no_evidence("No recipe on real radiographs has the ten seeds that this takes.")
    rows = rows[rows["source"] != SETTING]
    names = {"endpoint": "mean AUROC", "f1_macro": "macro F1"}
    least = 0.2 if beside() > 1 else 0.5  # a fraction with room for words; a thirteenth has room for a number
    figure, axes = plt.subplots(figsize=(width(), 1.5))
    for y, metric in enumerate(names):
        start = 0.0
        for row, colour, _ in styled(rows[rows["metric"] == metric].itertuples()):
            label = seed_pairs.SOURCE_NAMES[row.source] if y == 0 else None
            axes.barh(y, row.fraction, left=start, height=0.55, color=colour, label=label)
            words = f"{100 * row.fraction:.0f} %" + f", SD {row.sd:.4f}" * (row.fraction > least)
            start += row.fraction
            if row.source == "seed":  # the last and narrow: beside the bar
                axes.text(1.01, y, words, ha="left", va="center", size=7, color=colour)
            elif row.fraction > least / 13:
                axes.text(start - row.fraction / 2, y, words, ha="center", va="center", size=7, color="white")
    axes.set_yticks(range(len(names)), names.values())
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="fraction of the variance of one run's score")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1), ncols=beside(), fontsize=7, frameon=False)
    return figure


def power_of_seeds(read: Results) -> Figure:
    """The power to find equal platforms equivalent, by seeds: as measured and at worst, by kind of pair."""
    rows = read.table("powers")
    arithmetic = rows[["dataset_a", "dataset_b"]].map(lambda name: read.study.recipe(name).arithmetic)
    measured = {
        "correlated as two precisions": rows[rows["differs"] == PRECISION],
        "correlated as the emulated platforms": rows[(arithmetic == EMULATED_PLATFORMS).all(axis=1)],
    }
    measured = {title: part for title, part in measured.items() if len(part)}
    if not measured:
        return no_evidence("No network has ten seeds in two precisions.")
    figure, panels = panels_of(len(measured), 1.75 if beside() > 1 else 2.6, sharey=True)
    for axes, (title, part) in zip(panels, measured.items(), strict=True):
        for (network, curve), colour, marker in styled(part.groupby("architecture")):
            for column, line, breadth, alpha in (("as_measured", "-", 3, 0.4), ("at_worst", "--", 1, 1)):
                label, style = f"{network}, {column.replace('_', ' ')}", f"{marker}{line}"
                axes.plot(
                    curve["seeds"],
                    curve[column],
                    style,
                    color=colour,
                    ms=3,
                    lw=breadth,
                    alpha=alpha,
                    label=label,
                )
        axes.axhline(POWER, color="0.6", lw=0.6, ls=":")
        axes.set(title=title, xlabel="seeds on each platform", ylim=(0, 1.04))
        axes.set_xticks(part["seeds"].unique())
    panels[0].set_ylabel("power")
    if beside() > 1:
        panels[-1].legend(loc="lower right", fontsize=7, labelspacing=0.2, borderaxespad=0)
    else:  # there it would cover the curves
        drawn = panels[-1].get_legend_handles_labels()
        figure.legend(*drawn, loc="outside upper center", fontsize=7)
    return figure


_LEAST_DRAWN = 1e-5  # smaller differences are drawn there


def step_parity(read: Results) -> Figure:
    """Draw relative differences from the CPU per optimizer step, a line per network, machine and update.

    Networks that timm has for tests alone are left to the table.
    """
    rows = steps_in_fp32(read)
    if rows.empty:
        return no_evidence("No steps have been compared.")
    rows = rows[~rows["architecture"].str.startswith("test_")].assign(run=rows["host"] + rows["update"])
    widths = {update: 1.8 - 0.9 * n for n, update in enumerate(rows["update"].unique())}
    lowest = 1e-9  # equal bits are drawn at the lower edge
    figure, panels = panels_of(3, 2.7, sharex=True, sharey=True)
    for axes, part in zip(panels, ("loss", "gradient_norm", "weights"), strict=True):
        shown = rows.assign(part=rows[f"{part}_difference"].clip(lower=lowest))
        curves(axes, with_network(read, shown), x="step", y="part", units="run", size="update", sizes=widths)
        axes.hlines(STEP_TOLERANCE[rows["precision"].iloc[0]], 1, TESTED_STEPS, "grey", ":")
        axes.set(title=words(part), xlabel="optimizer step", yscale="log", ylabel="")
        axes.locator_params(axis="x", integer=True)
        if legend := axes.get_legend():
            legend.remove()
    axes.set_ylim(bottom=lowest)  # shared: after all are drawn
    figure.supylabel("relative difference from cpu")
    lines = [
        line
        for line in zip(*axes.get_legend_handles_labels(), strict=True)
        if line[1] not in ("network", "update")
    ]
    for line, label in lines:
        if label not in widths:  # of a network, which has both updates
            plt.setp(line, linewidth=1.3)
    figure.legend(*zip(*lines, strict=True), loc="outside lower center", ncols=beside())
    return figure


def throughput(read: Results) -> Figure:
    """Draw the speed of our loop and timm over our step without its input: median and quartiles of blocks."""
    rows = read_measurements(read.recorded, "train")
    if rows.empty:
        return no_evidence("No speed has been recorded.")
    contenders = {"ours": "this paper's loop", "timm_best": "timm at its best", "timm": "timm, defaults"}
    settings = [
        f"{host_in_words(row.host)}, {row.platform}, {row.pixels} px, batch {row.batch}"
        for row in rows.itertuples()
    ]
    names = [
        f"{row.architecture}, {row.precision}{', fastest kernels' if row.fastest else ''}"
        for row in rows.itertuples()
    ]
    figure, axes, lines = lines_in_groups(settings, names, 0.25)
    colours = list(rows["architecture"].map(colours_of(read, rows["architecture"])))
    quartiles = [
        (label, y, marker, colour, *np.percentile(np.divide(blocks[name], blocks["limit"]), [25, 50, 75]))
        for (name, label), marker in zip(contenders.items(), MARKERS, strict=False)
        for y, colour, blocks in zip(lines, colours, rows["blocks_of_each"], strict=True)
    ]
    columns = ["contender", "y", "marker", "colour", "ci_low", "value", "ci_high"]
    shares = pd.DataFrame(quartiles, columns=columns)
    points(axes, shares, "contender", shares["y"], apart=0.22)
    axes.axvline(1, color="0.7", lw=0.5)
    axes.set_xlabel("share of the speed of our step without its input")
    axes.legend(loc="upper left" if beside() > 1 else "lower right", bbox_to_anchor=(1.0, 1.0))
    return figure


def prices_by_instance(read: Results) -> Figure:
    """Draw the hourly price by basis of the study's instances, those whose prices are divided
    and every Trainium for training, rented by itself; a line starts at the oldest."""
    prices, ratios = read.table("prices"), read.table("ratios")
    chosen = [*read.study.prices.instances.values(), *ratios["instance"], *ratios["baseline"]]
    chosen = prices["instance"].isin(chosen) | prices["accelerator"].map(_trains_on_neuron)
    prices = prices[chosen & (prices["basis"] != "sagemaker")]
    home = read.study.prices.region
    elsewhere = (" (" + prices["region"] + ")").where(prices["region"] != home, "")
    names = list((prices["instance"] + elsewhere).unique()[::-1])
    prices = prices.assign(y=(prices["instance"] + elsewhere).map(names.index))
    figure, axes = lines_named(names, 0.2, 0.8)
    for basis, colour, marker in styled(BASES):
        newest = prices[prices["basis"] == basis].drop_duplicates("instance", keep="last")
        label = basis.replace("_", " ") if len(newest) else None
        axes.plot(newest["usd_per_hour"], newest["y"], marker, color=colour, ms=4, label=label, zorder=3)
    for _, dated in prices[prices["basis"] == "on_demand"].groupby("instance"):
        if dated["usd_per_hour"].nunique() > 1:
            axes.plot(
                dated["usd_per_hour"], dated["y"], "-o", color="0.5", lw=0.9, ms=4, mfc="w", markevery=[0]
            )
    axes.set(xscale="log", xlabel=f"USD per hour; {home} where no other is named")
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(axis="x", color="0.92", lw=0.5)
    if beside() > 1:
        axes.legend(loc="lower right")
    else:  # it would hide a third of the panel
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _trains_on_neuron(accelerator: object) -> bool:
    """Whether this is a Trainium that is, or was, for training."""
    device = DEVICES.get(str(accelerator))
    return device is not None and device.family == "neuron" and device.training != "inference"
