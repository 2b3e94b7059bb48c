"""Tables of costs as text, for ``cxrbench cost``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cxrbench.cli.words import in_columns, span, wrapped
from cxrbench.study.platforms import ACCELERATED

if TYPE_CHECKING:
    import pandas as pd

_COSTS = (
    "cell", "status", "kind", "machine", "instance", "region", "basis", "as_of", "usd_per_hour",
    "hours_total", "usd_total", "usd_used_cores", "usd_per_million_images", "target_auroc", "usd_to_auroc",
    "usd_amortised", "amortised_over",
)  # fmt: skip
_OVER_SEEDS = (
    "run", "machine", "basis", "as_of", "cost_to_usable", "usd_sd", "target_auroc", "cost_to_auroc",
)  # fmt: skip
_HEADS = {
    "as_of": "price date", "hours_total": "hours", "usd_total": "USD", "usd_used_cores": "USD, used cores",
    "usd_per_million_images": "USD/million images", "cost_to_usable": "USD/usable model",
    "usd_sd": "SD of USD over seeds", "target_auroc": "target AUROC", "usd_to_auroc": "USD to AUROC",
    "cost_to_auroc": "USD/model of AUROC", "usd_amortised": "USD, compilation shared",
    "amortised_over": "runs that share", "usd_per_hour": "USD/h", "usd": "USD", "old_usd": "USD/h before",
    "new_usd": "USD/h now", "old_as_of": "date before", "disk": "fits on own disk",
    "to_run": "to run", "packed_gib": "disk GiB", "device_gib": "step GiB",
    "rests_on": "rests on",
}  # fmt: skip


def cost_columns(table: pd.DataFrame, *apart: str) -> str:
    """Costs as printed, a table for each value of ``apart``."""
    return in_columns(table, _HEADS, *apart)


def costs_and_notes(table: pd.DataFrame) -> str:
    """Cost rows, what a usable model costs over seeds, and what the dollars leave out."""
    from cxrbench.paper.cost_tables import EXCLUDED, OF_ITS_BATCH, machine_names

    if table.empty:
        return cost_columns(table)
    shown = table.assign(machine=machine_names(table))
    cells = shown.filter(_COSTS)
    if (table["usd_used_cores"] == table["usd_total"]).all():
        cells = cells.drop(columns="usd_used_cores")
    runs = table.assign(run=shown["cell"].str.rpartition("/")[0])
    alike = runs.groupby(["run", "origin", "machine", "busy"], dropna=False)
    busiest = machine_names(table.assign(others_share=alike["others_share"].transform("max")))
    seeds = runs.assign(machine=busiest).filter(_OVER_SEEDS).drop_duplicates()
    note = f"Not charged: {EXCLUDED}."
    if shown["platform"].isin(ACCELERATED).any():
        note += f" {OF_ITS_BATCH}"
    if unknown := int(table["others_share"].isna().sum()):
        note += f" The load of the machine was not recorded for {unknown} of {len(table)} runs."
    return f"{cost_columns(cells)}\n\n{cost_columns(seeds)}\n{wrapped(note)}"


def mine_columns(table: pd.DataFrame, home: str) -> str:
    """The rows of :func:`~cxrbench.cost.mine.mine_table` as printed; regions but ``home`` are named."""
    rows = table.to_dict("records")
    bound = table["family"].map({"neuron": ""}).fillna("its peak")
    basis = (", " + table["basis"].str.replace("_", " ")).where(table["basis"] != "on_demand", "")
    away = (basis != "") | (table["region"] != home)
    shown = table.assign(
        time=[estimated(row, "hours", duration) for row in rows],
        usd=[estimated(row, "usd", span) for row in rows],
        rests_on=table["rests_on"].fillna("").where(table["hours_at_least"].isna(), bound),
        disk=[_disk(row) for row in rows],
        as_of=table["as_of"] + basis + (", " + table["region"]).where(away, ""),
    )
    return cost_columns(shown[["instance", "usd_per_hour", "time", "usd", "rests_on", "disk", "as_of"]])


def _disk(row: Mapping[Any, Any]) -> str:
    """Whether an instance's own disk holds the packed images, else the USD of a network volume."""
    if row["disk_gb"] >= row["packed_gb"]:
        return "yes"
    if math.isnan(row["disk_gb"]):
        return "unknown"
    return "no" if math.isnan(usd := row["usd_volume"]) else f"no, volume {span(usd, usd)} USD"


def estimated(row: Mapping[Any, Any], unit: str, text: Callable[[float, float], str]) -> str:
    """Hours or USD of a row as a range, or how much they are at least, or that they are unknown."""
    if not math.isnan(row[f"{unit}_low"]):
        return text(row[f"{unit}_low"], row[f"{unit}_high"])
    if not math.isnan(least := row[f"{unit}_at_least"]):
        # Of Trainium a bound would stand beside speeds that somebody reached.
        return "not measured" if row["family"] == "neuron" else f"at least {text(least, least)}"
    if row["training"] != "yes":
        return row["support"] if unit == "hours" else ""
    return "unknown; rent a day" if unit == "hours" else "unknown"


def duration(low: float, high: float) -> str:
    """Hours in the unit that a person would take: ``9.3 s``, ``42 min``, ``3.1 to 4 h``."""
    for unit, parts in (("s", 3600), ("min", 60)):
        if high * parts < 120:
            return f"{span(low * parts, high * parts)} {unit}"
    return f"{span(low, high)} h"
