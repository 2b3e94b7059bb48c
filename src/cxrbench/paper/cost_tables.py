"""The paper's tables and numbers about money, and how a table names a machine and writes dollars.

Rows with a price say measured, proxy, projected or published, and its region, basis and date.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cxrbench.cost.porting import CASES, WEEK_USD
from cxrbench.cost.prices import BASES, dates
from cxrbench.evidence.record import BUSY, short_processor
from cxrbench.paper.formats import (
    Columns,
    Fields,
    Filled,
    Parts,
    PlusMinus,
    Range,
    Table,
    Value,
    Values,
    WithInterval,
    csv_table,
    listed,
    of_kinds,
    range_or,
    row,
    table,
    words,
)
from cxrbench.paper.results import Results
from cxrbench.study.names import GROUP
from cxrbench.study.platforms import ACCELERATED

# Not part of an hourly price and in no record; printed with every cost.
EXCLUDED = "storage, data transfer, packing the images, boot time and tax"
OF_ITS_BATCH = "A cost is of its batch: a small one leaves an accelerator mostly idle."
MACHINE = ["machine", "origin", "busy"]  # runs that differ in one of these are never averaged
_SOFTWARE = ("torch ", "torch_xla ", "torch_neuronx ", "driver ")
_WHERE: Columns = {"Region": "region", "Basis": ("name", lambda row: words(row.basis)), "Price of": "as_of"}
_PRICE: Columns = {"Instance": "instance", **_WHERE}
# Hours by phase and US dollars of each run, with its machine, what was paid for and what was used.
_COST: Columns = {
    "Cell": "cell",
    "Status": ("name", lambda run: words(run.status)),
    "Kind": "kind",
    "Machine": "named",
    **_PRICE,
    "Cores": ("given", lambda run: Parts((_or(run.cores_used, "none"), run.cores_paid), " of ")),
    "Set-up h": "hours_setup:hours",
    "Compile h": "hours_compile:hours",
    "Train h": "hours_train:hours",
    "Evaluate h": "hours_evaluate:hours",
    "USD": "usd_total:usd",
    "USD, used cores": "usd_used_cores:usd",
}
_NO_PRICE = "none"
_UNITS = ("Million images", "Until then", "Usable model", "Compilation shared")


def _or(value: float, word: str) -> float | str:
    return word if pd.isna(value) else value


def cost_of_cells(read: Results) -> Table:
    """Every run with its hours and dollars."""
    return table(read.cost.assign(named=machine_names(read.cost)), _COST)


@of_kinds({**dict.fromkeys(_UNITS, "usd"), "Usable": "count", "AUROC of": "given", "Shared by": "runs"})
def cost_units(read: Results) -> Iterator[Fields]:
    """What a unit costs per group of seeds on one machine: million images, target AUROC, usable model."""
    named = read.cost.assign(named=machine_names(read.cost))
    for group, runs in named.groupby([*GROUP, "instance", *MACHINE], sort=False):
        ok, first = runs[runs["status"] == "ok"], next(runs.itertuples())
        yield {
            "Cells": " ".join(group[:3]),
            "Machine": listed(runs["named"]),
            "Kind": listed(runs["kind"]),
            **row(first, _PRICE),
            "Usable": Parts((len(ok), len(runs)), " of "),
            "Million images": _mean(runs["usd_per_million_images"]),
            "AUROC of": first.target_auroc,
            "Until then": PlusMinus(first.cost_to_auroc, ok["usd_to_auroc"].std()),
            "Usable model": PlusMinus(first.cost_to_usable, first.usd_sd),
            "Compilation shared": _mean(runs["usd_amortised"]),
            "Shared by": first.amortised_over,
        }


def _mean(values: pd.Series) -> PlusMinus:
    return PlusMinus(values.mean(), values.std())


# Price ratios, and the preprint's ratio there with its run times unchanged.
_RATIOS: Columns = {
    "Trainium": "instance",
    "GPU": "baseline",
    "Kind": "kind",
    **_WHERE,
    "USD/h": ("usd_hour", lambda row: Parts((row.usd_instance, row.usd_baseline), " : ")),
    "Price ratio": "price_ratio:ratio",
    "Cost ratio": ("ratio", lambda row: Range(row.ratio_low, row.ratio_high)),
    "Ranking": "ranking",
}
price_ratios = csv_table("ratios", _RATIOS)

# Runs until a port pays: runs that others published at each date's prices, and our own cells.
_BREAK_EVEN: Columns = {
    "Run": "case",
    "Kind": "kind",
    "GPU": "here",
    "Trainium": "there",
    **_WHERE,
    "USD, GPU": ("usd_or_blank", lambda row: _spent(row.usd_here, row.usd_here_sd)),
    "USD, Trainium": ("usd_or_blank", lambda row: _spent(row.usd_there, row.usd_there_sd)),
    "Saving": "saving:usd_or_blank",
    "Porting": "porting:usd",
    "Runs": ("count", lambda row: _or(row.runs, row.note)),
}
break_even = csv_table("break_even", _BREAK_EVEN)

# Cases made from the thresholds of the sources' decision tables, answered with arithmetic.
_DECISIONS: Columns = {
    "Network": "architecture",
    "Kind": "kind",
    **_WHERE,
    "Cost ratio": ("ratio", lambda row: Range(row.ratio_low, row.ratio_high)),
    "Spend a month": "spend:usd",
    "Porting": "porting:usd",
    "Ongoing a month": "ongoing:usd",
    "Horizon, months": "months:given",
    "Capacity": "capacity:given",
    "Saved a month": ("thousands", lambda row: Range(row.saved_low, row.saved_high)),
    "Net": ("thousands", lambda row: Range(row.net_low, row.net_high)),
    "Breaks even, months": ("months", lambda row: Range(row.break_even_from, row.break_even_to)),
    "Verdict": "verdict:verdict",
    "Source says": "leans",
}
decisions = csv_table("decisions", _DECISIONS)


@of_kinds(
    {"Cores": "given"}
    | dict.fromkeys(("On demand before", *(words(basis).capitalize() for basis in BASES)), "usd_hour")
)
def prices_by_basis(read: Results) -> Iterator[Fields]:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    rows = read.csv("prices").fillna(dict.fromkeys(("as_of", "until", "assumed"), ""))
    for _, prices in rows.groupby("instance", sort=False):
        note = dates(prices) + prices["assumed"].replace("region", ", region assumed")
        dated = [WithInterval(usd, note=at) for usd, at in zip(prices["usd_per_hour"], note, strict=True)]
        priced: dict[str, list[WithInterval]] = {}
        for basis, price in zip(prices["basis"], dated, strict=True):
            priced.setdefault(basis, []).append(price)
        demand, first = priced.get("on_demand", []), next(prices.itertuples())
        several = f"{first.accelerators:g} {first.accelerator}, {first.memory_gib_per_accelerator:g} GiB each"
        yield {
            "Instance": first.instance,
            "Accelerators": several if first.accelerators else "",
            "Cores": first.cores,
            "Kind": "published",
            "Region": first.region,
            "On demand before": demand[0] if len(demand) > 1 else "",
            **{words(basis).capitalize(): priced.get(basis, [""])[-1] for basis in BASES},
        }


def machine_names(runs: pd.DataFrame) -> pd.Series:
    """The name of the machine of each run in a table, with :func:`mark`.

    Processor and cores; also the software where the machines of a group of cells differ in that alone.
    """
    names = runs["machine"].map(short)
    machines = runs["machine"].groupby([*(runs[column] for column in GROUP), names]).transform("nunique")
    names = names.where(machines == 1, runs["machine"].map(short_processor))
    marks = [mark(run.origin, run.busy, run.others_share) for run in runs.itertuples()]
    marked = ["; ".join([name, *of_run]) for name, of_run in zip(names, marks, strict=True)]
    return pd.Series(marked, runs.index, dtype=str)


def mark(origin: str, busy: bool, others_share: float) -> list[str]:
    """The mark beside a speed or a cost: ``fresh``, and the load of a busy machine or device."""
    fresh = ["fresh"] if origin != "recorded" else []
    of_cores = others_share > BUSY
    load = f"busy ({100 * others_share:.0f} % used by others)" if of_cores else "busy (others on the device)"
    return fresh + ([load] if busy else [])


def short(machine: str) -> str:
    """Return device, processor and cores of a machine, without marks of trade and without its software."""
    return ", ".join(part for part in short_processor(machine).split(", ") if not part.startswith(_SOFTWARE))


def _spent(value: float, deviation: float) -> float | PlusMinus:
    """Return dollars, with a spread where there is one: a published run has none."""
    return value if pd.isna(deviation) else PlusMinus(value, deviation)


# -- values that the prose names --------------------------------------------------------------------


def numbers(read: Results) -> Values:
    """Return every value that the paper's section on cost may name."""
    prices, ratios, load = read.csv("prices"), read.csv("ratios"), read.cost["others_share"]
    sources = _unversioned(prices["source"]).value_counts()
    runs, unknown = len(load), int(load.isna().sum())
    return {
        "cost/excluded": EXCLUDED,
        "cost/runs": runs,
        "cost/runs/load unknown": unknown,
        "cost/runs/load sentence": load_sentence(runs, unknown, int(read.cost["busy"].sum())),
        "cost/ratio rows": len(ratios),
        "cost/ratio sources": _ratio_sources(ratios),
        "price/date": prices["as_of"].dropna().max(),
        "price/sources": "; ".join(f"{name} ({rows})" for name, rows in sources.items()),
        **_day_values(read),
        **_case_values(read.csv("break_even")),
        "cost/week": Value(WEEK_USD, "usd_given"),
        "cost/depends at": _depends_at(read.csv("decisions")),
        **_share_values(read),
    }


