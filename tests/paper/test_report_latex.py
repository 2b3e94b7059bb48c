"""Tables that fit a page, and the matrix of what trains where."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from cxrbench.analysis.matrix import State
from cxrbench.paper.feasibility import Report, Reported, Source, _words, read_reported, reported_values
from cxrbench.paper.latex import fitted
from cxrbench.study.errors import UserError

WIDE = pd.DataFrame({name: ["same", "same"] for name in "abcdefgh"} | {"i": ["1", "2"]})


def test_what_is_the_same_in_all_rows_is_said_once_below() -> None:
    text = fitted(WIDE, "l" * 8 + "r")
    assert text.count("same") == 8 and "In all rows:" in text
    assert r"\begin{tabular}{r}" in text and "1 \\\\" in text and "2 \\\\" in text


def test_a_long_line_below_a_table_is_broken_and_does_not_widen_it() -> None:
    text = fitted(WIDE.replace("same", "the same words in each of all the rows"), "l" * 8 + "r")
    assert r"\multicolumn{1}{@{}p{\linewidth}@{}}" in text
    assert r"\linewidth" not in fitted(WIDE, "l" * 8 + "r")


def test_a_single_wide_row_stands_upright() -> None:
    text = fitted(WIDE.head(1), "l" * 8 + "r")
    assert r"\begin{tabular}{ll}" in text and "a & same" in text


def test_a_narrow_table_is_left_as_it_is() -> None:
    text = fitted(WIDE[["a", "i"]], "lr")
    assert "In all rows" not in text and text.count("same") == 2


def test_reports_of_others_are_marked_and_never_hide_ours() -> None:
    reported = read_reported()
    tiny = reported[reported["architecture"] == "convnext_tiny"]
    nobody, ours = {State("not run"): 2}, {State("recorded"): 1, State("compile failed"): 1}
    said = "reported to fail, forward reported to run (cited)"
    assert _words(nobody, tiny) == f"2 not run; {said}"
    assert _words(ours, tiny) == f"1 recorded; 1 compile failed; {said}"


def test_a_pair_outside_the_study_is_not_run_either() -> None:
    reported = read_reported()
    tiny = reported[reported["architecture"] == "convnext_tiny"]
    assert _words({}, reported[:0]) == "not run"
    assert _words({}, tiny) == "not run; reported to fail, forward reported to run (cited)"


def test_every_report_names_its_source_and_what_it_speaks_of() -> None:
    reported = read_reported().set_index("architecture")
    assert set(reported["status"]) == set(Report) and set(reported["source_was"]) <= set(Source)
    forward = reported.loc["convnext_base", "status"].tolist()
    assert forward == [Report.FAILS, Report.FORWARD], "a forward pass is no training"
    assert reported.loc["maxvit_rmlp_pico_rw_256", "status"] == Report.WORKS
    assert reported_values()["reported/vit_base_patch16_224/reported to work"] == "6,587"


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
