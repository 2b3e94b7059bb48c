"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.expected import EXPECTED, expected_status, read_expected
from cxrbench.report.cells import NOT_RUN, REFUSED
from cxrbench.report.evaluation import read_metrics


def summary(results: Path, paper: Path, expected: Path = EXPECTED) -> str:
    """Plain text, at most 100 columns wide."""
    cells = pd.read_csv(results / "tables/cells.csv", keep_default_na=False)
    reviewed = read_expected(expected)
    cells["state"] = [_state(row, reviewed) for row in cells.itertuples()]
    metrics = read_metrics(results / "tables/metrics.csv")
    lines = ["", "Cells (seeds per state)", _matrix(cells), "", "Test AUROC, mean over 14 findings"]
    macro = metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")]
    for row in macro.itertuples():
        lines.append(
            f"  {row.cell:44} {row.value:.3f}  (95 % over patients {row.ci_low:.3f} to {row.ci_high:.3f})"
        )
    if macro.empty:
        lines.append("  no cell has scores")
    lines += ["", f"Paper: {paper}", f"Tables: {results}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _matrix(cells: pd.DataFrame) -> str:
    counted = cells.groupby(["dataset", "architecture", "platform"], sort=False)["state"].agg(_count)
    table = counted.unstack("platform", sort=False).fillna("-")
    rows = [
        ["", "", *table.columns],
        *([*index, *row] for index, row in zip(table.index, table.values, strict=True)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join("  " + line for line in lines)


def _state(row: Any, reviewed: list[tuple[str, str, str]]) -> str:
    """fresh, recorded, refused or not run; a failure, or a success nobody expected, says so."""
    if row.status == NOT_RUN:
        return REFUSED if row.origin == REFUSED else NOT_RUN
    state = str(row.origin) if row.status == "ok" else str(row.status).replace("_", " ")
    if expected_status(row.cell, reviewed) != row.status:
        return f"{state} (unexpected)"
    return state if row.status == "ok" else f"{state} (as expected)"


def _count(states: pd.Series) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.value_counts(sort=False).items())
