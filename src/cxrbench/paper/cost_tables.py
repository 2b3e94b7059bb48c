"""The paper's tables about money, and how a table names a machine and writes dollars.

Each table shows for every row the word measured, proxy, projected or published, and region, basis and date
of the price in it. The CSV files of :mod:`cxrbench.cost.tables` are read here and nothing is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from cxrbench.cost.porting import months
from cxrbench.cost.prices import BASES
from cxrbench.evidence.machine import GROUP, short_processor
from cxrbench.paper.provenance import COLUMN, of_cells, of_group
from cxrbench.paper.results import Results, Table, group_name, listed

MACHINE = ["machine", "origin", "busy"]  # runs that differ in one of these are never averaged
_SOFTWARE = ("torch ", "torch_xla ", "torch_neuronx ", "driver ")
_GROUP = ["dataset", "architecture", "platform", "instance", *MACHINE]
Columns = dict[str, str | Callable[[Any], str]]  # head: a column, or the text of a row of itertuples
_WHERE: Columns = {"Region": "region", "Basis": lambda row: words(row.basis), "Price of": "as_of"}
_PRICE: Columns = {"Instance": "instance", **_WHERE}


def _texts(table: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the table of texts; no columns where ``table`` has no rows."""
    return pd.DataFrame([_row(run, columns) for run in table.itertuples()])


def _row(row: Any, columns: Columns) -> dict[str, str]:
    texts = {head: getattr(row, of) if isinstance(of, str) else of(row) for head, of in columns.items()}
    return {head: "" if pd.isna(text) else str(text) for head, text in texts.items()}


def cost_of_cells(read: Results) -> Table:
    """Hours by phase and US dollars of each run, with its machine, what was paid for and what was used."""
    costs = read.cost.assign(named=machine_names(read.cost))
    columns: Columns = {
        "Cell": "cell",
        "Status": lambda run: words(run.status),
        "Kind": "kind",
        "Machine": "named",
        **_PRICE,
        "Cores": lambda run: (
            f"{'none' if pd.isna(run.cores_used) else f'{run.cores_used:g}'} of {run.cores_paid:g}"
        ),
        "Set-up h": lambda run: f"{run.hours_setup:.3f}",
        "Compile h": lambda run: f"{run.hours_compile:.3f}",
        "Train h": lambda run: f"{run.hours_train:.3f}",
        "Evaluate h": lambda run: f"{run.hours_evaluate:.3f}",
        "USD": lambda run: usd(run.usd_total),
        "USD, used cores": lambda run: usd(run.usd_used_cores),
        COLUMN: lambda run: _evidence(read, costs.loc[[run.Index]]),
    }
    return _texts(costs, columns), "llllllllrrrrrrrl"


def cost_units(read: Results) -> Table:
    """What a unit costs per group of seeds on one machine: million images, target AUROC, usable model, warm
    run."""
    rows = []
    for group, some in read.cost.assign(named=machine_names(read.cost)).groupby(_GROUP, sort=False):
        ok = some[some["status"] == "ok"]
        first, target = some.iloc[0], some["target_auroc"].iloc[0]
        rows.append(
            {
                **_group(group, some),
                **_row(first, _PRICE),
                "Usable": f"{len(ok)} of {len(some)}",
                "Million images": _mean(some["usd_per_million_images"]),
                "AUROC of": "" if pd.isna(target) else f"{target:g}",
                "Until then": spread(first["cost_to_auroc"], ok["usd_to_auroc"].std()),
                "Usable model": spread(first["cost_to_usable"], first["usd_sd"]),
                "Compilation shared": _mean(some["usd_amortised"]),
                "Shared by": f"{first['amortised_over']:g} runs",
                COLUMN: _evidence(read, some),
            }
        )
    return pd.DataFrame(rows), "llllllllrrrrrrl"


def _group(group: tuple[str, ...], some: pd.DataFrame) -> dict[str, str]:
    """Return the first columns of a row about the seeds of a group on one machine."""
    machine, kind = listed(some["named"]), listed(some["kind"])
    return {"Cells": " ".join(group[:3]), "Machine": machine, "Kind": kind}


def _mean(values: pd.Series) -> str:
    return spread(values.mean(), values.std())


def _evidence(read: Results, runs: pd.DataFrame) -> str:
    """The names behind ``runs``; a recorded run beside a fresh one of its cell has no row to lead to."""
    origins = dict(zip(read.cells["cell"], read.cells["origin"], strict=True))
    shown = runs["origin"] == runs["cell"].map(origins)
    beside = [] if shown.all() else ["recorded"]
    return ", ".join([*filter(None, [of_cells(read, runs.loc[shown, "cell"])]), *beside])