def _unversioned(sources: pd.Series) -> pd.Series:
    """Return sources without their version: several versions of a file are one source."""
    return sources.str.split(r" @| \(", n=1, regex=True).str[0]


def _ratio_sources(ratios: pd.DataFrame) -> str:
    """Return every source of the prices behind the ratios, with regions and bases."""
    both = pd.concat([ratios, ratios.assign(source=ratios["source_other"])], ignore_index=True)
    where = both["region"] + " " + both["basis"].map(words)
    places = where.groupby(_unversioned(both["source"]), sort=False).unique()
    return "; ".join(f"{name} ({', '.join(at)})" for name, at in places.items())


def load_sentence(runs: int, unknown: int, busy: int) -> str:
    """Return of how many runs the load of the machine is known, and how many ran on a busy one."""
    of_load = "known how busy the machine was otherwise."
    parts = []
    if unknown:
        parts = [
            f"For {unknown} of the {runs} runs it is not {of_load}"
            if unknown < runs
            else f"For none of the {runs} runs is it {of_load}"
        ]
    if busy:
        parts.append(f"Marked: {busy} on a busy machine.")
    elif unknown < runs:
        parts.append("Where it is known, no machine was busy.")
    return " ".join(parts)


def _day_values(read: Results) -> Values:
    """Return ``day/<platform>/...``: the instance of each accelerator and its price of a day on demand."""
    pricing, prices = read.study.prices, read.csv("prices").fillna({"as_of": ""})
    demand = prices[prices["basis"] == "on_demand"].sort_values("as_of").set_index("instance")
    newest = demand["usd_per_hour"].groupby("instance").last() * 24
    values: Filled = {}
    for platform in sorted(ACCELERATED & pricing.instances.keys()):
        instance = pricing.instances[platform]
        values[f"day/{platform}/instance"] = instance
        values[f"day/{platform}/usd"] = Value(newest.get(instance, _NO_PRICE), "usd_day")
    return values


