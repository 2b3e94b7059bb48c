"""Figures and tables of comparisons show what was compared, and say in words what is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from columns import SCORES
from conftest import ROOT
from cxrbench.analysis.estimates import estimate_cell
from cxrbench.analysis.evaluate import read_metrics
from cxrbench.analysis.parity import COLUMNS, parity
from cxrbench.evidence.predictions import read_predictions
from cxrbench.paper import figures, figures_platforms, tables
from cxrbench.paper.results import Results, parity_drawn
from cxrbench.study.cells import Cell
from cxrbench.study.config import Margins

CELL = "nih128-64px/resnet18/cpu/seed0"
SCORED = ["cell", "dataset", "architecture", "platform", "metric", "label", "value", "ci_low", "ci_high"]
NO_CELLS = pd.DataFrame(columns=[*SCORED, "status"], dtype=str)


@pytest.fixture(scope="module")
def compared() -> pd.DataFrame:
    """Parity of two made-up platforms with three seeds each, from recorded predictions with noise added."""
    real = read_predictions(ROOT / "data/recorded" / CELL / "predictions.parquet")
    cells = {}
    for number, platform in enumerate(("cpu", "cuda")):
        for seed in range(3):
            noise = real[SCORES].sample(frac=1, random_state=10 * number + seed).to_numpy() * 0.02
            for dataset in ("nih", "phantom"):
                scored = real.assign(**(real[SCORES] * 0.98 + noise))
                cells[Cell(dataset, "a", platform, seed)] = estimate_cell(scored)
    return parity(cells, Margins()).assign(processors_a="AMD EPYC", processors_b="AMD EPYC")


def texts(figure: plt.Figure) -> str:
    labels = [text.get_text() for axes in figure.axes for text in [*axes.texts, *axes.get_yticklabels()]]
    return "\n".join(labels)


def test_platforms_and_their_noise_floors_stand_in_one_figure(compared: pd.DataFrame) -> None:
    figure = figures_platforms.parity(compared)
    shown = texts(figure)
    assert "cpu - cuda" in shown and "cpu, other seeds" in shown and "cuda, other seeds" in shown
    (drawn,) = [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "s"]
    rows = compared.query("kind == 'platforms' and label == 'macro' and metric == 'auroc'")
    assert drawn == pytest.approx(list(rows["difference"]))
    # Noise floors of phantoms are drawn only where nothing is real.
    drawn = parity_drawn(compared.iloc[::-1])
    assert list(drawn["dataset"]) == ["nih", "nih", "nih", "phantom"]
    assert drawn["kind"].iloc[-1] == "platforms"
    phantoms = compared[compared["dataset"] == "phantom"]
    assert len(parity_drawn(phantoms)) == 3


def read_with(parity_rows: pd.DataFrame, **changes: pd.DataFrame) -> Results:
    """Results with comparisons, and no cells to name as evidence."""
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(Results))
    cells = pd.DataFrame(columns=["cell", "dataset", "architecture", "platform", "status", "origin"])
    return Results(**nothing | {"parity": parity_rows, "cells": cells} | changes)  # type: ignore[arg-type]


def test_published_values_stand_beside_their_own_finding(compared: pd.DataFrame) -> None:
    rows = [("first", "Mass", 0.5, 0.81), ("first", "Edema", 0.6, 0.82), ("second", "Edema", 0.6, 0.92)]
    literature = pd.DataFrame(rows, columns=["source", "label", "value", "published"])
    literature = literature.assign(cell="nih/a/cpu/seed0", citation=literature["source"])
    named = {"dataset": "nih", "architecture": "a", "platform": "cpu"}
    cells = pd.DataFrame([{"cell": "nih/a/cpu/seed0", **named, "status": "ok", "origin": ""}])
    values = {"label": ["macro", "Mass", "Edema"], "value": [0.6, 0.5, 0.6], "ci_low": 0.4, "ci_high": 0.7}
    metrics = pd.DataFrame(values).assign(**named, metric="auroc")
    read = read_with(compared, literature=literature, cells=cells, metrics=metrics)
    table, _ = tables.published_beside_ours(read)
    table = table.set_index("Finding").loc[["Mass", "Edema"]]
    assert table["second"].tolist() == ["", "0.920"]
    assert table["nih a cpu"].tolist() == ["0.500 (0.400 to 0.700)", "0.600 (0.400 to 0.700)"]


def test_parity_on_phantoms_has_a_table_of_its_own(compared: pd.DataFrame) -> None:
    real, _ = tables.parity_of_platforms(read_with(compared))
    drawn, _ = tables.parity_on_phantoms(read_with(compared))
    assert set(real["Cells"]) == {"nih a"} and set(drawn["Cells"]) == {"phantom a"}
    floor = real[real["Platforms"] == "cpu - cpu"].iloc[0]
    row = compared.query(
        "dataset == 'nih' and platform_b == 'cpu' and label == 'macro' and metric == 'auroc'"
    )
    assert floor["Difference"].startswith(f"{row['difference'].item():+.4f} (")
    assert floor["Verdict"] == "noise floor"  # it is there for its size, not for its test
    assert float(floor["Could show"]) == pytest.approx(row["smallest_margin"].item(), abs=5e-4)


def test_a_pair_on_two_processors_says_so_in_its_row_and_figure(compared: pd.DataFrame) -> None:
    pair = compared["platform_a"] != compared["platform_b"]
    mixed = compared.assign(processors_b=compared["processors_b"].mask(pair, "Intel Xeon"))
    table, _ = tables.parity_of_platforms(read_with(mixed))
    pairs = table["Platforms"] == "cpu - cuda"
    assert table.loc[pairs, "Verdict"].str.endswith("processors differ: AMD EPYC against Intel Xeon").all()
    assert not table.loc[~pairs, "Verdict"].str.contains("processors").any()
    assert "cpu - cuda *" in texts(figures_platforms.parity(mixed)) and "*" not in texts(
        figures_platforms.parity(compared)
    )


def test_a_small_difference_keeps_two_digits_of_its_interval(compared: pd.DataFrame) -> None:
    columns = ["difference", "ci_low", "ci_high", "smallest_margin"]
    tiny = compared.assign(**dict(zip(columns, (3e-6, -3.2e-4, 3.3e-4, 4.1e-4), strict=True)))
    row = tables.parity_of_platforms(read_with(tiny))[0].iloc[0]
    assert row["Difference"] == "+0.00000 (-0.00032 to +0.00033)" and row["Could show"] == "0.00041"


def test_one_seed_on_each_platform_is_one_row_in_words() -> None:
    real = read_predictions(ROOT / "data/recorded" / CELL / "predictions.parquet")
    cells = {Cell("nih", "a", platform, 0): estimate_cell(real) for platform in ("cpu", "cuda")}
    single = parity(cells, Margins())
    table, _ = tables.parity_of_platforms(read_with(single[single["kind"] == "platforms"]))
    assert list(table["Metric"]) == ["all"] and "a verdict needs 3 seeds" in table["Verdict"].item()


@pytest.mark.parametrize(
    ("draw", "inputs", "message"),
    [
        (figures_platforms.parity, [pd.DataFrame(columns=COLUMNS)], "No pair of platforms"),
        (figures_platforms.throughput, [pd.DataFrame()], "No speed has been recorded"),
        (figures.auroc_per_label, [NO_CELLS, NO_CELLS], "No cell has run"),
        (figures.learning_curves, [NO_CELLS, Path()], "No cell has run"),
    ],
)
def test_what_is_missing_is_said_in_words(draw, inputs, message: str) -> None:
    assert message in texts(draw(*inputs))


@pytest.fixture
def many(tmp_path: Path) -> pd.DataFrame:
    """cells.csv of fifteen groups, all with the evidence of one recorded cell, which lies in ``tmp_path``."""
    cells = [
        Cell("nih128-64px", f"network{number}", platform, 0)
        for number in range(5)
        for platform in ("cpu", "cuda", "neuron")
    ]
    for cell in cells:
        cell.folder(tmp_path).parent.mkdir(parents=True)
        cell.folder(tmp_path).symlink_to(ROOT / "data/recorded" / CELL)
    return pd.DataFrame([{"cell": str(cell), **vars(cell), "status": "ok"} for cell in cells])


def test_panels_keep_their_size_beside_a_long_legend(many: pd.DataFrame, tmp_path: Path) -> None:
    scores = many.assign(metric="auroc", label="macro", value=0.7, ci_low=0.6, ci_high=0.8)
    alone = figures.seed_spread(scores, NO_CELLS.rename(columns={"value": "mean"}))
    assert texts(alone).count("one seed") == len(many)
    with plt.rc_context(figures.STYLE):
        drawn = {
            "auroc": (figures.auroc_per_label(scores, scores[:0]), 2.0),
            "curves": (figures.learning_curves(many, tmp_path), 1.0),
            "roc": (figures.roc_per_label(many, tmp_path), 0.4),
        }
        for figure, _ in drawn.values():
            figure.canvas.draw()
    for name, (figure, inches) in drawn.items():
        shown = [axes for axes in figure.axes if axes.axison]
        assert min(axes.get_window_extent().height for axes in shown) > inches * figure.dpi, name
        for legend in [*figure.legends, *(axes.get_legend() for axes in shown)]:
            box = legend and legend.get_window_extent()
            assert box is None or min(box.x0, box.y0) > -0.03 * figure.dpi, name  # its invisible frame
        plt.close(figure)


def test_bars_over_several_seeds_are_intervals_of_their_mean(from_evidence: Path) -> None:
    scores = read_metrics(from_evidence / "results/tables/metrics.csv")
    means = pd.read_csv(from_evidence / "results/tables/spread.csv")
    group = (scores[["dataset", "architecture"]] == ["nih128-64px", "resnet18"]).all(axis=1)
    (axes,) = figures.auroc_per_label(scores[group], means).axes
    (bars,) = [part for part in axes.collections if len(part.get_segments()) > 1]
    low, high = bars.get_segments()[-1][:, 0]
    one = "dataset == 'nih128-64px' and architecture == 'resnet18' and label == 'macro' and metric == 'auroc'"
    (row,) = means.query(one).to_dict("records")
    assert (low, high) == pytest.approx((row["ci_low"], row["ci_high"]))
