"""The lines that end a build; and the matrix of cells with the scores per network and platform."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from textwrap import indent, shorten
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, Template
from tabulate import tabulate

from cxrbench.evidence.expected import EXPECTED, NOT_RUN, read_expected
from cxrbench.paper.formats import missing, text
from cxrbench.paper.results import Group, Results
from cxrbench.results.matrix import State, matrix, state_of, tally
from cxrbench.statistics.metrics import ENDPOINT, MACRO
from cxrbench.study.names import GROUP

_WIDTH = 80  # columns of a line that ends a build
_LINES = (resources.files(__package__) / "summary.txt").read_text(encoding="utf-8")
_ORIGINS = {"fresh": "trained here"}  # what others are called says it


def summary(read: Results, result: Path) -> str:
    """Six lines of at most 80 columns: what was made, what it says, and what to do next; of an own study
    nothing about our claims."""
    cells = read.cells
    origins = cells.loc[cells["status"] != NOT_RUN, "origin"].value_counts()
    lines = Template(_LINES, undefined=StrictUndefined, trim_blocks=True).render(
        kind="Paper" if result.suffix == ".pdf" else "Report",
        result=result,
        evident=origins.sum(),
        planned=len(cells),
        origins=[f"{count} {_ORIGINS.get(name, name)}" for name, count in origins.items()],
        idle=[name for name, rows in cells.groupby("platform") if (rows["status"] == NOT_RUN).all()],
        best=_best(read),
        claims=None if read.study.own else _verdicts(read.claims),
        tables=read.folder / "tables",
    )
    return "\n".join(["", *(shorten(line, _WIDTH, placeholder=" ...") for line in lines.splitlines()), ""])


def _best(read: Results) -> dict[str, Any] | None:
    """The main endpoint of the best network on the largest real radiographs; None without a score."""
    group = read.largest() or next(iter(read.scored()), None)
    if group is None or read.of(group, "auroc", ENDPOINT).empty:
        return None
    mean = read.mean(group, "auroc", ENDPOINT)
    return {
        "shown": text(mean, "auroc"),
        "chance": mean.low <= 0.5 <= mean.high,
        "setting": "/".join(group),
    }


def _verdicts(claims: pd.DataFrame) -> list[str]:
    """How many of our own claims have each verdict."""
    verdicts = claims.loc[claims["source"] == "ours", "verdict"].value_counts() if len(claims) else {}
    return [
        f"{n} {verdict.replace('follows', 'follow') if n > 1 else verdict}" for verdict, n in verdicts.items()
    ]


def matrix_and_scores(read: Results, expected: Path = EXPECTED) -> str:
    """The numbers of seeds of each network and platform by state, and their mean test AUROC."""
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in read.cells.itertuples()}
    rows = [["", "", *read.cells["platform"].unique()]]
    for row in matrix(read.cells, states):
        rows.append(
            [
                row.dataset,
                row.architecture,
                *(_seeds_by_state(tally([cell_states])) for cell_states in row.platforms.values()),
            ]
        )
    macro = (read.metrics["metric"] == "auroc") & (read.metrics["label"] == MACRO)
    seeds = read.metrics[macro].groupby(GROUP, sort=False)
    scores = [[*group, *_mean_score(read, group, rows)] for group, rows in seeds]
    counts = {len(read.findings(*group)) for group, _ in seeds}
    count = f"{min(counts)} " if len(counts) == 1 else ""
    mean = f"mean over {count}findings and over seeds (95 % interval), and what the interval covers"
    shown = _aligned(scores) if scores else "no cell has scores"
    lines = ["", "Cells (seeds per state)", indent(_aligned(rows), "  ")]
    lines += ["", f"Test AUROC, {mean}", indent(shown, "  ")]
    return "\n".join([*lines, ""])


def _aligned(rows: list[list[str]]) -> str:
    return tabulate(rows, tablefmt="plain", disable_numparse=True)


def _mean_score(read: Results, group: Group, seeds: pd.DataFrame) -> tuple[str, str]:
    """A group's mean macro AUROC with its interval, and what that interval covers."""
    unit = "patients" if seeds["n_patients"].notna().any() else "images"
    covers = f"{unit} of one seed" if len(seeds) == 1 else f"{unit} and {len(seeds)} seeds"
    mean = read.mean(group, "auroc", MACRO)
    return text(mean, "auroc"), "no interval" if missing(mean.low) else covers


def _seeds_by_state(entry: Mapping[State, int]) -> str:
    """``2 recorded, 1 timed out (as expected)``; a hyphen where there is no cell."""
    review = {state: " (as expected)" if state.failed and state.expected else "" for state in entry}
    return ", ".join(f"{count} {state}{review[state]}" for state, count in entry.items()) or "-"
