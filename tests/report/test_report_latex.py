"""Tables that fit a page, and the matrix of what trains where."""

from __future__ import annotations

import pandas as pd

from cxrbench.report.feasibility import _words, read_reported
from cxrbench.report.latex import fitted
from cxrbench.report.states import State

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
    assert _words(nobody, tiny) == "2 not run; reported to fail (cited)"
    assert _words(ours, tiny) == "1 recorded; 1 compile failed; reported to fail (cited)"


def test_a_pair_outside_the_study_is_not_run_either() -> None:
    reported = read_reported()
    tiny = reported[reported["architecture"] == "convnext_tiny"]
    assert _words({}, reported[:0]) == "not run"
    assert _words({}, tiny) == "not run; reported to fail (cited)"


def test_every_report_names_its_source() -> None:
    reported = read_reported()
    assert set(reported["status"]) <= {"reported to work", "reported to fail"}
    assert (reported["source"] != "").all() and (reported["words"] != "").all()
