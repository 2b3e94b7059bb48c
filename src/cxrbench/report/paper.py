"""What the paper takes from the evidence: tables (LaTeX, CSV, Markdown) and a macro for every number."""

from __future__ import annotations

from pathlib import Path

from cxrbench.files import sha256_file, sha256_json, write_csv, write_text
from cxrbench.report import (
    artifact,
    audit,
    calibration,
    feasibility,
    label_noise,
    measurements,
    power,
    provenance,
    splits,
    tables,
)
from cxrbench.report.cost_tables import COST_TABLES
from cxrbench.report.latex import escape, fitted, macros
from cxrbench.report.ledger import facts, sources, write_ledger
from cxrbench.report.numbers import numbers
from cxrbench.report.results import Results
from cxrbench.report.systems import write_systems

TABLES = {
    "table_cells": provenance.cells_by_status,
    "table_measured": provenance.measured_files,
    "table_dataset": tables.dataset_counts,
    "table_auroc": tables.auroc_per_label,
    "table_auroc_elsewhere": tables.auroc_elsewhere,
    "table_calibration": calibration.calibration,
    "table_average_precision": calibration.average_precision,
    "table_f1": tables.f1_by_definition,
    "table_parity": tables.parity_of_platforms,
    "table_parity_phantoms": tables.parity_on_phantoms,
    "table_power": power.typeset,
    "table_f1_search": tables.what_f1_could_be,
    "table_literature": tables.published_beside_ours,
    "table_subgroups": tables.subgroups_of_cells,
    "table_throughput": tables.throughput,
    "table_claims": tables.claims_by_verdict,
    "table_matrix": feasibility.status_matrix,
    "table_reported": feasibility.reports,
    "table_audit": audit.audit_table,
    "table_label_noise": label_noise.typeset,
    "table_splits": splits.typeset,
    "table_gains": measurements.gains,
    "table_xla": measurements.xla_ways,
    "table_sources": sources,
    "table_facts": facts,
    **COST_TABLES,
}


def write_tables(results: Path, out: Path, study: Path, recorded: Path) -> None:
    """Write every table to ``out`` (LaTeX) and ``results``/tables (CSV, Markdown), and macros.tex last."""
    read = Results.read(results, study, recorded)
    for name, make in TABLES.items():
        table, preamble = make(read)
        write_csv(results / "tables" / f"{name}.csv", table)
        write_text(results / "tables" / f"{name}.md", table.to_markdown(index=False) + "\n")
        shown = (
            provenance.linked(table.map(escape).rename(columns=escape), read, name) if len(table) else table
        )
        text = fitted(shown, preamble) if len(table) else r"\emph{Nothing of this has been run.}" + "\n"
        write_text(out / f"{name}.tex", text)
    write_text(out / "xla_listing.tex", measurements.xla_listing())
    write_ledger(read.claims, out)
    artifact.write_artifact(artifact.Artifact.read(read.claims, study, recorded), out)
    write_systems(recorded, out)
    # The one file that the graph waits for changes when any beside it does.
    beside = {path.name: sha256_file(path) for path in sorted(out.glob("*.tex")) if path.name != "macros.tex"}
    write_text(out / "macros.tex", f"% with tables {sha256_json(beside)}\n{macros(numbers(read))}")
