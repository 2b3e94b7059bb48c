"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.expected import EXPECTED, read_expected
from cxrbench.report.cells import NOT_RUN
from cxrbench.report.evaluation import read_metrics
from cxrbench.report.states import Reviewed, state_of


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


def _state(row: Any, reviewed: Reviewed) -> str:
    """The state of a row of cells.csv; of a failure also that it was expected."""
    state = state_of(row, reviewed)
    return f"{state} (as expected)" if state.expected and row.status not in ("ok", NOT_RUN) else str(state)


def _count(states: pd.Series) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.value_counts(sort=False).items())
