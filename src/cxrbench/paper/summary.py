"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cxrbench.analysis.evaluate import read_metrics
from cxrbench.analysis.matrix import State, matrix, state_of, tally
from cxrbench.evidence.expected import EXPECTED, read_expected


def summary(results: Path, paper: Path, expected: Path = EXPECTED) -> str:
    """Return plain text, at most 100 columns wide."""
    cells = pd.read_csv(results / "tables/cells.csv", keep_default_na=False)
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in cells.itertuples()}
    metrics = read_metrics(results / "tables/metrics.csv")
    scores = [
        f"  {row.cell:44} {row.value:.3f}  (95 % over patients {row.ci_low:.3f} to {row.ci_high:.3f})"
        for row in metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")].itertuples()
    ]
    lines = ["", "Cells (seeds per state)", *_matrix(cells, states), "", "Test AUROC, mean over 14 findings"]
    lines += scores or ["  no cell has scores"]
    lines += ["", f"Paper: {paper}", f"Tables: {results}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _matrix(cells: pd.DataFrame, states: Mapping[str, State]) -> list[str]:
    """Return the matrix as lines of text columns: counts of seeds per state, ``-`` where there is no cell."""
    platforms = list(cells["platform"].unique())
    rows = [["", "", *platforms]]
    for row in matrix(cells, states):
        entries = (tally([row.platforms[platform]]) for platform in platforms)
        rows.append([row.dataset, row.architecture, *map(_counts, entries)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return [f"  {text}" for text in texts]


def _counts(entry: Mapping[State, int]) -> str:
    """Return ``2 recorded, 1 timed out (as expected)``."""
    review = {state: " (as expected)" if state.failed and state.expected else "" for state in entry}
    return ", ".join(f"{count} {state}{review[state]}" for state, count in entry.items()) or "-"
