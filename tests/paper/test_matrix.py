"""Every matrix of states equals cells.csv, in summary, figure and table; the summary's scores."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.paper import figures, provenance
from cxrbench.paper.results import Results
from cxrbench.paper.summary import matrix_and_scores, summary
from cxrbench.study.config import read_study
from cxrbench.study.names import GROUP, Cell

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
STUDY = read_study(ROOT / "config/config.yaml")
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


def printed(read: Results) -> str:
    return matrix_and_scores(read, ROOT / "data/expected_status.csv")


def in_summary(cells: pd.DataFrame) -> Counts:
    """Read the matrix back from the text that ends a build."""
    read = made_up(cells=cells, metrics=pd.DataFrame(columns=[*GROUP, "cell", "label", "metric"]))
    text = printed(read)
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
        found[(*rows[y], columns[x])] = counted(text.get_text())
    plt.close(figure)
    return found


def in_table(cells: pd.DataFrame) -> Counts:
    """Read table_matrix back: architecture, platform -> counts over all datasets, reports left out."""
    texts = provenance.status_matrix(made_up(cells=cells, study=STUDY)).rows.set_index("Architecture").stack()
    ours = {key: [part for part in text.split("; ") if re.match(r"\d", part)] for key, text in texts.items()}
    return {key: counted(", ".join(parts)) for key, parts in ours.items() if parts}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(drawn_cells())
def test_every_matrix_equals_the_cells_of_a_drawn_study(cells: pd.DataFrame) -> None:
    by_group, merged = (
        {key: Counter(states) for key, states in cells.groupby(keys)["state"]} for keys in (GROUP, GROUP[1:])
    )
    assert in_summary(cells) == by_group
    ran = {key[:2] for key, states in by_group.items() if set(states) != {"not run"}}
    assert in_figure(cells) == {key: of for key, of in by_group.items() if key[:2] in ran or not ran}
    assert in_table(cells) == merged


@pytest.mark.parametrize(
    ("others", "mean"),
    [
        ([], "mean over 2 findings and"),
        (["Edema"], "mean over findings and"),
    ],  # where networks differ in them
)
def test_the_summary_counts_findings_and_no_means_of_them(others: list[str], mean: str) -> None:
    labels = {"resnet18": ["Mass", "Nodule"], "resnet50": ["Mass", "Nodule", *others]}
    named = [
        {**dict(zip(GROUP, ("nih-64px", network, "cpu"), strict=True)), "label": label}
        for network, findings in labels.items()
        for label in (*findings, "macro", "endpoint")
    ]
    metrics = pd.DataFrame(named).assign(metric="auroc", value=0.7, ci_low=0.6, ci_high=0.8, n_patients=510)
    metrics["cell"] = metrics[GROUP].agg("/".join, axis=1) + "/seed0"
    cells = metrics[[*GROUP, "cell"]].drop_duplicates().assign(seed=0, status="ok", origin="recorded")
    assert mean in printed(made_up(cells=cells, metrics=metrics))


@pytest.mark.parametrize(
    ("seeds", "patients", "spread", "ends"),
    [
        ([0.71], 510, None, "0.710 (0.610 to 0.810) patients of one seed"),
        ([0.71], None, None, "0.710 (0.610 to 0.810) images of one seed"),
        ([0.70, 0.72], 510, (None, None), "0.710 no interval"),
        ([0.70, 0.71, 0.72], 510, (0.65, 0.77), "0.710 (0.650 to 0.770) patients and 3 seeds"),
        ([0.70, None, 0.72], 510, (0.65, 0.77), "0.710 (2 of 3 seeds) no interval"),
    ],
)
def test_the_summary_has_a_row_per_group_and_says_what_its_interval_covers(
    seeds: list[float | None], patients: int | None, spread: tuple[float | None, ...] | None, ends: str
) -> None:
    group = dict(zip(GROUP, ("nih-64px", "resnet18", "cpu"), strict=True))
    macro = {"label": "macro", "metric": "auroc", "n_patients": patients}
    rows = [
        {**group, **macro, "cell": f"nih-64px/resnet18/cpu/seed{n}", "value": v} for n, v in enumerate(seeds)
    ]
    metrics = pd.DataFrame(rows).assign(ci_low=0.61, ci_high=0.81).astype({"value": float})
    cells = metrics[[*GROUP, "cell"]].assign(seed=range(len(seeds)), status="ok", origin="recorded")
    low, high = spread or (None, None)
    over = pd.DataFrame([{**group, **macro, "mean": 0.71, "ci_low": low, "ci_high": high}][: len(seeds) - 1])
    over = (
        over if len(over) else pd.DataFrame(columns=[*GROUP, "label", "metric", "mean", "ci_low", "ci_high"])
    )
    text = printed(made_up(cells=cells, metrics=metrics, spread=over))
    (score,) = re.findall(r"nih-64px +resnet18 +cpu +(0.*)", text)
    assert " ".join(score.split()) == ends


@settings(max_examples=40, deadline=None)
@given(drawn_cells(), st.booleans())
def test_a_build_ends_with_six_lines_of_80_columns(cells: pd.DataFrame, claimed: bool) -> None:
    claims = pd.DataFrame({"source": ["ours", "theirs"], "verdict": ["follows", "stale"]})[: 2 * claimed]
    made = made_up(cells=cells, claims=claims, folder=Path("results"), metrics=pd.DataFrame(), study=STUDY)
    made = replace(made, cells=cells.assign(status=cells["status"].replace("ok", "timed_out")))
    lines = summary(made, Path("paper/paper.pdf")).split("\n")[1:-1]
    assert len(lines) == 6 and max(map(len, lines)) <= 80, lines
    assert lines[0] == "Paper: paper/paper.pdf" and lines[-1].startswith("Next: make report, cxrbench claims")
    run = (~cells["state"].isin(["not run", "refused"])).sum()
    assert lines[1].startswith(f"Training runs: {run} of {len(cells)} have evidence")
    idle = set(cells["platform"]) - set(cells.loc[~cells["state"].isin(["not run", "refused"]), "platform"])
    assert set(re.findall(r"\w+", lines[2].partition("No run on:")[2])) == idle
    assert ("1 follows" in lines[4]) == claimed and "stale" not in lines[4]


def test_the_end_of_a_build_names_the_main_endpoint(read: Results) -> None:
    lines = summary(read, Path("paper/paper.pdf")).split("\n")[1:-1]
    assert len(lines) == 6 and max(map(len, lines)) <= 80, lines
    group = read.largest()
    assert group is not None and lines[3].endswith(f"{'/'.join(group)}.")
    assert f"{read.of(group, 'auroc', 'endpoint')['value'].mean():.3f}" in lines[3]
