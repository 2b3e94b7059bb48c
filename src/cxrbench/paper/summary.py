"""The text that ends a build: matrix of cells, scores per network and platform, where the result is."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import pandas as pd
from tabulate import tabulate

from cxrbench.evidence.expected import EXPECTED, read_expected
from cxrbench.paper.formats import missing, text
from cxrbench.paper.results import Group, Results
from cxrbench.results.matrix import State, matrix, state_of, tally
from cxrbench.study.names import GROUP


def summary(read: Results, result: Path, expected: Path = EXPECTED) -> str:
    """Return plain text, at most 100 columns wide."""
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in read.cells.itertuples()}
    rows = [["", "", *read.cells["platform"].unique()]]
    for row in matrix(read.cells, states):
        rows.append([row.dataset, row.architecture, *(_counts(tally([of])) for of in row.platforms.values())])
    seeds = read.metrics.query("metric == 'auroc' and label == 'macro'").groupby(GROUP, sort=False)
    scores = [[*group, *_score(read, group, rows)] for group, rows in seeds]
    counts = {len(read.findings(*group)) for group, _ in seeds}
    count = f"{min(counts)} " if len(counts) == 1 else ""
    mean = f"mean over {count}findings and over seeds (95 % interval), and what the interval covers"
    shown = _aligned(scores) if scores else "no cell has scores"
    lines = ["", "Cells (seeds per state)", indent(_aligned(rows), "  ")]
    lines += ["", f"Test AUROC, {mean}", indent(shown, "  ")]
    kind = "Paper" if result.suffix == ".pdf" else "Report"
    lines += ["", f"{kind}: {result}", f"Tables: {read.folder}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _aligned(rows: list[list[str]]) -> str:
    return tabulate(rows, tablefmt="plain", disable_numparse=True)


def _score(read: Results, group: Group, seeds: pd.DataFrame) -> tuple[str, str]:
    """Return a group's mean macro AUROC with its interval, and what that interval covers."""
    unit = "patients" if seeds["n_patients"].notna().any() else "images"
    covers = f"{unit} of one seed" if len(seeds) == 1 else f"{unit} and {len(seeds)} seeds"
    mean = read.mean(group, "auroc", "macro")
    return text(mean, "auroc"), "no interval" if missing(mean.low) else covers


def _counts(entry: Mapping[State, int]) -> str:
    """Return ``2 recorded, 1 timed out (as expected)``; a hyphen where there is no cell."""
    review = {state: " (as expected)" if state.failed and state.expected else "" for state in entry}
    return ", ".join(f"{count} {state}{review[state]}" for state, count in entry.items()) or "-"
