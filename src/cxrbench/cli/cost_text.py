"""Tables about money for a terminal."""

from __future__ import annotations

import math

import pandas as pd

from cxrbench.cost.costs import EXCLUDED
from cxrbench.paper.cost_tables import machine_names, runs_in_words

_COSTS = (
    "cell", "status", "kind", "machine", "instance", "region", "basis", "as_of", "usd_per_hour",
    "hours_total", "usd_total", "usd_used_cores", "usd_per_million_images", "cost_to_usable", "usd_sd",
    "target_auroc", "usd_to_auroc", "cost_to_auroc", "usd_amortised", "amortised_over",
)  # fmt: skip
_HEADS = {
    "as_of": "price of", "hours_total": "hours", "usd_total": "USD", "usd_used_cores": "USD, used cores",
    "usd_per_million_images": "USD/million images", "cost_to_usable": "USD/usable model",
    "usd_sd": "SD of USD over seeds", "target_auroc": "target AUROC", "usd_to_auroc": "USD to AUROC",
    "cost_to_auroc": "USD/model of AUROC", "usd_amortised": "USD, compilation shared",
    "amortised_over": "runs that share", "usd_per_hour": "USD/h", "low": "images/s, low",
    "high": "images/s, high", "usd_per_million_low": "USD/million images, low",
    "usd_per_million_high": "USD/million images, high", "usd_here": "USD/run, GPU", "here": "GPU",
    "there": "Trainium", "usd_there": "USD/run, Trainium", "porting": "porting USD",
    "setup_hours": "set-up h", "work_hours": "work h", "rate": "interruptions/h", "interval": "saved every h",
    "restart": "restart h", "expected_hours": "expected h", "usd": "USD", "usd_instance": "USD/h",
    "usd_baseline": "baseline USD/h", "usd_reserved": "USD/h, reserved", "usd_on_demand": "USD/h, on demand",
    "utilisation": "pays above this share of hours",
}  # fmt: skip


def costs(table: pd.DataFrame) -> str:
    """Return cost rows, and what the dollars leave out."""
    if table.empty:
        return in_columns(table)
    shown = table.assign(machine=machine_names(table)).filter(_COSTS)
    if (table["usd_used_cores"] == table["usd_total"]).all():
        shown = shown.drop(columns="usd_used_cores")
    note = f"Not charged: {EXCLUDED}."
    if unknown := int(table["others_share"].isna().sum()):
        note += f" The load of the machine was not recorded for {unknown} of {len(table)} runs."
    return f"{in_columns(shown)}\n{note}"


def break_even(table: pd.DataFrame) -> str:
    """Return break-even: ``never`` where there is no saving, the reason where nothing is known."""
    runs = table["runs"].map(runs_in_words).where(table["runs"].notna(), table["note"])
    return in_columns(table.drop(columns=["source", "note", "saving"]).assign(runs=runs))


def projections(table: pd.DataFrame) -> str:
    """Return projections, then why the rest is not projected, each reason once."""
    made = table[table["why_not"].isna()].drop(columns=["sources", "assumptions", "why_not"])
    lines = [in_columns(made)]
    for reason, some in table.groupby("why_not", sort=False):
        where = f" on {', '.join(some['instance'].unique())}" if some["instance"].notna().all() else ""
        lines.append(f"{reason}: {', '.join(some['architecture'].unique())}{where}")
    return "\n".join(lines)


def in_columns(table: pd.DataFrame) -> str:
    """Return a table with units in its heads, four digits, and a dash where there is no value; what is the
    same in all rows stands once, below it."""
    if table.empty:
        return "no rows"
    table = table.rename(columns=_HEADS).dropna(axis="columns", how="all")
    alike = [name for name in table if len(table) > 1 and table[name].nunique(dropna=False) == 1]
    if len(alike) == len(table.columns):
        alike = alike[1:]
    shown = table.drop(columns=alike).to_string(index=False, float_format=_digits, na_rep="-")
    first = {name: table[name].iloc[0] for name in alike if table[name].iloc[0] != ""}
    texts = (f"{name} {_digits(it) if isinstance(it, float) else it}" for name, it in first.items())
    return f"{shown}\nIn all rows: {'; '.join(texts)}." if first else shown


def _digits(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
