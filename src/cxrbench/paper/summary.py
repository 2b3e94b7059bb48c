"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

from tabulate import tabulate

from cxrbench.analysis.matrix import State, matrix, state_of, tally
from cxrbench.evidence.expected import EXPECTED, read_expected
from cxrbench.paper.results import Results


def summary(read: Results, paper: Path, expected: Path = EXPECTED) -> str:
    """Return plain text, at most 100 columns wide."""
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in read.cells.itertuples()}
    rows = [["", "", *read.cells["platform"].unique()]]
    for row in matrix(read.cells, states):
        rows.append([row.dataset, row.architecture, *(_counts(tally([of])) for of in row.platforms.values())])
    scores = [
        f"  {row.cell:44} {row.value:.3f}  (95 % over patients {row.ci_low:.3f} to {row.ci_high:.3f})"
        for row in read.metrics.query("metric == 'auroc' and label == 'macro'").itertuples()
    ]
    lines = ["", "Cells (seeds per state)"]
    lines += [indent(tabulate(rows, tablefmt="plain", disable_numparse=True), "  ")]
    findings = read.metrics.query("metric == 'auroc' and label != 'macro'").groupby("cell")["label"].nunique()
    count = f"{findings.iloc[0]} " if findings.nunique() == 1 else ""
    lines += ["", f"Test AUROC, mean over {count}findings", *(scores or ["  no cell has scores"])]
    lines += ["", f"Paper: {paper}", f"Tables: {read.folder}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _counts(entry: Mapping[State, int]) -> str:
    """Return ``2 recorded, 1 timed out (as expected)``; a hyphen where there is no cell."""
    review = {state: " (as expected)" if state.failed and state.expected else "" for state in entry}
    return ", ".join(f"{count} {state}{review[state]}" for state, count in entry.items()) or "-"
