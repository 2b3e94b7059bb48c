"""Costs as files: every cell with evidence, priced as the study, or the command line, says."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cxrbench.cells import Cell
from cxrbench.config import Pricing, read_study
from cxrbench.cost import cells as cost
from cxrbench.cost.cells import EXCLUDED
from cxrbench.cost.prices import BASES, REGIONS, read_prices
from cxrbench.errors import UserError, suggestion
from cxrbench.evidence import RECORD, Record, read_record
from cxrbench.recorded import Recorded
from cxrbench.report.machines import machine_names


@dataclass(frozen=True)
class Asked:
    """What the command line asks instead of the study: none leaves the study's."""

    region: str | None = None
    basis: str | None = None
    as_of: str | None = None
    target_auroc: float | None = None
    runs: float | None = None  # share the compilation between so many runs


def cost_table(
    paths: list[Path], study: Path, prices: Path, asked: Asked | None = None, recorded: Path | None = None
) -> pd.DataFrame:
    """cost.csv for the runs in ``paths`` (see :func:`runs_of`).

    With ``asked.runs`` two columns more: ``usd_amortised``, one run's USD when that many share its
    compilation, and ``amortised_over``.
    """
    asked = asked or Asked()
    if asked.target_auroc is not None and not 0 <= asked.target_auroc <= 1:
        raise UserError(f"target AUROC is {asked.target_auroc}: it lies between 0 and 1")
    pricing = pricing_of(study, asked)
    records, origins = zip(*runs, strict=True) if (runs := runs_of(paths, recorded)) else ((), ())
    table = cost.cost_table(records, read_prices(prices), pricing, asked.target_auroc, origins)
    if asked.runs is not None:
        table["usd_amortised"] = cost.amortised_compile(table, asked.runs)
        table["amortised_over"] = asked.runs
    return table


def runs_of(paths: Iterable[Path], recorded: Path | None = None) -> list[tuple[Record, str]]:
    """The runs in ``paths`` with their origin: ``recorded`` or ``fresh``.

    Without ``recorded`` all count as recorded. With it, a record that differs from that root's is fresh, and
    the recorded run of the same cell, recipe and images follows it: a run on this machine stands beside
    recorded speed and cost and never replaces them.
    """
    if recorded is None:
        return [(record, "recorded") for record in read_records(paths)]
    evidence, runs = Recorded(recorded), []
    for record in read_records(paths):
        cell = Cell.parse(record.cell)
        kept = cell.folder(recorded) / RECORD
        theirs = read_record(kept) if kept.exists() and not evidence.refused(cell) else None
        runs.append((record, "recorded" if record == theirs else "fresh"))
        if theirs is not None and record != theirs and _same_work(record, theirs):
            runs.append((theirs, "recorded"))
    return runs


def _same_work(record: Record, other: Record) -> bool:
    """Whether two runs of one cell did the same work: their recipe and, where known, their images."""
    images = {run.dataset.packed for run in (record, other) if run.dataset}
    return record.recipe_hash == other.recipe_hash and len(images) < 2


def read_records(paths: Iterable[Path]) -> list[Record]:
    """The records in ``paths``: record.json files, or all below folders."""
    files = [found for path in paths for found in (sorted(path.rglob(RECORD)) if path.is_dir() else [path])]
    return [read_record(path) for path in files]


def pricing_of(study: Path, asked: Asked) -> Pricing:
    """The study's pricing with what was asked put in its place; UserError for an unknown region or basis."""
    for name, value, known in (("region", asked.region, REGIONS), ("basis", asked.basis, BASES)):
        if value is not None and value not in known:
            hint = suggestion(value, known)
            raise UserError(f"unknown {name} '{value}'{hint}")
    changes = {name: getattr(asked, name) for name in ("region", "basis", "as_of")}
    return read_study(study).prices.model_copy(update={k: v for k, v in changes.items() if v is not None})


_COSTS = (
    "cell", "status", "kind", "machine", "instance", "region", "basis", "as_of", "hours_total", "usd_total",
    "usd_used_cores", "usd_per_million_images", "cost_to_usable", "usd_sd", "target_auroc", "usd_to_auroc",
    "cost_to_auroc", "usd_amortised", "amortised_over",
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
    "restart": "restart h", "expected_hours": "expected h", "simulated_hours": "simulated h",
    "standard_error": "standard error h", "usd": "USD", "usd_instance": "USD/h",
    "usd_baseline": "baseline USD/h", "usd_reserved": "USD/h, reserved", "usd_on_demand": "USD/h, on demand",
    "utilisation": "pays above this share of hours",
}  # fmt: skip


def readable(table: pd.DataFrame) -> str:
    """The columns a person wants on a terminal, and what the dollars leave out."""
    shown = table.filter(_COSTS).assign(machine=machine_names(table))
    if (table["usd_used_cores"] == table["usd_total"]).all():
        shown = shown.drop(columns="usd_used_cores")
    note = f"Not charged: {EXCLUDED}."
    if unknown := int(table["others_share"].isna().sum()):
        note += f" The load of the machine was not recorded for {unknown} of {len(table)} runs."
    return f"{in_columns(shown)}\n{note}"


def readable_break_even(table: pd.DataFrame) -> str:
    """Break-even for a terminal: ``never`` where there is no saving, the reason where nothing is known."""
    known = table["runs"].map(lambda runs: "never" if math.isinf(runs) else f"{runs:,.0f}")
    runs = known.where(table["runs"].notna(), table["note"])
    return in_columns(table.drop(columns=["source", "note", "saving"]).assign(runs=runs))


def readable_projection(table: pd.DataFrame) -> str:
    """Projections for a terminal, then why the rest is not projected, each reason once."""
    made = table[table["why_not"].isna()].drop(columns=["sources", "assumptions", "why_not"])
    reasons = [
        f"{reason}: {', '.join(dict.fromkeys(some['architecture']))}"
        + (f" on {', '.join(dict.fromkeys(some['instance']))}" if some["instance"].notna().all() else "")
        for reason, some in table.groupby("why_not", sort=False)
    ]
    return "\n".join([in_columns(made), *reasons])


def in_columns(table: pd.DataFrame) -> str:
    """A table for the terminal: units in its heads, four digits, a dash where there is no value; what is the
    same in all rows is said once, below it."""
    if table.empty:
        return "no rows"
    table = table.rename(columns=_HEADS).dropna(axis="columns", how="all")
    alike = [name for name in table if len(table) > 1 and table[name].nunique(dropna=False) == 1]
    if len(alike) == len(table.columns):
        alike = alike[1:]
    shown = table.drop(columns=alike).to_string(index=False, float_format=_digits, na_rep="-")
    below = "; ".join(f"{name} {_text(table[name].iloc[0])}" for name in alike if table[name].iloc[0] != "")
    return f"{shown}\nIn all rows: {below}." if below else shown


def _text(value: object) -> str:
    return _digits(value) if isinstance(value, float) else str(value)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
