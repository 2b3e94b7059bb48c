"""Tables: means with their intervals, calibration, reports of others, and what fits a page."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT, cxrbench
from cxrbench.datasets.findings import FINDINGS
from cxrbench.paper import tables
from cxrbench.paper.items import figures
from cxrbench.paper.latex import as_text, fitted, macros
from cxrbench.paper.provenance import Report, Reported, read_reported, status_matrix
from cxrbench.paper.results import Results, mean_of_seeds, with_interval
from cxrbench.study.errors import UserError

GROUP = ("nih", "resnet18", "cpu")
NETWORK = "nih128-64px resnet18 cpu"
WIDE = pd.DataFrame({name: ["same", "same"] for name in "abcdefgh"} | {"i": ["1", "2"]})


def results(**given: pd.DataFrame) -> Results:
    """Results with the given tables and nothing else."""
    return Results(**dict.fromkeys(field.name for field in dataclasses.fields(Results)) | given)  # type: ignore[arg-type]


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence."""
    monkeypatch.chdir(from_evidence)
    return Results.read(Path("results"), Path("results/study.json"), Path("data/recorded"))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.70, 0.72, 0.74], "0.720 (0.650 to 0.790)"),  # the interval of the mean, no mean of intervals
        ([0.7], "0.700 (0.100 to 0.900)"),
        ([0.70, float("nan"), 0.74], "0.720 (2 of 3 seeds)"),
    ],
)
def test_a_mean_over_seeds_has_its_own_interval(values: list[float], shown: str) -> None:
    key = dict(zip(("dataset", "architecture", "platform"), GROUP, strict=True))
    key |= {"metric": "auroc", "label": "macro"}
    metrics = pd.DataFrame([key | {"value": value, "ci_low": 0.1, "ci_high": 0.9} for value in values])
    mean = key | {"mean": sum(values) / len(values), "ci_low": 0.65, "ci_high": 0.79}
    read = results(metrics=metrics, spread=pd.DataFrame([mean]))
    assert read.mean(GROUP, "auroc", "macro") == shown
    assert read.mean(GROUP, "auroc", "Mass") == "undefined"
    assert mean_of_seeds(metrics["value"] * float("nan")) == "undefined"
    if len(values) > 1:
        with pytest.raises(ValueError):
            with_interval(metrics)  # networks are not averaged with their intervals


def holds_its_value(text: str) -> bool:
    """Whether ``0.712 (0.690 to 0.734)`` is an interval around its value."""
    value, low, high = map(float, re.findall(r"-?\d\.\d+", text))
    return low < value < high


@pytest.mark.parametrize(("seeds", "interval"), [(3, "recipe, 3 seeds"), (1, "one network")])
def test_calibration_stands_beside_what_chance_would_show(read: Results, seeds: int, interval: str) -> None:
    some = replace(read, metrics=read.metrics[read.metrics["seed"] < seeds])
    table, preamble = tables.calibration(some)
    assert len(preamble) == len(table.columns) and not table["Network"].str.contains("phantom").any()
    row = table.set_index("Network").loc[NETWORK]
    chance, error = (
        [float(end) for end in row[name].split(" to ")] for name in ("By chance", "Calibration error")
    )
    assert 0 < chance[0] <= error[0] <= error[-1] < 0.05 and len(set(error)) == min(seeds, 2)
    assert row["Interval of"] == interval and row["Evidence"]
    for column in ("In the large, %", "Brier score", "Average precision"):
        assert holds_its_value(row[column]), column


def test_average_precision_stands_beside_prevalence(read: Results) -> None:
    table, _ = tables.average_precision(read)
    assert len(table) == len(FINDINGS) + 3  # macro, whose interval it is, evidence
    identity = read.identity("nih128-64px")
    share = identity.positive_images["Effusion"]["test"] / identity.images["test"]
    assert float(table.set_index("Finding").loc["Effusion", "Prevalence"]) == pytest.approx(share, abs=5e-4)


def test_nothing_scored_is_no_table_and_said_in_the_figure(read: Results) -> None:
    nothing = read.cells.assign(status="not run")
    assert tables.average_precision(replace(read, cells=nothing))[0].empty
    figure = figures()["reliability"].make(nothing, Path())
    assert [text.get_text() for text in figure.axes[0].texts] == ["No cell has run."]


def test_every_network_of_the_main_dataset_has_a_panel(read: Results) -> None:
    figure = figures()["reliability"].make(read.cells, read.folder / "cells")
    networks = {f"{group[1]}, {group[2]}" for group in read.scored(main=True)}
    assert {axes.get_title() for axes in figure.axes if axes.get_title()} == networks


@pytest.mark.parametrize(
    ("seeds", "shown"),
    [
        ([0.2, 0.3, 0.4], "0.200 to 0.400"),
        ([np.nan] * 3, "none"),
        ([0.0] * 3, "any"),
        ([np.nan, np.nan, 0.9], "0.900 (1 of 3 seeds), none (2 of 3 seeds)"),
        ([0.0, 0.5, 0.7], "0.500 to 0.700 (2 of 3 seeds), any (1 of 3 seeds)"),
    ],
)
def test_the_prevalence_needed_is_a_range_only_of_seeds_that_agree(read: Results, seeds, shown: str) -> None:
    best = "/".join(read.best())
    search = read.f1_search[read.f1_search["cell"] == f"{best}/seed0"]
    rows = [search.assign(cell=f"{best}/seed{n}", prevalence_needed=value) for n, value in enumerate(seeds)]
    table, _ = tables.what_f1_could_be(replace(read, f1_search=pd.concat(rows)))
    assert set(table["Prevalence needed"]) == {shown}


