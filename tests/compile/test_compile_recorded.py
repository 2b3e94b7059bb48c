"""The recorded audits hold together, and the paper takes its table and numbers from them without torch."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.compile.audit import read_audit
from cxrbench.compile.networks import NETWORKS
from cxrbench.compile.rules import Setting, facts_of, flagged
from cxrbench.paper import measurements as report

RECORDED = ROOT / "data/recorded"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return read_audit(RECORDED)


def test_all_listed_networks_are_recorded_at_both_sizes(table: pd.DataFrame) -> None:
    for pixels in (224, 64):
        some = table[(table["pixels"] == pixels) & (table["batch"] == 32)]
        assert set(some["architecture"]) == set(NETWORKS)
        assert (some["problem"] == "").all()
        assert some[["torch", "torch_xla", "timm"]].drop_duplicates().shape[0] == 1


def test_recorded_flags_follow_from_recorded_counts(table: pd.DataFrame) -> None:
    """A change of the rules asks for recording again."""
    for row in table.to_dict("records"):
        setting = Setting(row["pixels"], row["batch"], row["precision"])
        assert row["rules_broken"] == flagged(facts_of(row), setting), row["architecture"]


def test_counts_do_not_depend_on_the_size_and_work_grows_with_it(table: pd.DataFrame) -> None:
    large, small = (
        table[table["pixels"] == pixels].set_index("architecture").drop(index="swin_base_patch4_window7_224")
        for pixels in (224, 64)
    )
    convnext = [name for name in large.index if name.startswith(("convnext", "resnet"))]
    for column in ("instructions", "convolutions", "dots", "permutes", "layernorms", "parameters"):
        assert (large.loc[convnext, column] == small.loc[convnext, column]).all(), column
    ratio = large.loc[convnext, "gmac"] / small.loc[convnext, "gmac"]
    assert ratio.between(0.9 * (224 / 64) ** 2, 1.05 * (224 / 64) ** 2).all()


def test_the_papers_table_and_numbers_come_from_it(table: pd.DataFrame) -> None:
    read = SimpleNamespace(recorded=RECORDED)
    shown, preamble = report.audit_table(read)
    assert list(shown["Network"]) == list(report.ROWS) and len(preamble) == len(shown.columns)
    values = report.audit_values(read)
    assert values["audit/networks"] == "40"
    prose = (ROOT / "paper/sections/audit.tex").read_text()
    assert set(re.findall(r"\\val\{([^}]*)\}", prose)) <= set(values)


def test_what_the_paper_says_of_pico_and_tiny_holds(table: pd.DataFrame) -> None:
    """The prose says "either", "two of them", "equal": sentences that numbers alone would not keep true."""
    of = report.of_setting(table)
    for name in ("convnext_pico", "convnext_tiny"):
        assert of.loc[name, "depthwise_convolutions"] > 0
        assert of.loc[name, "permutes"] == 2 * of.loc[name, "layernorms"]
    tiny, swapped = of.loc["convnext_tiny"], of.loc["convnext_tiny_conv_mlp"]
    for same in ("parameters", "gmac", "activation_mib_per_image", "permutes", "tiles", "layernorms"):
        assert tiny[same] == swapped[same]
    assert tiny["step_gib"] < 16 and "R3" in of.loc["resnet50", "rules_broken"]


def test_without_records_the_paper_still_builds(tmp_path) -> None:
    read = SimpleNamespace(recorded=tmp_path)
    assert report.audit_table(read)[0].empty
    assert report.audit_values(read)["audit/networks"] == "0"