def cells_by_regime(read: Results) -> Table:
    """The same hours under each basis and date: US dollars per usable model, one column per regime."""
    table = money_csv(read, "regimes")
    if "cell" not in table:
        return pd.DataFrame(), ""
    regimes = list(dict.fromkeys(table["regime"]))
    rows = []
    for group, some in table.assign(named=machine_names(table)).groupby(_GROUP, sort=False):
        paid = {row.regime: spread(row.cost_to_usable, row.usd_sd) for row in some.itertuples()}
        rows.append(
            {
                **_group(group, some),
                "Instance": group[3],
                "Region": listed(some["region"]),
                **{words(regime): paid.get(regime, "no price") for regime in regimes},
                COLUMN: _evidence(read, some.drop_duplicates("cell")),
            }
        )
    return pd.DataFrame(rows), "lllll" + "r" * len(regimes) + "l"


def ratio_by_regime(read: Results) -> Table:
    """Price ratios by region, basis and date, and the preprint's ratio there with its run times unchanged."""
    columns: Columns = {
        "Trainium": "instance",
        "GPU": "baseline",
        "Kind": "kind",
        **_WHERE,
        "USD/h": lambda row: f"{row.usd_instance:.4g} : {row.usd_baseline:.4g}",
        "Price ratio": lambda row: f"{row.price_ratio:.2f}",
        "Stated": lambda row: in_range(row.published_low, row.published_high, "{:g}"),
        "Then": lambda row: in_range(row.ratio_low, row.ratio_high, "{:.2f}"),
        "Ranking": "ranking",
    }
    return _texts(money_csv(read, "ratios"), columns), "llllllrrrrl"


def spot_runs(read: Results) -> Table:
    """Expected hours on spot with interruptions, the first set-up included, where a spot price is known."""
    evidence = {group_name(group): of_group(read, *group) for group in read.scored()}
    columns: Columns = {
        "Run": "run",
        "Kind": "kind",
        **_PRICE,
        "Work h": lambda row: f"{row.work_hours:.3f}",
        "Per hour": lambda row: f"{row.rate:g}",
        "Saved every": lambda row: f"{row.interval * 60:g} min",
        "Restart": lambda row: f"{row.restart * 60:.1f} min",
        "Expected h": lambda row: f"{row.expected_hours:.3f}",
        "Factor": lambda row: f"{row.factor:.3f}",
        "USD": lambda row: _spent(row.usd, row.usd_sd),
        COLUMN: lambda row: evidence.get(row.run, "published"),
    }
    return _texts(money_csv(read, "spot").dropna(subset="usd"), columns), "llllllrrrrrrrl"


def break_even(read: Results) -> Table:
    """Runs until a port pays: published runs at each date's prices, and our own cells."""
    columns: Columns = {
        "Run": "case",
        "Kind": "kind",
        "GPU": "here",
        "Trainium": "there",
        **_WHERE,
        "USD, GPU": lambda row: _spent(row.usd_here, row.usd_here_sd),
        "USD, Trainium": lambda row: _spent(row.usd_there, row.usd_there_sd),
        "Saving": lambda row: usd(row.saving, ""),
        "Porting": lambda row: usd(row.porting),
        "Runs": lambda row: row.note if pd.isna(row.runs) else runs_in_words(row.runs),
    }
    return _texts(money_csv(read, "break_even"), columns), "lllllllrrrrr"


def decisions(read: Results) -> Table:
    """The sources' decision tables, answered with arithmetic."""
    columns: Columns = {
        "Network": "architecture",
        "Kind": "kind",
        **_WHERE,
        "Cost ratio": lambda row: in_range(row.ratio_low, row.ratio_high, "{:.2f}"),
        "Spend a month": lambda row: usd(row.spend),
        "Porting": lambda row: usd(row.porting),
        "Ongoing a month": lambda row: usd(row.ongoing),
        "Months": lambda row: f"{row.months:g}",
        "Capacity": lambda row: f"{row.capacity:g}",
        "Saved a month": lambda row: in_range(row.saved_low / 1000, row.saved_high / 1000, "{:,.0f} k"),
        "Net": lambda row: in_range(row.net_low / 1000, row.net_high / 1000, "{:,.0f} k"),
        "Breaks even": lambda row: _ends(months(row.break_even_from), months(row.break_even_to)),
        "Verdict": "verdict",
        "Source leans": "leans",
    }
    return _texts(money_csv(read, "decisions"), columns), "lllllrrrrrrrrrll"


def projected_speeds(read: Results) -> Table:
    """Projected speed and cost on the study's instances; why not, where nothing can be projected."""
    table = money_csv(read, "projection")
    own = set(read.study.prices.instances.values())
    columns: Columns = {
        "Network": "architecture",
        "Pixels": "pixels",
        "Precision": "precision",
        "Kind": lambda row: row.kind if pd.isna(row.why_not) else row.why_not,
        **_PRICE,
        "Cores": lambda row: "" if pd.isna(row.cores) else f"{row.cores:g}",
        "Images/s": lambda row: in_range(row.low, row.high, "{:,.0f}"),
        "USD per million": lambda row: in_range(row.usd_per_million_low, row.usd_per_million_high, "{:.2g}"),
        "Error elsewhere": "error",
    }
    shown = table[table["instance"].isna() | table["instance"].isin(own)]
    return _texts(shown, columns), "lrlp{4cm}llllrrrp{4cm}"


