"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cxrbench.analysis.evaluate import read_metrics
from cxrbench.analysis.matrix import State, matrix, state_of, tally
from cxrbench.evidence.expected import EXPECTED, read_expected


def summary(results: Path, paper: Path, expected: Path = EXPECTED) -> str:
    """Plain text, at most 100 columns wide."""
    cells = pd.read_csv(results / "tables/cells.csv", keep_default_na=False)
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in cells.itertuples()}
    metrics = read_metrics(results / "tables/metrics.csv")
    lines = ["", "Cells (seeds per state)", _matrix(cells, states), "", "Test AUROC, mean over 14 findings"]
    macro = metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")]
    for row in macro.itertuples():
        lines.append(
            f"  {row.cell:44} {row.value:.3f}  (95 % over patients {row.ci_low:.3f} to {row.ci_high:.3f})"
        )
    if macro.empty:
        lines.append("  no cell has scores")
    lines += ["", f"Paper: {paper}", f"Tables: {results}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _matrix(cells: pd.DataFrame, states: Mapping[str, State]) -> str:
    """The matrix as text columns: counts of seeds per state, ``-`` where the study has no cell."""
    platforms = list(cells["platform"].unique())
    rows = [["", "", *platforms]]
    for row in matrix(cells, states):
        entries = (tally([row.platforms[platform]]) for platform in platforms)
        rows.append([row.dataset, row.architecture, *(_counts(entry) for entry in entries)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join("  " + line for line in lines)


def _counts(entry: Mapping[State, int]) -> str:
    """``2 recorded, 1 timed out (as expected)``."""
    return ", ".join(f"{count} {_words(state)}" for state, count in entry.items()) or "-"


def _words(state: State) -> str:
    """The state; of a failure also that it was expected."""
    return f"{state} (as expected)" if state.failed and state.expected else str(state)
