"""Each rule flags what its source is about; the recorded audits hold together, and the paper reads them."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.neuron import rules
from cxrbench.neuron.audit import of_setting, read_audit
from cxrbench.neuron.networks import NETWORKS
from cxrbench.neuron.rules import Facts, Setting, facts_of, flagged, verdicts
from cxrbench.paper import measurements as report

RECORDED = ROOT / "data/recorded"
CLEAR = Facts(
    parameters=1_000_000,
    gmac=1.0,
    activation_mib_per_image=10.0,
    instructions=100,
    convolutions=3,
    forward_convolutions=1,
    kernels="3",
    largest_kernel=3,
    tiles=rules.INSTRUCTION_CAP - 1,
)
SETTING = Setting(64, 1, "bf16")
CHANGES = {
    "R1": {"depthwise_convolutions": 1},
    "R2": {"narrow_convolutions": 1},
    "R3": {"large_kernels": 1, "largest_kernel": 7, "large_kernel_input_gradients": 1},
    "R4": {"strided_on_dilated": 1},
    "R5": {"gelus": 1},
    "R6": {"tiles": rules.INSTRUCTION_CAP},
    "R7": {"activation_mib_per_image": rules.CORE_GIB * 1024},
    "R8": {"fallbacks": "aten::im2col"},
    "R11": {"linears_on_maps": 1},
    "R13": {"select_and_scatters": 1},
    "R14": {"bad_reduce_windows": 1},
    "R15": {"special_rngs": 1},
}
SETTINGS = {"R10": replace(SETTING, precision="fp32")}
NORMALISED = replace(CLEAR, layernorm_batchnorms=1, largest_layernorm=2048)  # R12 at more than one image


def test_every_rule_is_tried_here_and_has_a_source() -> None:
    names = [rule.name for rule in rules.RULES]
    assert sorted(names) == sorted([*CHANGES, *SETTINGS, "R12"]) and not set(names) & set(rules.RETIRED)
    assert all(rule.source and rule.says for rule in rules.RULES)
    stated = [rule for rule in rules.RULES if rule.ground != "hypothesis"]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", rule.date) for rule in stated)
    assert all(rule.seen_with for rule in stated if rule.ground == "reported")
    for field, annotation in (("predicts", rules.Predicts), ("ground", rules.Ground)):
        assert {getattr(rule, field) for rule in rules.RULES} == set(get_args(annotation))
    assert all(code.source and code.seen_with for code in rules.KNOWN)
    assert {rule.name for rule in rules.RULES if rule.of == "setting"} == set(SETTINGS)


def broken(facts: Facts, setting: Setting) -> list[str]:
    """The rules that are flagged; each says what it found."""
    assert all(verdict["found"] for verdict in verdicts(facts, setting))
    return [verdict["rule"] for verdict in verdicts(facts, setting) if verdict["flagged"]]


def test_each_rule_flags_only_its_own_and_one_about_settings_is_no_mark_of_a_network() -> None:
    assert broken(CLEAR, SETTING) == []
    for name, change in CHANGES.items():
        changed = replace(CLEAR, **change)
        assert broken(changed, SETTING) == [name]
        (rule,) = (rule for rule in rules.RULES if rule.name == name)
        assert flagged(changed, SETTING) == ((name, "") if rule.predicts == "failure" else ("", name))
    for name, setting in SETTINGS.items():
        assert broken(CLEAR, setting) == [name] and flagged(CLEAR, setting) == ("", "")
    assert flagged(NORMALISED, SETTING) == ("", "")
    assert flagged(NORMALISED, replace(SETTING, batch=2)) == ("R12", "")


def test_memory_of_the_step_is_no_matter_of_forward() -> None:
    large = replace(CLEAR, **CHANGES["R7"])
    assert broken(large, SETTING) == ["R7"] and broken(replace(large, part="forward"), SETTING) == []


def test_memory_counts_weights_gradients_moments_and_activations() -> None:
    facts = replace(CLEAR, parameters=64 * 2**20, activation_mib_per_image=128.0)
    assert facts.step_gib(8) == 1 + 1
    assert facts.largest_batch(16) == 15 * 8
    assert facts.largest_batch(0.5) == 0
    findings = " ".join(verdict["found"] for verdict in verdicts(facts, SETTING))
    assert f"1.1 of {rules.CORE_GIB:.0f} GiB at batch 1; largest batch 120" in findings
    assert f"% of {rules.INSTRUCTION_CAP:,}" in findings


def test_of_a_network_that_was_not_captured_only_fallbacks_are_known() -> None:
    assert verdicts(Facts(problem="cannot be built"), SETTING) == []
    fell = Facts(problem="a step is not one graph", fallbacks="aten::im2col")
    assert [verdict["rule"] for verdict in verdicts(fell, SETTING)] == ["R8"]
    assert flagged(fell, SETTING) == ("R8", "")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return read_audit(RECORDED)


def test_all_listed_networks_are_recorded_at_both_sizes(table: pd.DataFrame) -> None:
    for pixels in (224, 64):
        graphs = of_setting(table, Setting(pixels, 32)).set_index("architecture")
        assert set(NETWORKS) <= set(graphs.index)
        assert (graphs.loc[list(NETWORKS), "problem"] == "").all()
        assert graphs[["torch", "torch_xla", "timm"]].drop_duplicates().shape[0] == 1


def test_recorded_flags_follow_from_recorded_counts(table: pd.DataFrame) -> None:
    """A change of the rules asks for recording again."""
    for row in table.to_dict("records"):
        setting = Setting(row["pixels"], row["batch"], row["precision"])
        recorded = row["predicts_failure"], row["other_rules"]
        assert recorded == flagged(facts_of(row), setting), row["architecture"]


def test_counts_do_not_depend_on_the_size_and_work_grows_with_it(table: pd.DataFrame) -> None:
    large, small = (of_setting(table, Setting(pixels, 32)).set_index("architecture") for pixels in (224, 64))
    convnext = [name for name in NETWORKS if name.startswith(("convnext", "resnet"))]
    for column in ("instructions", "convolutions", "dots", "permutes", "layernorms", "parameters"):
        assert (large.loc[convnext, column] == small.loc[convnext, column]).all(), column
    ratio = large.loc[convnext, "gmac"] / small.loc[convnext, "gmac"]
    assert ratio.between(0.9 * (224 / 64) ** 2, 1.05 * (224 / 64) ** 2).all()


def test_the_papers_table_and_numbers_come_from_it(table: pd.DataFrame) -> None:
    read = SimpleNamespace(recorded=RECORDED)
    assert list(report.audit_table(read).rows["Network"]) == list(report.AUDIT_NETWORKS)
    assert len(report.audited(read)) == len(of_setting(table, report.AUDIT_SETTING))


def test_what_the_paper_says_of_pico_and_tiny_holds(table: pd.DataFrame) -> None:
    """The prose says "either", "two of them", "equal": sentences that numbers alone would not keep true."""
    of = report.captured_steps(table)
    for name in ("convnext_pico", "convnext_tiny"):
        assert of.loc[name, "depthwise_convolutions"] > 0
        assert of.loc[name, "permutes"] == 2 * of.loc[name, "layernorms"]
    tiny, swapped = of.loc["convnext_tiny"], of.loc["convnext_tiny_conv_mlp"]
    for same in ("parameters", "gmac", "activation_mib_per_image", "permutes", "tiles", "layernorms"):
        assert tiny[same] == swapped[same]
    assert tiny["step_gib"] < 16 and of.loc["resnet50", "predicts_failure"] == ""
    for name in ("convnext_pico", "convnext_tiny"):
        assert {"R3", "R12"} <= set(of.loc[name, "predicts_failure"].split())