def projection_errors(read: Results) -> Table:
    """What the projection got wrong where something was measured."""
    columns: Columns = {
        "Device": lambda row: short(row.device),
        "Network": "kind",
        "Precision": "precision",
        "Measured images/s": lambda row: f"{row.measured:,.0f}",
        "Projected": lambda row: in_range(row.low, row.high, "{:,.0f}"),
        "Error": lambda row: "" if pd.isna(row.error) else f"{row.error:+.0%}",
        "How": "method",
    }
    return _texts(money_csv(read, "backtest"), columns), "lllrrrl"


def documented_peaks(read: Results) -> Table:
    """The peaks that projections rest on; second hand where the data sheet itself was not read."""
    columns: Columns = {
        "Accelerator": "accelerator",
        "TFLOP/s per core, half": lambda row: f"{row.tflops:.4g}",
        "fp32": lambda row: "none documented" if pd.isna(row.tflops_fp32) else f"{row.tflops_fp32:.4g}",
        "GB/s per core": lambda row: "" if pd.isna(row.bandwidth_gb_s) else f"{row.bandwidth_gb_s:.4g}",
        "Kind": lambda row: "published",
        "Source": lambda row: row.source + ("" if pd.isna(row.source_fp32) else f"; fp32: {row.source_fp32}"),
        "How known": "evidence",
    }
    return _texts(money_csv(read, "peaks"), columns), "lrrrlp{9cm}l"


def prices_by_basis(read: Results) -> Table:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    rows = []
    for instance, some in money_csv(read, "prices").groupby("instance", sort=False):
        first = some.iloc[0]
        priced = {
            basis: [_dated(row) for row in prices.itertuples()] for basis, prices in some.groupby("basis")
        }
        demand = priced.get("on_demand", [])
        rows.append(
            {
                "Instance": instance,
                "Accelerators": _accelerators(first) if first["accelerators"] else "",
                "Cores": f"{first['cores']:g}",
                "Kind": "published",
                "Region": first["region"],
                "On demand before": demand[0] if len(demand) > 1 else "",
                **{words(basis).capitalize(): priced.get(basis, [""])[-1] for basis in BASES},
            }
        )
    return pd.DataFrame(rows), "llrll" + "r" * (len(BASES) + 1)


def money_csv(read: Results, name: str) -> pd.DataFrame:
    """Return a table of :mod:`cxrbench.cost.tables`; empty where it has no columns."""
    path = read.folder / "tables" / f"{name}.csv"
    return pd.read_csv(path) if path.stat().st_size > 1 else pd.DataFrame()


def machine_names(runs: pd.DataFrame) -> pd.Series:
    """Return what a table calls the machine of each run: processor and cores, also the software where a group
    of cells has machines that differ in that alone; then that it is fresh, and that it was busy."""
    names = runs["machine"].map(short)
    machines = runs["machine"].groupby([*(runs[column] for column in GROUP), names]).transform("nunique")
    names = names.where(machines == 1, runs["machine"].map(short_processor))
    marks = [mark(run.origin, run.busy, run.others_share) for run in runs.itertuples()]
    texts = ["; ".join([name, *some]) for name, some in zip(names, marks, strict=True)]
    return pd.Series(texts, runs.index, dtype=str)


def mark(origin: str, busy: bool, others_share: float) -> list[str]:
    """Return what stands beside a speed or a cost: ``fresh``, and the load of a busy machine."""
    fresh = ["fresh"] if origin != "recorded" else []
    return fresh + ([f"busy ({others_share:.0%} used by others)".replace("%", " %")] if busy else [])


def short(machine: str) -> str:
    """Return device, processor and cores of a machine, without marks of trade and without its software."""
    return ", ".join(part for part in short_processor(machine).split(", ") if not part.startswith(_SOFTWARE))


def usd(value: float, missing: str = "none") -> str:
    """Return dollars in four digits, from a thousand on in whole ones."""
    if pd.isna(value):
        return missing
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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


def words(text: Any) -> str:
    """Return a name with spaces; empty for none."""
    return "" if pd.isna(text) else text.replace("_", " ")


def _ends(*texts: str) -> str:
    return " to ".join(dict.fromkeys(texts))


def in_range(low: float, high: float, form: str) -> str:
    """Return ``low to high`` in ``form``, each end once; empty where there is none."""
    return "" if pd.isna(low) or pd.isna(high) else _ends(form.format(low), form.format(high))


def _accelerators(row: pd.Series) -> str:
    return f"{row['accelerators']:g} {row['accelerator']}, {row['memory_gib_per_accelerator']:g} GiB each"


def _dated(row: Any) -> str:
    return f"{row.usd_per_hour:.4g} ({'undated' if pd.isna(row.as_of) else row.as_of})"
