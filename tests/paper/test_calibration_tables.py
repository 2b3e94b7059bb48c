"""Tables and figure of calibration, from recorded evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cxrbench.datasets.findings import FINDINGS
from cxrbench.paper import calibration
from cxrbench.paper.figures import reliability_curves
from cxrbench.paper.results import Results


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence."""
    monkeypatch.chdir(from_evidence)
    return Results.read(Path("results"), Path("results/study.json"), Path("data/recorded"))


def holds_its_value(text: str) -> bool:
    """Whether ``0.712 (0.690 to 0.734)`` is an interval around its value."""
    value, interval = text.split(" (")
    low, high = map(float, interval.rstrip(")").split(" to "))
    return low < float(value) < high


def test_calibration_stands_beside_what_chance_would_show(read: Results) -> None:
    table, preamble = calibration.calibration(read)
    assert len(preamble) == len(table.columns) and not table["Network"].str.contains("phantom").any()
    row = table.set_index("Network").loc["nih128-64px resnet18 cpu"]
    chance, error = (
        [float(end) for end in row[name].split(" to ")] for name in ("By chance", "Calibration error")
    )
    assert 0 < chance[0] <= error[0] < error[1] < 0.05, "from the lowest seed to the highest"
    assert row["Interval of"] == "recipe, 3 seeds" and row["Evidence"]
    for column in ("In the large, %", "Brier score", "Average precision"):
        assert holds_its_value(row[column]), column


def test_a_single_seed_has_its_interval(read: Results) -> None:
    first = read.metrics[read.metrics["seed"] == 0]
    table, _ = calibration.calibration(replace(read, metrics=first))
    row = table.set_index("Network").loc["nih128-64px resnet18 cpu"]
    for column in ("In the large, %", "Brier score", "Average precision"):
        assert holds_its_value(row[column]), column
    assert row["Interval of"] == "one network"


def test_average_precision_stands_beside_prevalence(read: Results) -> None:
    table, _ = calibration.average_precision(read)
    assert len(table) == len(FINDINGS) + 3  # macro, whose interval it is, evidence
    identity = read.identity("nih128-64px")
    share = identity.positive_images["Effusion"]["test"] / identity.images["test"]
    assert float(table.set_index("Finding").loc["Effusion", "Prevalence"]) == pytest.approx(share, abs=5e-4)


def test_nothing_scored_is_no_table_and_said_in_the_figure(read: Results) -> None:
    nothing = read.cells.assign(status="not run")
    assert calibration.average_precision(replace(read, cells=nothing))[0].empty
    figure = reliability_curves(nothing, Path())
    assert [text.get_text() for text in figure.axes[0].texts] == ["No cell has run."]


def test_every_network_of_the_main_dataset_has_a_panel(read: Results) -> None:
    figure = reliability_curves(read.cells, read.folder / "cells")
    networks = {f"{group[1]}, {group[2]}" for group in read.scored() if group[0] == read.main()}
    assert {axes.get_title() for axes in figure.axes if axes.get_title()} == networks
