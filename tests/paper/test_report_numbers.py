"""What the prose says follows from the tables, also where cells fail, are refused, or none is left to run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.paper import items, tables
from cxrbench.paper.numbers import numbers
from cxrbench.paper.results import Results

COUNTS = ("total", "ok", "failed", "not run", "refused", "recorded", "fresh")


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence."""
    monkeypatch.chdir(from_evidence)
    return Results.read(Path("results"), Path("results/study.json"), Path("data/recorded"))


def counts(values: dict[str, str], platform: str = "") -> dict[str, int]:
    prefix = f"cells/{platform}/" if platform else "cells/"
    return {name: int(values[prefix + name]) for name in COUNTS if prefix + name in values}


def test_failed_and_refused_cells_are_counted_once(read: Results) -> None:
    before = counts(numbers(read))
    cells = read.cells.copy()
    failed = cells.index[(cells["status"] == "ok") & (cells["platform"] == "cpu")][-1]
    refused = cells.index[(cells["status"] == "not run") & (cells["platform"] == "cuda")][0]
    cells.loc[failed, "status"] = "crashed"
    cells.loc[refused, "origin"] = "refused"
    values = numbers(replace(read, cells=cells))
    after = counts(values)
    assert after["fresh"] + after["recorded"] == after["ok"] == before["ok"] - 1
    assert (after["failed"], after["refused"]) == (before["failed"] + 1, before["refused"] + 1)
    assert after["ok"] + after["failed"] + after["not run"] + after["refused"] == after["total"]
    platforms = list(dict.fromkeys(cells["platform"]))
    assert sum(int(values[f"cells/{name}/not run"]) for name in platforms) == after["not run"]
    assert sum(int(values[f"cells/{name}/run"]) for name in platforms) == after["ok"] + after["failed"]


def test_no_claims_number_is_printed_with_an_exponent(read: Results) -> None:
    printed = {name: text for name, text in numbers(read).items() if name.startswith("claim/")}
    assert printed["claim/O14"] == "14,400"
    assert [name for name, text in printed.items() if re.search(r"\de[+-]?\d", text)] == []


def test_nothing_waits_for_a_processor_once_all_its_cells_ran(read: Results) -> None:
    here = read.cells["platform"].isin(["cpu", "xla_cpu"])
    done = read.cells[~here | (read.cells["status"] == "ok")]
    assert (done["status"] == "not run").any() and numbers(replace(read, cells=done))["cells/waiting"] == ""
    one_waits = done.copy()
    one_waits.loc[one_waits.index[one_waits["status"] == "ok"][-1], "status"] = "not run"
    said = numbers(replace(read, cells=one_waits))["cells/waiting"]
    assert said == "; the rest wait for hours of a processor, not for hardware"


def test_what_was_compared_is_named_with_its_platforms(read: Results) -> None:
    def said(*pairs: tuple[str, str, str]) -> tuple[str, str]:
        rows = [
            {"dataset": dataset, "kind": "platforms", "platform_a": a, "platform_b": b, "label": "macro",
             "metric": "auroc", "verdict": "inconclusive"}
            for dataset, a, b in pairs
        ]  # fmt: skip
        columns = list(read.parity.columns)
        values = numbers(replace(read, parity=pd.DataFrame(rows, columns=columns)))
        return values["parity/sentence"], values["parity/phantoms"]

    real, phantoms = said(("nih", "cpu", "xla_cpu"), ("nih", "cpu", "xla_cpu"), ("phantom", "cpu", "cuda"))
    assert real.startswith(
        r"Checks of the software on real radiographs: 2 of \code{cpu} and \code{xla\_cpu}; "
    )
    real, _ = said(("nih", "cpu", "xla_cpu"), ("nih", "cpu", "cuda"))
    assert real.startswith("Pairs of platforms on real radiographs: ")
    real, phantoms = said(("nih", "cpu", "xla_cpu"), ("phantom", "cpu", "cuda"))
    assert phantoms == r"of 1 verdicts on \code{cpu} and \code{cuda} 1 is inconclusive"
    real, phantoms = said()
    assert real.startswith("No pair of platforms can be compared") and phantoms.startswith("no pair")


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
    rows = [search.assign(cell=f"{best}/seed{n}", prevalence_needed=one) for n, one in enumerate(seeds)]
    table, _ = tables.what_f1_could_be(replace(read, f1_search=pd.concat(rows)))
    assert set(table["Prevalence needed"]) == {shown}


def test_the_best_network_is_never_said_to_be_the_best_of_other_datasets() -> None:
    """It is chosen on the main dataset; others are other images, or the same at another size."""
    sections = [path.read_text() for path in sorted((ROOT / "paper/sections").glob("*.tex"))]
    prose = "\n".join([*sections, *(item.caption for item in items.tables().values())])
    told = re.findall(r"(?:best/of\}|best network)[^:;]*", prose)
    assert len(told) >= 3 and all(r"\val{best/dataset}" in one for one in told)


def test_the_documents_quote_what_the_paper_computes_of_power(from_evidence: Path) -> None:
    macros = (from_evidence / "paper/generated/macros.tex").read_text()
    text = " ".join((ROOT / "docs/statistics.md").read_text().split())
    for name in ("patients", "patients of one seed", "seeds"):
        (value,) = re.findall(rf"cxr@power/preprint/{name}\\endcsname\{{(.*)\}}", macros)
        assert value in text, f"{name}: the paper has {value}"
