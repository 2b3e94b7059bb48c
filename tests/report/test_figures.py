"""Figures follow their tables, and say in words what is missing."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.cells import Cell
from cxrbench.config import Margins
from cxrbench.evidence import SCORES, read_predictions
from cxrbench.metrics.parity import COLUMNS, parity
from cxrbench.report import figures

CELL = "nih128-64px/resnet18/cpu/seed0"


@pytest.fixture(scope="module")
def compared() -> pd.DataFrame:
    """Parity of two made-up platforms with two seeds each, from recorded predictions with noise added."""
    real = read_predictions(ROOT / "data/recorded" / CELL / "predictions.parquet")
    cells = {}
    for number, platform in enumerate(("cpu", "cuda")):
        for seed in range(2):
            noise = real[SCORES].sample(frac=1, random_state=10 * number + seed).to_numpy() * 0.02
            cells[Cell("d", "a", platform, seed)] = real.assign(**(real[SCORES] * 0.98 + noise))
    return parity(cells, Margins())


def texts(figure: plt.Figure) -> str:
    labels = [text.get_text() for axes in figure.axes for text in [*axes.texts, *axes.get_yticklabels()]]
    return "\n".join(labels)


def test_platforms_and_their_noise_floors_stand_in_one_figure(compared: pd.DataFrame) -> None:
    figure = figures.parity(compared)
    shown = texts(figure)
    assert "cpu - cuda" in shown and "cpu, other seeds" in shown and "cuda, other seeds" in shown
    lines = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "s"]
    row = compared[(compared["kind"] == "platforms") & (compared["label"] == "macro")]
    assert lines == [pytest.approx(row[row["metric"] == "auroc"]["difference"].item())]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.parity(pd.DataFrame(columns=COLUMNS)), "No pair of platforms"),
        (lambda: figures.throughput(pd.DataFrame()), "No speed has been recorded"),
        (lambda: figures.auroc_per_label(pd.DataFrame(columns=["metric", "dataset"])), "No cell has run"),
        (lambda: figures.learning_curves(pd.DataFrame(columns=["status", "dataset"]), Path()), "No cell"),
    ],
)
def test_what_is_missing_is_said_in_words(draw, message: str) -> None:
    assert message in texts(draw())
