"""Costs as files: every cell with evidence, priced as the study, or the command line, says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cxrbench.cells import Cell
from cxrbench.config import Pricing, read_study
from cxrbench.cost import cells as cost
from cxrbench.cost.prices import BASES, REGIONS, read_prices
from cxrbench.errors import UserError, suggestion
from cxrbench.evidence import RECORD, Record, read_record
from cxrbench.recorded import Recorded


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


def readable(table: pd.DataFrame) -> str:
    """The columns a person wants on a terminal."""
    columns = ["cell", "status", "kind", "instance", "region", "basis", "as_of", "hours_total", "usd_total"]
    columns += ["usd_used_cores", "usd_per_million_images", "cost_to_usable"]
    if table["target_auroc"].notna().any():
        columns += ["target_auroc", "usd_to_auroc", "cost_to_auroc"]
    if "usd_amortised" in table:
        columns += ["usd_amortised", "amortised_over"]
    return in_columns(table[columns])


def in_columns(table: pd.DataFrame) -> str:
    """A table for the terminal: four digits, an empty cell where there is no value."""
    if table.empty:
        return "no rows"
    return table.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="-")