def _case_values(cases: pd.DataFrame) -> Values:
    """The runs after which a published port pays, and the day on which the price of the GPU was cut."""
    first, last = (cases[cases["case"] == case.case] for case in (CASES[0], CASES[-1]))
    demand = first[first["basis"] == "on_demand"].sort_values("as_of")
    cut = demand.loc[demand["usd_here"] < demand["usd_here"].cummax(), "as_of"]
    return {
        "cost/cut date": next(iter(cut), _NO_PRICE),
        "cost/porting": Value(first["porting"].iloc[0], "usd_given"),
        "cost/tuning runs": range_or(last.loc[np.isfinite(last["runs"]), "runs"], "count", _NO_PRICE),
    }


def _share_values(read: Results) -> Values:
    """The cost of an image on Trainium over the GPU where both reach equal fractions of their rooflines
    (``cost/shares``), and how many times smaller Trainium's share was if the preprint's ratio holds
    (``cost/handicap``)."""
    rows = read.csv("rooflines")
    ends = pd.concat([rows["share_low"], rows["share_high"]])
    return {
        "cost/shares": range_or(rows["ratio"], "ratio", _NO_PRICE),
        "cost/shares/networks": rows["architecture"].nunique(),
        "cost/shares/batch": rows["batch"].max(),
        "cost/handicap": range_or(ends, "one", _NO_PRICE),
    }


def _depends_at(decided: pd.DataFrame) -> str:
    """Return the prices at which the answer of a case depends on the rest of the ratio's range."""
    depends = decided[decided["pays"] == "at one end"]
    return listed(depends["region"] + " " + depends["basis"].map(words)) or _NO_PRICE
