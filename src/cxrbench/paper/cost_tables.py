"""The paper's tables about money, and how a table names a machine and writes dollars.

Rows with a price say measured, proxy, projected or published, and its region, basis and date.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from cxrbench.cost.porting import months
from cxrbench.cost.prices import BASES, dates
from cxrbench.evidence.machine import BUSY, GROUP, short_processor
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Columns, Row, csv_table, span, words
from cxrbench.paper.results import Results

MACHINE = ["machine", "origin", "busy"]  # runs that differ in one of these are never averaged
_SOFTWARE = ("torch ", "torch_xla ", "torch_neuronx ", "driver ")
_WHERE: Columns = {"Region": "{region}", "Basis": lambda row: words(row.basis), "Price of": "{as_of}"}
_PRICE: Columns = {"Instance": "{instance}", **_WHERE}


@fmt.table("llllllllrrrrrrr")
def cost_of_cells(read: Results) -> Iterable[Row]:
    """Hours by phase and US dollars of each run, with its machine, what was paid for and what was used."""
    costs = read.cost.assign(named=machine_names(read.cost))
    columns: Columns = {
        "Cell": "{cell}",
        "Status": lambda run: words(run.status),
        "Kind": "{kind}",
        "Machine": "{named}",
        **_PRICE,
        "Cores": lambda run: f"{fmt.number(run.cores_used, 'g', 'none')} of {run.cores_paid:g}",
        "Set-up h": "{hours_setup:.3f}",
        "Compile h": "{hours_compile:.3f}",
        "Train h": "{hours_train:.3f}",
        "Evaluate h": "{hours_evaluate:.3f}",
        "USD": lambda run: usd(run.usd_total),
        "USD, used cores": lambda run: usd(run.usd_used_cores),
    }
    return fmt.rows(costs, columns)


@fmt.table("llllllllrrrrrr")
def cost_units(read: Results) -> Iterator[Row]:
    """What a unit costs per group of seeds on one machine: million images, target AUROC, usable model."""
    for first, some, machine in _groups(read.cost):
        ok = some[some["status"] == "ok"]
        yield {
            **machine,
            **fmt.row(first, _PRICE),
            "Usable": f"{len(ok)} of {len(some)}",
            "Million images": _mean(some["usd_per_million_images"]),
            "AUROC of": fmt.number(first.target_auroc, "g", ""),
            "Until then": spread(first.cost_to_auroc, ok["usd_to_auroc"].std()),
            "Usable model": spread(first.cost_to_usable, first.usd_sd),
            "Compilation shared": _mean(some["usd_amortised"]),
            "Shared by": f"{first.amortised_over:g} runs",
        }


def _groups(runs: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame, Row]]:
    """Yield for the seeds of each group on one machine its first row, all rows and its first columns."""
    runs = runs.assign(named=machine_names(runs))
    for group, some in runs.groupby([*GROUP, "instance", *MACHINE], sort=False):
        machine = {"Machine": fmt.listed(some["named"]), "Kind": fmt.listed(some["kind"])}
        yield next(some.itertuples()), some, {"Cells": " ".join(group[:3])} | machine


def _mean(values: pd.Series) -> str:
    return spread(values.mean(), values.std())


# Price ratios, and the preprint's ratio there with its run times unchanged.
_RATIOS: Columns = {
    "Trainium": "{instance}",
    "GPU": "{baseline}",
    "Kind": "{kind}",
    **_WHERE,
    "USD/h": "{usd_instance:.4g} : {usd_baseline:.4g}",
    "Price ratio": "{price_ratio:.2f}",
    "Cost ratio": lambda row: span(row.ratio_low, row.ratio_high, "{:.2f}"),
    "Ranking": "{ranking}",
}
price_ratios = csv_table("ratios", "llllllrrrl", _RATIOS)

# Runs until a port pays: runs that others published at each date's prices, and our own cells.
_BREAK_EVEN: Columns = {
    "Run": "{case}",
    "Kind": "{kind}",
    "GPU": "{here}",
    "Trainium": "{there}",
    **_WHERE,
    "USD, GPU": lambda row: _spent(row.usd_here, row.usd_here_sd),
    "USD, Trainium": lambda row: _spent(row.usd_there, row.usd_there_sd),
    "Saving": lambda row: usd(row.saving, ""),
    "Porting": lambda row: usd(row.porting),
    "Runs": lambda row: row.note if pd.isna(row.runs) else runs_in_words(row.runs),
}
break_even = csv_table("break_even", "lllllllrrrrr", _BREAK_EVEN)

# Cases made from the thresholds of the sources' decision tables, answered with arithmetic.
_DECISIONS: Columns = {
    "Network": "{architecture}",
    "Kind": "{kind}",
    **_WHERE,
    "Cost ratio": lambda row: span(row.ratio_low, row.ratio_high, "{:.2f}"),
    "Spend a month": lambda row: usd(row.spend),
    "Porting": lambda row: usd(row.porting),
    "Ongoing a month": lambda row: usd(row.ongoing),
    "Horizon, months": "{months:g}",
    "Capacity": "{capacity:g}",
    "Saved a month": lambda row: span(row.saved_low / 1000, row.saved_high / 1000, "{:,.0f} k"),
    "Net": lambda row: span(row.net_low / 1000, row.net_high / 1000, "{:,.0f} k"),
    "Breaks even, months": lambda row: fmt.ends(months(row.break_even_from), months(row.break_even_to)),
    "Verdict": "{verdict}",
    "Source says": "{leans}",
}
decisions = csv_table("decisions", "lllllrrrrrrrrrll", _DECISIONS)


@fmt.table("llrll" + "r" * (len(BASES) + 1))
def prices_by_basis(read: Results) -> Iterator[Row]:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    known = read.csv("prices").fillna(dict.fromkeys(("as_of", "until", "assumed"), ""))
    for _, some in known.groupby("instance", sort=False):
        assumed = some["assumed"].replace("region", ", region assumed")
        dated = some["usd_per_hour"].map("{:.4g}".format) + " (" + dates(some) + assumed + ")"
        priced = {basis: list(prices) for basis, prices in dated.groupby(some["basis"])}
        demand = priced.get("on_demand", [])
        row = next(some.itertuples())
        several = f"{row.accelerators:g} {row.accelerator}, {row.memory_gib_per_accelerator:g} GiB each"
        yield {
            "Instance": row.instance,
            "Accelerators": several if row.accelerators else "",
            "Cores": f"{row.cores:g}",
            "Kind": "published",
            "Region": row.region,
            "On demand before": demand[0] if len(demand) > 1 else "",
            **{words(basis).capitalize(): priced.get(basis, [""])[-1] for basis in BASES},
        }


def machine_names(runs: pd.DataFrame) -> pd.Series:
    """Return what a table calls the machine of each run, with :func:`mark`.

    Processor and cores; also the software where the machines of a group of cells differ in that alone.
    """
    names = runs["machine"].map(short)
    machines = runs["machine"].groupby([*(runs[column] for column in GROUP), names]).transform("nunique")
    names = names.where(machines == 1, runs["machine"].map(short_processor))
    marks = [mark(run.origin, run.busy, run.others_share) for run in runs.itertuples()]
    marked = ["; ".join([name, *some]) for name, some in zip(names, marks, strict=True)]
    return pd.Series(marked, runs.index, dtype=str)


def mark(origin: str, busy: bool, others_share: float) -> list[str]:
    """Return what stands beside a speed or a cost: ``fresh``, and the load of a busy machine or device."""
    fresh = ["fresh"] if origin != "recorded" else []
    of_cores = others_share > BUSY
    load = f"busy ({100 * others_share:.0f} % used by others)" if of_cores else "busy (others on the device)"
    return fresh + ([load] if busy else [])


def short(machine: str) -> str:
    """Return device, processor and cores of a machine, without marks of trade and without its software."""
    return ", ".join(part for part in short_processor(machine).split(", ") if not part.startswith(_SOFTWARE))


def usd(value: float, missing: str = "none") -> str:
    """Return dollars in four digits, from a thousand on as whole numbers."""
    return fmt.number(value, ",.0f" if abs(value) >= 1000 else ".4g", missing)


def spread(value: float, deviation: float) -> str:
    """Return ``0.0304 ± 0.0033``: dollars and their standard deviation over seeds, or ``(1 seed)``."""
    if pd.isna(value):
        return "none"
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2
    beside = " (1 seed)" if pd.isna(deviation) else f" ± {deviation:,.{places}f}"
    return f"{value:,.{places}f}{beside}"


def _spent(value: float, deviation: float) -> str:
    """Return dollars, with a spread where there is one: a published run has none."""
    return usd(value, "") if pd.isna(deviation) else spread(value, deviation)


def runs_in_words(runs: float) -> str:
    """Return runs to break even, or the word for infinitely many."""
    return "never" if math.isinf(runs) else f"{runs:,.0f}"
