"""What the paper takes from the evidence: tables (LaTeX, CSV, Markdown) and a macro for every number."""

from __future__ import annotations

from pathlib import Path

from cxrbench.files import write_csv, write_text
from cxrbench.report import tables
from cxrbench.report.latex import escape, macros, tabular
from cxrbench.report.numbers import numbers
from cxrbench.report.results import Results

TABLES = {
    "table_cells": tables.cells_by_status,
    "table_dataset": tables.dataset_counts,
    "table_auroc": tables.auroc_per_label,
    "table_f1": tables.f1_by_definition,
    "table_cost": tables.cost_of_cells,
    "table_parity": tables.parity_of_platforms,
    "table_f1_search": tables.what_f1_could_be,
    "table_literature": tables.published_beside_ours,
    "table_subgroups": tables.subgroups_of_cells,
    "table_throughput": tables.throughput,
    "table_claims": tables.claims_by_verdict,
}


def write_tables(results: Path, out: Path, study: Path, recorded: Path) -> None:
    """Write every table to ``out`` (LaTeX) and ``results``/tables (CSV, Markdown), and macros.tex last."""
    read = Results.read(results, study, recorded)
    for name, make in TABLES.items():
        table, preamble = make(read)
        write_csv(results / "tables" / f"{name}.csv", table)
        write_text(results / "tables" / f"{name}.md", table.to_markdown(index=False) + "\n")
        shown = table.map(escape).rename(columns=escape)
        text = tabular(shown, preamble) if len(table) else r"\emph{Nothing of this has been run.}" + "\n"
        write_text(out / f"{name}.tex", text)
    write_text(out / "macros.tex", macros(numbers(read)))