def test_what_is_the_same_in_all_rows_is_said_once_below() -> None:
    text = fitted(WIDE, "l" * 8 + "r")
    assert text.count("same") == 8 and "In all rows:" in text and r"\linewidth" not in text
    assert r"\begin{tabular}{r}" in text and "1 \\\\" in text and "2 \\\\" in text
    long = fitted(WIDE.replace("same", "the same words in each of all the rows"), "l" * 8 + "r")
    assert r"\multicolumn{1}{@{}p{\linewidth}@{}}" in long, "a long line would widen the table"


def test_a_single_wide_row_stands_upright_and_a_narrow_table_is_left_as_it_is() -> None:
    upright = fitted(WIDE.head(1), "l" * 8 + "r")
    assert r"\begin{tabular}{ll}" in upright and "a & same" in upright
    narrow = fitted(WIDE[["a", "i"]], "lr")
    assert "In all rows" not in narrow and narrow.count("same") == 2


def test_the_words_of_a_caption_follow_from_a_count_in_html_and_pdf(tmp_path: Path) -> None:
    caption = r"\ifany{KEY}{\val{KEY} \ifmany{KEY}{were}{was} busy}{\emph{none} was}."
    values = {"zero": "0", "single": "1", "many": "12"}
    shown = ["none was.", "1 was busy.", "12 were busy.", "none was."]
    captions = [caption.replace("KEY", key) for key in (*values, "absent")]
    assert [as_text(text, values) for text in captions] == shown
    if shutil.which("latexmk") is None or shutil.which("pdftotext") is None:
        pytest.skip("LaTeX or pdftotext is not installed")
    for folder in ("paper/sections", "generated", "figures"):
        (tmp_path / folder).mkdir(parents=True)
    source = (ROOT / "paper/main.tex").read_text()
    commands = re.findall(r"^\\newcommand\{\\(?:val|if\w+)\}.*", source, flags=re.M)
    (tmp_path / "generated/macros.tex").write_text(macros(values) + "\n".join(commands))
    lines = [
        "\\documentclass{article}\\pagestyle{empty}\\input{generated/macros}\\begin{document}",
        *captions,
    ]
    (tmp_path / "paper/main.tex").write_text("\n\n".join([*lines, "\\end{document}"]))
    where = ["--sources", "paper", "--generated", "generated", "--figures", "figures", "--out", "out.pdf"]
    assert cxrbench("report", "paper", *where, cwd=tmp_path).returncode == 0
    text = subprocess.run(["pdftotext", tmp_path / "out.pdf", "-"], capture_output=True, text=True).stdout
    assert text.split("\n")[:4] == shown


def test_reports_of_others_are_marked_and_never_hide_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rows = [("not run", ""), ("ok", "recorded"), ("compile_failed", "fresh")]
    cells = pd.DataFrame(rows, columns=["status", "origin"])
    cells = cells.assign(dataset="d", architecture="convnext_tiny", seed=cells.index)
    cells["platform"] = ["neuron", "cpu", "cpu"]
    cells["cell"] = [f"d/convnext_tiny/{row.platform}/seed{row.seed}" for row in cells.itertuples()]
    table = status_matrix(results(cells=cells))[0].set_index("Architecture")
    cited = "reported to fail, forward reported to run (cited)"
    assert table.loc["convnext_tiny", "neuron"] == f"1 not run; {cited}"
    assert table.loc["convnext_tiny", "cpu"] == "1 recorded; 1 compile failed"
    outside = table[table.index.str.contains("maxvit")].iloc[0]
    assert outside["cpu"] == "not run" and outside["neuron"].startswith("not run; reported to work")


def test_a_report_is_of_a_training_or_of_its_forward_pass() -> None:
    reported = read_reported().set_index("architecture")
    forward = reported.loc["convnext_base", "status"].tolist()
    assert forward == [Report.FAILS, Report.FORWARD], "a forward pass is no training"
    assert reported.loc["maxvit_rmlp_pico_rw_256", "status"] == Report.WORKS


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("a,neuron,works,,github.com/x,read,w", "reported.csv:2: column status: unknown value 'works'"),
        ("a,neuron,reported to work,,github.com/x,heard,w", "reported.csv:2: column source_was: unknown"),
        ("a,neuron,reported to work,,,read,w", "reported.csv:2: column source: is empty"),
    ],
)
def test_a_report_in_other_words_is_named_with_its_line(tmp_path, cells: str, message: str) -> None:
    path = tmp_path / "reported.csv"
    path.write_text(f"{','.join(Reported.columns())}\n{cells}\n")
    with pytest.raises(UserError, match=re.escape(message)):
        read_reported(path)
