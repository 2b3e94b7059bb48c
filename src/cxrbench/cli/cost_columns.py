"""Tables of costs as text, for ``cxrbench cost``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cxrbench.cli.words import in_columns, span, wrapped

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
_MINE = (
    "instance", "usd_per_hour", "as_of", "break_even_ratio", "hours_at_peak", "hours_low", "hours_high",
    "usd_low", "usd_high", "kind",
)  # fmt: skip
_RANGES = {  # the columns of both ends, and their digits
    "images/s": ("low", "high", 4), "USD/million images": ("usd_per_million_low", "usd_per_million_high", 4),
    "hours": ("hours_low", "hours_high", 2), "USD": ("usd_low", "usd_high", 2),
}  # fmt: skip
_HEADS = {
    "as_of": "price of", "hours_total": "hours", "usd_total": "USD", "usd_used_cores": "USD, used cores",
    "usd_per_million_images": "USD/million images", "cost_to_usable": "USD/usable model",
    "usd_sd": "SD of USD over seeds", "target_auroc": "target AUROC", "usd_to_auroc": "USD to AUROC",
    "cost_to_auroc": "USD/model of AUROC", "usd_amortised": "USD, compilation shared",
    "amortised_over": "runs that share", "usd_per_hour": "USD/h", "usd_here": "USD/run, GPU", "here": "GPU",
    "there": "Trainium", "usd_there": "USD/run, Trainium", "porting": "porting USD",
    "rate": "stops/h", "factor": "times the hours",
    "expected_hours": "expected h", "usd": "USD", "old_usd": "USD/h before",
        "runs": "runs until it pays", "new_usd": "USD/h now", "old_as_of": "price before of",
    "break_even_ratio": "price / GPU price", "hours_at_peak": "h at least", "to_run": "to run",
    "packed_gib": "disk GiB", "device_gib": "step GiB",
}  # fmt: skip


def cost_columns(table: pd.DataFrame, *apart: str) -> str:
    """Return costs as printed, a table for each value of ``apart``; a range's two ends are one text."""
    for name, (low, high, digits) in _RANGES.items():
        if low in table:
            ends = zip(table[low], table[high], strict=True)
            texts = [None if math.isnan(end[0]) else span(*end, digits) for end in ends]
            table = table.assign(**{low: texts}).rename(columns={low: name}).drop(columns=high)
    return in_columns(table, _HEADS, *apart)


def reasons(table: pd.DataFrame, named: str) -> list[str]:
    """Return each note of the rows once, after what it is about (the column ``named``)."""
    groups = table.groupby("note", sort=False)
    return [wrapped(f"{'; '.join(some[named].unique())}: {note}.") for note, some in groups]


def assumed(assumptions: Iterable[str]) -> list[str]:
    """Return one sentence with each assumption once; nothing where there are none."""
    each = "; ".join(dict.fromkeys(assumptions))
    return [f"Assumed: {each}."] if each else []


def supported(table: pd.DataFrame, prices: pd.DataFrame, instance: str = "instance") -> list[str]:
    """Return the sentence on training that AWS no longer supports on one of the instances of the rows."""
    from cxrbench.cost.devices import support

    some = prices.loc[prices["instance"].isin(table[instance]), "accelerator"]
    return support(some.unique())


def costs_and_notes(table: pd.DataFrame) -> str:
    """Return cost rows, what a usable model costs over seeds, and what the dollars leave out."""
    from cxrbench.cost.costs import EXCLUDED
    from cxrbench.paper.cost_tables import machine_names

    if table.empty:
        return cost_columns(table)
    shown = table.assign(machine=machine_names(table))
    cells = shown.filter(_COSTS)
    if (table["usd_used_cores"] == table["usd_total"]).all():
        cells = cells.drop(columns="usd_used_cores")
    seeds = shown.assign(run=shown["cell"].str.rpartition("/")[0]).filter(_OVER_SEEDS).drop_duplicates()
    note = f"Not charged: {EXCLUDED}."
    if unknown := int(table["others_share"].isna().sum()):
        note += f" The load of the machine was not recorded for {unknown} of {len(table)} runs."
    return f"{cost_columns(cells)}\n\n{cost_columns(seeds)}\n{wrapped(note)}"


def hours_and_dollars(table: pd.DataFrame) -> str:
    """Return the rows of :func:`~cxrbench.cost.mine.mine_table` with an accelerator, as printed."""
    rows = table[table["accelerator"] != ""]
    basis = rows["basis"].replace({"on_demand": "", "capacity_block": "block"}).str.replace("_", " ")
    return cost_columns(rows.assign(as_of=(basis + " " + rows["as_of"]).str.strip())[[*_MINE]])
