"""Figures and tables of comparisons show what was compared, and say in words what is missing."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection

from columns import SCORES
from conftest import ROOT
from cxrbench.evidence.predictions import read_predictions
from cxrbench.paper import figures, figures_platforms, items, tables
from cxrbench.paper.items import as_text
from cxrbench.paper.power import corrected
from cxrbench.paper.results import Results, parity_drawn
from cxrbench.statistics.estimates import estimate_cell
from cxrbench.statistics.metrics import ENDPOINT
from cxrbench.statistics.parity import COLUMNS, Margins, family, parity
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell

from .conftest import drawn_by_name, made_up, named_values

CELL = "nih128-64px/resnet18/cpu/seed0"
RADIOGRAPHS, PHANTOMS = "nih128-64px", "phantom-32px"
STUDY = read_study(ROOT / "config/config.yaml")
SCORED = ["cell", "dataset", "architecture", "platform", "metric", "label", "value", "ci_low", "ci_high"]
WHITE = (1.0, 1.0, 1.0, 1.0)
NO_CELLS = pd.DataFrame(columns=[*SCORED, "status", "origin"], dtype=str)


@pytest.fixture(scope="module")
def compared() -> pd.DataFrame:
    """Parity of two made-up platforms with three seeds each, from recorded predictions with noise added."""
    real = read_predictions(ROOT / "data/recorded" / CELL / "predictions.parquet")
    cells = {}
    for number, platform in enumerate(("cpu", "cuda")):
        for seed in range(3):
            noise = real[SCORES].sample(frac=1, random_state=10 * number + seed).to_numpy() * 0.02
            for dataset in (RADIOGRAPHS, PHANTOMS):
                scored = real.assign(**(real[SCORES] * 0.98 + noise))
                cells[Cell(dataset, "a", platform, seed)] = estimate_cell(scored)
    rows = parity(cells, Margins()).assign(processors_a="AMD EPYC", processors_b="AMD EPYC")
    return drawn_by_name(rows)


def texts(figure: plt.Figure) -> str:
    labels = [text.get_text() for axes in figure.axes for text in [*axes.texts, *axes.get_yticklabels()]]
    return "\n".join(labels)


def drawn_parity(rows: pd.DataFrame) -> plt.Figure:
    return figures_platforms.parity(made_up(parity=rows, cells=rows, study=STUDY))


def printed(rows: pd.DataFrame) -> pd.DataFrame:
    """The table of parity on real radiographs."""
    return tables.parity_of_platforms(made_up(parity=rows, cells=NO_CELLS, study=STUDY)).texts


# -- parity ----------------------------------------------------------------------------------------


def test_platforms_and_their_noise_floors_stand_in_one_figure(compared: pd.DataFrame) -> None:
    figure = drawn_parity(compared)
    shown = texts(figure)
    assert (
        "64 px, fp32" in shown
        and "cpu - cuda" in shown
        and "cpu, other seeds" in shown
        and "cuda, other seeds" in shown
    )
    (marks,) = [part for part in figure.axes[0].collections if isinstance(part, PathCollection)]
    rows = parity_drawn(compared)
    assert [x for x, _ in marks.get_offsets()] == pytest.approx(list(rows["difference"]))
    filled = [tuple(face) != WHITE for face in marks.get_facecolors()]
    assert filled == list(rows["kind"] == "platforms")
    # Phantoms are drawn only where nothing is real, noise floors without a pair only where there is none.
    assert list(parity_drawn(compared.iloc[::-1])["dataset"]) == [RADIOGRAPHS] * 3
    assert len(parity_drawn(compared[compared["dataset"] == PHANTOMS])) == 3
    alone = compared[compared["kind"] == "noise floor"].assign(architecture="b")
    assert len(parity_drawn(pd.concat([compared, alone]))) == 3 and len(parity_drawn(alone)) == 2


def test_parity_on_phantoms_has_a_table_of_its_own(compared: pd.DataFrame) -> None:
    drawn = tables.parity_on_phantoms(made_up(parity=compared, cells=NO_CELLS, study=STUDY)).texts
    real = printed(compared)
    assert set(real["Dataset"]) == {RADIOGRAPHS} and set(drawn["Dataset"]) == {PHANTOMS}
    assert set(real["Platforms"]) == {"cpu - cuda"}


def test_noise_floors_have_a_table_of_their_own(compared: pd.DataFrame) -> None:
    floors = tables.noise_floors(made_up(parity=compared, cells=NO_CELLS, study=STUDY)).texts
    assert set(floors["Dataset"]) == {RADIOGRAPHS, PHANTOMS}
    floor = floors[(floors["Platforms"] == "cpu - cpu") & (floors["Dataset"] == RADIOGRAPHS)].iloc[0]
    of_floor = "dataset == @RADIOGRAPHS and platform_b == 'cpu' and label == 'macro' and metric == 'auroc'"
    (row,) = compared.query(of_floor).itertuples()
    assert floor["Difference"].startswith(f"{row.difference:+.4f} (")
    assert floor["Verdict"] == "noise floor"  # it is there for its size, not for its test
    assert float(floor["Could show"]) == pytest.approx(row.smallest_margin, abs=5e-4)


def test_a_pair_on_two_processors_says_so_in_its_row_and_figure(compared: pd.DataFrame) -> None:
    pair = compared["platform_a"] != compared["platform_b"]
    mixed = compared.assign(processors_b=compared["processors_b"].mask(pair, "Intel Xeon"))
    table = printed(mixed)
    judged = table[~table["Metric"].str.contains("F1")]  # F1 has no verdict
    assert len(judged) < len(table) and (table.drop(judged.index)["Verdict"] == "").all()
    assert list(judged["Verdict"].str.endswith(" *")) == list(judged["Platforms"] == "cpu - cuda")
    assert "cpu - cuda *" in texts(drawn_parity(mixed))
    assert "*" not in texts(drawn_parity(compared))


def test_a_small_difference_keeps_two_digits_of_its_interval(compared: pd.DataFrame) -> None:
    columns = ["difference", "ci90_low", "ci90_high"]
    tiny = compared.assign(**dict(zip(columns, (3e-6, -3.2e-4, 3.3e-4), strict=True)))
    row = printed(tiny).iloc[0]
    assert row["Difference"] == "+0.00000 (-0.00032 to +0.00033)"


def test_one_seed_on_each_platform_is_one_row_in_words() -> None:
    real = read_predictions(ROOT / "data/recorded" / CELL / "predictions.parquet")
    cells = {Cell(RADIOGRAPHS, "a", platform, 0): estimate_cell(real) for platform in ("cpu", "cuda")}
    table = printed(parity(cells, Margins()).query("kind == 'platforms'"))
    assert list(table["Metric"]) == ["all"] and "a verdict needs 3 seeds" in table["Verdict"].item()


def parity_rows(*verdicts: tuple[str, float]) -> pd.DataFrame:
    """Rows of parity.csv on macro AUROC, one pair each: verdict and the p that it stands on."""
    rows = pd.DataFrame(verdicts, columns=["verdict", "p"]).assign(
        dataset="nih", kind="platforms", platform_a="cpu", platform_b="cuda", label="macro", metric="auroc"
    )
    equivalent, names = rows["verdict"] == "equivalent", "a" + rows.index.astype(str)
    p = {"p_equivalent": rows["p"].where(equivalent, 0.9), "p_holm": rows["p"].mask(equivalent, 0.9)}
    return rows.assign(architecture=names, **p).reindex(columns=COLUMNS)


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (
            [("equivalent", 0.01), ("equivalent", 0.04), ("different", 0.03), ("inconclusive", 0.5)],
            "The table has 4 verdicts, on 4 pairs: after Holm's correction "
            "1 of 2 equivalent stay so; 0 of 1 different stay so.",
        ),
        (
            [("different", 0.01)],
            "on 1 pair: after Holm's correction 1 of 1 different stay so.",
        ),
        ([("inconclusive", 0.5)], "The table has 1 verdict, on 1 pair: all are inconclusive."),
        ([], "No verdict was tested."),
    ],
)
def test_a_caption_counts_its_family_and_what_the_correction_leaves(verdicts, sentence: str) -> None:
    rows = parity_rows(*verdicts)
    both = made_up(parity=pd.concat([rows, rows.assign(dataset="phantom-32px")]), metrics=NO_CELLS)
    values = named_values(both, "family/")
    for name in ("parity", "parity_phantoms"):
        assert sentence in as_text(items.tables()[name].caption, values)
    assert corrected(rows).endswith(sentence)


def test_a_family_is_every_tested_verdict_of_a_table_corrected_together() -> None:
    rows = parity_rows(("equivalent", 0.01), ("equivalent", 0.04), ("different", 0.03), ("inconclusive", 0.5))
    assert list(family(rows)["p_family"]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    rows = parity_rows(("inconclusive", float("nan")), ("equivalent", 0.0), ("equivalent", 0.01))
    found = family(pd.concat([rows, rows.assign(kind="noise floor"), rows.assign(label="Mass")]))
    assert list(found["p_family"]) == [0, 0.01]


# -- scores ----------------------------------------------------------------------------------------


def test_published_values_stand_beside_their_own_finding() -> None:
    rows = [("first", "Mass", 0.5, 0.81), ("first", "Edema", 0.6, 0.82), ("second", "Edema", 0.6, 0.92)]
    literature = pd.DataFrame(rows, columns=["source", "label", "value", "published"])
    literature = literature.assign(cell="nih128-64px/a/cpu/seed0", citation=literature["source"])
    named = {"dataset": "nih128-64px", "architecture": "a", "platform": "cpu"}
    cells = pd.DataFrame([{"cell": "nih128-64px/a/cpu/seed0", **named, "status": "ok", "origin": ""}])
    values = {"label": ["macro", "Mass", "Edema"], "value": [0.6, 0.5, 0.6], "ci_low": 0.4, "ci_high": 0.7}
    metrics = pd.DataFrame(values).assign(**named, metric="auroc")
    read = made_up(literature=literature, cells=cells, metrics=metrics)
    made = tables.published_beside_ours(replace(read, study=read_study(ROOT / "config/config.yaml")))
    table = made.texts.set_index("Finding").loc[["Mass", "Edema"]]
    assert table["second"].tolist() == ["", "0.920"]
    assert table["nih128-64px a cpu"].tolist() == ["0.500 (0.400 to 0.700)", "0.600 (0.400 to 0.700)"]
    both = [pd.concat([rows, rows.assign(dataset="nih128-128px")]) for rows in (cells, metrics)]
    read = made_up(literature=literature, cells=both[0], metrics=both[1], study=STUDY)
    assert list(tables.published_beside_ours(read).texts)[1:] == ["nih128-128px a cpu", "first", "second"]


NOTHING = {
    "parity": "No pair of platforms",
    "throughput": "No speed has been recorded",
    "step_parity": "No steps have been compared",
    **dict.fromkeys(("auroc_per_label", "seeds", "learning_curves", "roc", "reliability"), "No cell has run"),
}


@pytest.mark.parametrize(("name", "message"), NOTHING.items())
def test_what_is_missing_is_said_in_words(tmp_path: Path, name: str, message: str) -> None:
    frames = {"cells": NO_CELLS, "metrics": NO_CELLS, "spread": NO_CELLS.rename(columns={"value": "mean"})}
    nothing = made_up(parity=pd.DataFrame(columns=COLUMNS), folder=tmp_path, recorded=tmp_path, **frames)
    assert message in texts(items.figures()[name].make(nothing))


def test_every_network_of_the_main_dataset_has_a_panel(read: Results) -> None:
    figure = figures.reliability_curves(read)
    networks = {f"{group[1]}, {group[2]}" for group in read.scored(main=True)}
    assert {axes.get_title() for axes in figure.axes if axes.get_title()} == networks


@pytest.mark.slow
def test_panels_keep_their_size_beside_a_long_legend(tmp_path: Path) -> None:
    platforms = ("cpu", "cuda", "neuron")
    cells = [Cell("nih128-64px", f"net{number}", name, 0) for number in range(5) for name in platforms]
    for folder in (cell.folder(tmp_path / "cells") for cell in cells):
        folder.parent.mkdir(parents=True)
        folder.symlink_to(ROOT / "data/recorded" / CELL)
    many = pd.DataFrame([{"cell": str(cell), **vars(cell), "status": "ok"} for cell in cells])
    scores = many.assign(metric="auroc", label="macro", value=0.7, ci_low=0.6, ci_high=0.8)
    no_means = NO_CELLS.rename(columns={"value": "mean"})
    read = made_up(cells=many, metrics=scores, spread=no_means, folder=tmp_path, study=STUDY)
    seeds = figures.seed_spread(replace(read, metrics=scores.assign(label=ENDPOINT)))
    assert texts(seeds).count("one seed") == len(many)
    with plt.rc_context(figures.STYLE):
        drawn = {
            "auroc": (figures.auroc_per_label(read), 2.0),
            "curves": (figures.learning_curves(read), 1.0),
            "roc": (figures.roc_per_label(read), 0.4),
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


def test_dots_and_marks_of_every_network_are_of_the_declared_endpoint() -> None:
    cells = pd.DataFrame({"cell": f"nih/a/cpu/seed{seed}", "seed": seed} for seed in range(3))
    cells = cells.assign(dataset="nih128-64px", architecture="a", platform="cpu", status="ok")
    values = {ENDPOINT: [0.61, 0.62, 0.63], "macro": [0.71, 0.72, 0.73]}
    rows = [cells.assign(label=label, value=of_seeds) for label, of_seeds in values.items()]
    scores = pd.concat(rows).assign(metric="auroc", ci_low=0.6, ci_high=0.8)
    means = scores[scores["seed"] == 1].rename(columns={"value": "mean"})
    (axes,) = figures.seed_spread(made_up(cells=cells, metrics=scores, spread=means, study=STUDY)).axes
    drawn = [part.get_offsets()[:, 0] for part in axes.collections if isinstance(part, PathCollection)]
    assert [list(x) for x in drawn] == [values[ENDPOINT], [0.62]]
    assert axes.get_xlabel() == "main endpoint (mean AUROC)"


def test_macro_auroc_has_the_name_that_methods_give_it(compared: pd.DataFrame) -> None:
    assert set(printed(compared)["Metric"]) >= {"main endpoint", "macro AUROC", "macro F1"}


def test_bars_over_several_seeds_are_intervals_of_their_mean(read: Results) -> None:
    of_group = "dataset == 'nih128-64px' and architecture == 'resnet18'"
    (axes,) = figures.auroc_per_label(replace(read, metrics=read.metrics.query(of_group))).axes
    drawn = [part.get_segments() for part in axes.collections if isinstance(part, LineCollection)]
    (bars,) = [segments for segments in drawn if len(segments) > 1]
    (row,) = read.spread.query(f"{of_group} and label == 'macro' and metric == 'auroc'").itertuples()
    assert bars[-1][:, 0] == pytest.approx([row.ci_low, row.ci_high])
