"""Each rule flags what its source is about, clears what it is not about, and says what it found."""

from __future__ import annotations

from dataclasses import replace

from cxrbench.compile.rules import CORE_GIB, INSTRUCTION_CAP, RULES, Facts, Setting, flagged, verdicts

CLEAR = Facts(
    parameters=1_000_000,
    gmac=1.0,
    activation_mib_per_image=10.0,
    instructions=100,
    convolutions=3,
    forward_convolutions=1,
    kernels="3",
    largest_kernel=3,
    tiles=INSTRUCTION_CAP - 1,
)
SETTING = Setting(64, 1, "bf16")
CHANGES = {
    "R1": {"depthwise_convolutions": 1},
    "R2": {"narrow_convolutions": 1},
    "R3": {"large_kernels": 1, "largest_kernel": 7},
    "R4": {"strided_on_dilated": 1},
    "R5": {"gelus": 1},
    "R6": {"tiles": INSTRUCTION_CAP},
    "R7": {"activation_mib_per_image": CORE_GIB * 1024},
    "R8": {"fallbacks": "aten::im2col"},
    "R11": {"linears_on_maps": 1},
}
SETTINGS = {"R9": replace(SETTING, batch=2), "R10": replace(SETTING, precision="fp32")}


def test_every_rule_is_tried_here_and_has_a_source() -> None:
    assert {rule.name for rule in RULES} == set(CHANGES) | set(SETTINGS)
    assert all(rule.source and rule.says and rule.ground for rule in RULES)
    assert {rule.name for rule in RULES if rule.of == "setting"} == set(SETTINGS)


def broken(facts: Facts, setting: Setting) -> list[str]:
    """The rules that are flagged; each says what it found."""
    assert all(verdict["found"] for verdict in verdicts(facts, setting))
    return [verdict["rule"] for verdict in verdicts(facts, setting) if verdict["flagged"]]


def test_each_rule_flags_only_its_own_and_one_about_settings_is_no_mark_of_a_network() -> None:
    assert broken(CLEAR, SETTING) == []
    for name, change in CHANGES.items():
        changed = replace(CLEAR, **change)
        assert broken(changed, SETTING) == [name] and flagged(changed, SETTING) == name
    for name, setting in SETTINGS.items():
        assert broken(CLEAR, setting) == [name] and flagged(CLEAR, setting) == ""


def test_memory_counts_weights_gradients_moments_and_activations() -> None:
    facts = replace(CLEAR, parameters=64 * 2**20, activation_mib_per_image=128.0)
    assert facts.step_gib(8) == 1 + 1
    assert facts.largest_batch(16) == 15 * 8
    assert facts.largest_batch(0.5) == 0
    assert "1.1 of 16 GiB at batch 1; largest batch 120" in [v["found"] for v in verdicts(facts, SETTING)]


def test_of_a_network_that_was_not_captured_only_fallbacks_are_known() -> None:
    assert verdicts(Facts(problem="cannot be built"), SETTING) == []
    fell = Facts(problem="a step is not one graph", fallbacks="aten::im2col")
    assert [verdict["rule"] for verdict in verdicts(fell, SETTING)] == ["R8"]
    assert flagged(fell, SETTING) == "R8"
