"""Documented limits of Neuron that a graph can be held against: one table, each rule with its source.

A flagged rule is a *prior*: the network has what the source reports trouble with. Whether it compiles is
known only from a run: ResNet-50 is flagged for its 7x7 stem and is AWS's own training sample. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cxrbench.audit.facts import Facts, Setting

PRIOR = (
    "This is a prior, not a verdict: it says which documented limits a graph comes near. "
    "Whether a network compiles and loads on Trainium is known only from a run there."
)
CORE_GIB = 16.0  # HBM of one NeuronCore-v2: 32 GiB a chip, two cores
INSTRUCTION_CAP = 5_000_000

_SDK = "aws-neuron/aws-neuron-sdk"
_NKI = "AWS Neuron SDK docs, nki/guides/architecture/trainium_inferentia2_arch"
_CODES = "AWS Neuron SDK docs, compiler/error-codes"

Ground = Literal["documented", "reported", "arithmetic", "hypothesis"]
Found = tuple[bool, str]


@dataclass(frozen=True)
class Rule:
    """One rule. ``of``: whether it looks at the network or only at the setting (alike for all networks)."""

    name: str
    says: str
    ground: Ground
    source: str
    find: Callable[[Facts, Setting], Found]
    of: Literal["network", "setting"] = "network"


@dataclass(frozen=True)
class Verdict:
    """What a rule finds in a network."""

    rule: Rule
    flagged: bool
    found: str


def _depthwise(facts: Facts, setting: Setting) -> Found:
    share = f"{facts.depthwise_mac_share:.1%} of forward MACs"
    text = f"{facts.depthwise_convolutions} of {facts.forward_convolutions} forward convolutions, {share}"
    return facts.depthwise_convolutions > 0, text


def _narrow(facts: Facts, setting: Setting) -> Found:
    share = f"{facts.narrow_mac_share:.1%} of forward MACs"
    text = f"{facts.narrow_convolutions} of {facts.forward_convolutions} forward convolutions, {share}"
    return facts.narrow_convolutions > 0, text


def _large_kernel(facts: Facts, setting: Setting) -> Found:
    text = (
        f"largest {facts.largest_kernel}; {facts.large_kernels} with side 7 or more, of which "
        f"{facts.large_kernel_input_gradients} need an input gradient"
    )
    return facts.large_kernels > 0, text


def _dilation(facts: Facts, setting: Setting) -> Found:
    text = f"{facts.doubly_dilated} doubly dilated, {facts.strided_on_dilated} strided on dilated input"
    return facts.doubly_dilated + facts.strided_on_dilated > 0, text


def _off_tensor_engine(facts: Facts, setting: Setting) -> Found:
    found = {"LayerNorm": facts.layernorms, "GELU": facts.gelus, "pooling": facts.poolings}
    text = ", ".join(f"{count} {name}" for name, count in found.items())
    return sum(found.values()) > 0, text


def _instructions(facts: Facts, setting: Setting) -> Found:
    share = facts.tiles / INSTRUCTION_CAP
    text = (
        f"{facts.instructions:,} HLO instructions; {facts.tiles:,} matrix tiles at batch {setting.batch}, "
        f"{share:.0%} of {INSTRUCTION_CAP:,}"
    )
    return share >= 1, text


def _memory(facts: Facts, setting: Setting) -> Found:
    need = facts.step_gib(setting.batch)
    text = (
        f"{need:.1f} of {CORE_GIB:.0f} GiB at batch {setting.batch}; "
        f"largest batch {facts.largest_batch(CORE_GIB)}"
    )
    return need > CORE_GIB, text


def _fallbacks(facts: Facts, setting: Setting) -> Found:
    return bool(facts.fallbacks), facts.fallbacks or "no operator falls back to the CPU while tracing"


def _batch(facts: Facts, setting: Setting) -> Found:
    return setting.batch != 1, f"batch {setting.batch}"


def _precision(facts: Facts, setting: Setting) -> Found:
    return setting.precision == "fp32", setting.precision


def _maps(facts: Facts, setting: Setting) -> Found:
    text = (
        f"{facts.linears_on_maps} Linear layers on B x H x W x C maps; {facts.permutes} permutes of maps in "
        f"forward; in the step {facts.transposes} transposes, {facts.dots} dots and {facts.convolutions} "
        "convolutions"
    )
    return facts.linears_on_maps > 0, text


RULES: tuple[Rule, ...] = (
    Rule(
        "R1",
        "A depthwise convolution sums over its kernel's area only (49 of 128 rows for 7x7) and fills one "
        "output column per group",
        "arithmetic",
        f"{_NKI}: 128x128 tensor engine, tile limits",
        _depthwise,
    ),
    Rule(
        "R2",
        "An ungrouped convolution with fewer than 128 input channels under-fills the partition axis",
        "arithmetic",
        f"{_NKI}; a small CNN reached 1.2% of the bf16 peak, its precision not stated: "
        "scttfrdmn/aws-trainium-tutorial-for-research",
        _narrow,
    ),
    Rule(
        "R3",
        "The backward of a 7x7 convolution ended in NCC_ITEN404; the reproducer needs its input gradient too",
        "reported",
        f"{_SDK} issue 1295 (2026-03, trn1.32xlarge, input 256x1024)",
        _large_kernel,
    ),
    Rule(
        "R4",
        "A convolution may not dilate input and kernel together (NCC_EVRF010), nor stride over dilated input "
        "(NCC_EVRF011)",
        "documented",
        f"{_CODES}/EVRF010, EVRF011",
        _dilation,
    ),
    Rule(
        "R5",
        "LayerNorm, GELU and pooling run off the tensor engine",
        "documented",
        "AWS Neuron SDK docs, about-neuron/arch/neuron-hardware/neuron-core-v2: roles of the engines",
        _off_tensor_engine,
    ),
    Rule(
        "R6",
        "In compilers of 2023 and 2024 a program may not have more than 5,000,000 machine instructions; "
        "tiles are our lower estimate of the tensor engine's share",
        "reported",
        f"{_CODES}/EBVF030, EXTP004, EVRF007 (no number); {_SDK} issues 801, 819, 987, 1003 (the number)",
        _instructions,
    ),
    Rule(
        "R7",
        "Weights, gradients, moments and activations share 16 GiB per core",
        "documented",
        f"{_CODES}/EOOM001, EOOM002; UNet training above 16 GB: Neuron 2.26 release notes",
        _memory,
    ),
    Rule(
        "R8",
        "An operator without a lowering cuts the graph, a dynamic shape is refused (NCC_EMOD025); shapes "
        "here are fixed, so only fallbacks are looked for",
        "documented",
        f"pytorch/xla v2.9.0 docs, troubleshoot; {_CODES}/EMOD025",
        _fallbacks,
    ),
    Rule(
        "R9",
        "Vision networks failed at any batch but 1 (TEN404, SDK 2.21); a small CNN compiled only at "
        "multiples of 25",
        "reported",
        f"huggingface/optimum-neuron pull request 754; {_SDK} issue 881",
        _batch,
        of="setting",
    ),
    Rule(
        "R10",
        "Matrix products in fp32 run at a quarter of the bf16 rate; nothing is cast by default since 2.27",
        "documented",
        f"{_NKI}; AWS Neuron SDK release notes, compiler 2.27",
        _precision,
        of="setting",
    ),
    Rule(
        "R11",
        "Linear layers on feature maps (B x H x W x C) instead of 1x1 convolutions: what timm changes from "
        "ConvNeXt nano to tiny",
        "hypothesis",
        "timm 1.0.31, models/convnext.py (conv_mlp); not documented by AWS, to be tested on trn1",
        _maps,
    ),
)


def verdicts(facts: Facts, setting: Setting) -> list[Verdict]:
    """What each rule finds, in the order of the table; of a network that was not captured, only fallbacks."""
    known = [rule for rule in RULES if not facts.problem or (rule.find is _fallbacks and facts.fallbacks)]
    return [Verdict(rule, *rule.find(facts, setting)) for rule in known]


def flagged(facts: Facts, setting: Setting) -> str:
    """Names of the flagged rules that look at the network, such as ``R1 R3``."""
    return " ".join(
        one.rule.name for one in verdicts(facts, setting) if one.flagged and one.rule.of == "network"
    )
