"""Scores as files: one CSV per cell, one tidy table for the study."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.analysis.controls import require_controls
from cxrbench.analysis.evaluate import COLUMNS, evaluate, headline
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, read_record
from cxrbench.study.cells import Cell
from cxrbench.study.files import write_csv

CELL_COLUMNS = ["cell", "dataset", "architecture", "platform", "seed"]


def evaluate_cell(record_path: Path, replicates: int) -> tuple[pd.DataFrame, list[str]]:
    """The metrics of a cell's test part (rows: metrics.csv) and notes; no rows for a failed cell.

    The controls (constant, label as score, shuffled labels) run first; one that fails is a UserError.
    """
    record = read_record(record_path)
    columns = [*CELL_COLUMNS, *COLUMNS]
    if record.status != "ok":
        return pd.DataFrame(columns=columns), [
            f"{record.cell}: {record.status}, so there is nothing to score"
        ]
    predictions = read_predictions(record_path.parent / PREDICTIONS)
    require_controls(predictions, str(record_path.parent / PREDICTIONS))
    result = evaluate(predictions, replicates=replicates)
    cell = Cell.parse(record.cell)
    identity = {"cell": record.cell, **vars(cell)}
    return result.table.assign(**identity)[columns], [f"{record.cell}: {note}" for note in result.notes]


def evaluate_file(path: Path, replicates: int) -> tuple[pd.DataFrame, list[str]]:
    """The metrics of a predictions file from anywhere, and notes on what it lacks."""
    from cxrbench.analysis.predictions import load_predictions

    predictions, notes = load_predictions(path)
    result = evaluate(predictions, replicates=replicates)
    return result.table, [*notes, *result.notes]


def gather(parts: list[Path], out: Path) -> None:
    """Concatenate the metrics of all cells; an empty study gives a table without rows."""
    tables = [pd.read_csv(part, dtype={"note": str}) for part in parts]
    tables = [table for table in tables if not table.empty]
    columns = [*CELL_COLUMNS, *COLUMNS]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
    write_csv(out, table)


def read_metrics(path: Path) -> pd.DataFrame:
    """metrics.csv with one row per cell, label and metric: the intervals to report."""
    return headline(pd.read_csv(path, dtype={"note": str, "ci_method": str}, keep_default_na=True))


def readable(table: pd.DataFrame) -> str:
    """The rows a person wants on a terminal: one line per label and metric, with interval."""
    table = headline(table)
    interval = [
        f"{low:.3f} to {high:.3f}" if pd.notna(low) else ""
        for low, high in zip(table.ci_low, table.ci_high, strict=True)
    ]
    value = [f"{v:.3f}" if pd.notna(v) else "undefined" for v in table["value"]]
    shown = table[["label", "metric"]].assign(value=value, interval=interval, n_positive=table["n_positive"])
    return shown.to_string(index=False)
