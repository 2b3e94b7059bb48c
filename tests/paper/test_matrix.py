"""Every matrix of states equals cells.csv, in summary, figure and table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.evidence.machine import GROUP
from cxrbench.paper import figures, provenance
from cxrbench.paper.summary import summary
from cxrbench.study.cells import Cell

from .conftest import made_up

# The state that a reader sees, and how cells.csv says it.
STATES = {
    "fresh": ("ok", "fresh"),
    "recorded": ("ok", "recorded"),
    "not run": ("not run", ""),
    "refused": ("not run", "refused"),
    "timed out": ("timed_out", "recorded"),
    "compile failed": ("compile_failed", "fresh"),
}
Counts = dict[tuple[str, ...], Counter[str]]  # dataset, architecture, platform -> state -> seeds


@st.composite
def drawn_cells(draw: st.DrawFn) -> pd.DataFrame:
    """cells.csv of a study with gaps: some architectures without some platforms, rows in any order."""
    cell = st.builds(
        Cell,
        st.sampled_from(["nih-64px", "phantom", "a.b"]),
        st.sampled_from(["resnet18", "resnet34", "convnext_pico"]),
        st.sampled_from(["cpu", "cuda", "neuron", "xla_cpu"]),
        st.integers(0, 3),
    )
    cells = draw(st.lists(cell, min_size=1, max_size=24, unique=True))
    states = draw(st.lists(st.sampled_from(list(STATES)), min_size=len(cells), max_size=len(cells)))
    rows = pd.DataFrame([STATES[state] for state in states], columns=["status", "origin"])
    named = pd.DataFrame([{"cell": str(cell), **vars(cell)} for cell in cells])
    return named.join(rows).assign(state=states)


def counted(text: str) -> Counter[str]:
    """``2 recorded, 1 timed out (unexpected)`` as counts; anything else is an error."""
    parts = [re.sub(r" \(.*\)$", "", part) for part in text.split(", ")]
    return Counter({state: int(count) for count, _, state in (part.partition(" ") for part in parts)})


def in_summary(cells: pd.DataFrame) -> Counts:
    """Read the matrix back from the text that ends a build."""
    read = made_up(cells=cells, metrics=pd.DataFrame(columns=["cell", "label", "metric"]))
    text = summary(read, Path("paper.pdf"), ROOT / "data/expected_status.csv")
    first, *lines = text.split("Cells (seeds per state)\n")[1].split("\n\n")[0].splitlines()
    found: Counts = {}
    for dataset, architecture, *entries in (re.split(r" {2,}", line.strip()) for line in lines):
        shown = dict(zip(first.split(), entries, strict=True))
        found |= {(dataset, architecture, name): counted(text) for name, text in shown.items() if text != "-"}
    return found


def in_figure(cells: pd.DataFrame) -> Counts:
    """Read the matrix back from what the figure writes into its squares."""
    figure = figures.cells_by_status(made_up(cells=cells))
    (axes,) = figure.axes
    columns = [label.get_text() for label in axes.get_xticklabels()]
    rows = [tuple(label.get_text().split(", ")) for label in axes.get_yticklabels()]
    found: Counts = {}
    for text in axes.texts:
        x, y = map(int, text.get_position())
        parts = re.findall(r"([^,]+) \((\d+)\)(?:, )?", text.get_text())
        found[(*rows[y], columns[x])] = Counter({state: int(count) for state, count in parts})
    plt.close(figure)
    return found


def in_table(cells: pd.DataFrame) -> Counts:
    """Read table_matrix back: architecture, platform -> counts over all datasets, reports left out."""
    table, _ = provenance.status_matrix(made_up(cells=cells))
    texts = table.set_index("Architecture").drop(columns="Evidence").stack()
    ours = {key: [part for part in text.split("; ") if re.match(r"\d", part)] for key, text in texts.items()}
    return {key: counted(", ".join(parts)) for key, parts in ours.items() if parts}


@settings(max_examples=40, deadline=None)
@given(drawn_cells())
def test_every_matrix_equals_the_cells_of_a_drawn_study(cells: pd.DataFrame) -> None:
    by_group, merged = (
        {key: Counter(states) for key, states in cells.groupby(keys)["state"]} for keys in (GROUP, GROUP[1:])
    )
    assert in_summary(cells) == in_figure(cells) == by_group
    assert in_table(cells) == merged
