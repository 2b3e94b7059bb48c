"""The paper's figures about money: prices by instance, the line of indifference."""

from __future__ import annotations

from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cxrbench.cost.prices import BASES
from cxrbench.paper.cost_tables import MACHINE, machine_names
from cxrbench.paper.figures import COLOURS, DASHES, MARKERS, WIDTH, no_evidence

_RUNS = np.logspace(0, 4, 41)


def cost_by_price(costs: pd.DataFrame) -> Figure:
    """US dollars of a usable model per group of seeds on one machine, a mark for each price basis and date; a
    line reaches one standard deviation over seeds to either side."""
    costs = costs.dropna(subset=["cost_to_usable"]) if "cost_to_usable" in costs else costs[:0]
    if costs.empty:
        return no_evidence("No cell has run to the end, so nothing can be priced.")
    keys = ["dataset", "architecture", "platform", "instance", "kind", *MACHINE]
    groups = list(costs.assign(named=machine_names(costs)).groupby(keys, sort=False))
    figure, axes = plt.subplots(figsize=(WIDTH, 0.7 + 0.36 * len(groups)), layout="constrained")
    for regime, colour, marker in zip(
        dict.fromkeys(costs["regime"]), cycle(COLOURS), cycle(MARKERS), strict=False
    ):
        priced = [some[some["regime"] == regime] for _, some in groups]
        usd, deviation = ([some[column].mean() for some in priced] for column in ("cost_to_usable", "usd_sd"))
        label = regime.replace("_", " ")
        bars = {"fmt": marker, "color": colour, "ms": 5, "elinewidth": 0.9, "label": label}
        axes.errorbar(usd, range(len(groups)), xerr=deviation, **bars)
    names = [
        f"{' '.join(group[:3])}\n{group[4]}, {group[3]}; {some['named'].iloc[0]}" for group, some in groups
    ]
    axes.set_yticks(range(len(groups)), names)
    axes.set(xscale="log", xlabel="US dollars per usable model", ylim=(len(groups) - 0.5, -0.5))
    axes.grid(axis="x", which="both", color="0.92", lw=0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def prices_by_instance(prices: pd.DataFrame) -> Figure:
    """Hourly price of every instance of a region by basis; the line leads from the oldest price on demand."""
    names = list(dict.fromkeys(prices["instance"]))
    figure, axes = plt.subplots(figsize=(WIDTH, 0.8 + 0.16 * len(names)), layout="constrained")
    for basis, colour, marker in zip(BASES, cycle(COLOURS), cycle(MARKERS), strict=False):
        newest = prices[prices["basis"] == basis].drop_duplicates("instance", keep="last")
        if newest.empty:
            continue
        y = [names.index(name) for name in newest["instance"]]
        axes.plot(
            newest["usd_per_hour"], y, marker, color=colour, ms=4, label=basis.replace("_", " "), zorder=3
        )
    for name, some in prices[prices["basis"] == "on_demand"].groupby("instance"):
        if some["usd_per_hour"].nunique() > 1:
            axes.plot(some["usd_per_hour"], [names.index(name)] * len(some), color="0.5", lw=0.9)
            axes.plot(some["usd_per_hour"].iloc[0], names.index(name), "o", mfc="white", color="0.5", ms=4)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    region = ", ".join(dict.fromkeys(prices["region"]))
    axes.set(xlabel=f"USD per hour of the instance, {region}", ylim=(-0.6, len(names) - 0.4))
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(axis="x", color="0.92", lw=0.5)
    axes.legend(loc="lower right")
    return figure


def line_of_indifference(cases: pd.DataFrame) -> Figure:
    """Saving per run against runs, log scales: on a line porting neither pays nor costs, above it pays.

    A case with a saving stands where it earns back the stated budget; those without are on no line.
    """
    figure, axes = plt.subplots(figsize=(WIDTH, 4.0), layout="constrained")
    for factor, dash in zip((0.1, 1, 10), cycle(DASHES), strict=False):
        porting = factor * cases["porting"].iloc[0]
        axes.plot(_RUNS, porting / _RUNS, dash, color="0.3", lw=0.9)
        axes.annotate(
            f"porting {porting:,.0f} USD", (_RUNS[-1], porting / _RUNS[-1]), fontsize=7, va="center",
            xytext=(4, 0), textcoords="offset points", color="0.3",
        )  # fmt: skip
    # The same dollars in two regions, or at a price that was only confirmed, are one mark.
    saving = cases[cases["saving"] > 0].drop_duplicates(["case", "usd_here", "usd_there"])
    for row, colour, marker in zip(saving.itertuples(), cycle(COLOURS), cycle(MARKERS), strict=False):
        runs = f"{row.runs:,.0f} run{'' if row.runs == 1 else 's'}"
        label = f"{row.case} ({row.kind}, {row.basis.replace('_', ' ')}, {row.as_of}): {runs}"
        axes.axhline(row.saving, color=colour, lw=0.5, alpha=0.4)
        axes.plot(row.porting / row.saving, row.saving, marker, color=colour, ms=5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="runs", ylabel="USD saved per run", xlim=(0.3, 1e5))
    axes.text(0.98, 0.95, "porting pays", transform=axes.transAxes, ha="right", va="top", style="italic")
    axes.text(0.02, 0.05, "it does not", transform=axes.transAxes, style="italic")
    if len(saving):
        figure.legend(loc="outside lower left")
    return figure
