"""Documented limits of Neuron that a graph can be held against: one table, each rule with its source.

A flagged rule is a *prior*: the network has what the source reports trouble with. Whether it compiles is
known only from a run: ResNet-50 is flagged for its 7x7 stem and is AWS's own training sample. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from cxrbench.compile.facts import Facts, Setting

PRIOR = (
    "This is a prior, not a verdict: it says which documented limits a graph comes near. "
    "Whether a network compiles and loads on Trainium is known only from a run there."
)
CORE_GIB = 16.0  # HBM of one NeuronCore-v2: 32 GiB a chip, two cores
INSTRUCTION_CAP = 5_000_000

_SDK = "aws-neuron/aws-neuron-sdk"
_NKI = "AWS Neuron SDK docs, nki/guides/architecture/trainium_inferentia2_arch"
_CODES = "AWS Neuron SDK docs, compiler/error-codes"


class Rule(NamedTuple):
    """What a source reports, when a network (or any, by its setting) is flagged, and the deciding counts."""

    name: str
    says: str
    ground: Literal["documented", "reported", "arithmetic", "hypothesis"]
    source: str
    flags: Callable[[Facts, Setting], bool]
    found: Callable[[Facts, Setting], str]
    of: Literal["network", "setting"] = "network"


FALLBACKS = Rule(
    "R8",
    "An operator without a lowering cuts the graph, a dynamic shape is refused (NCC_EMOD025); shapes "
    "here are fixed, so only fallbacks are looked for",
    "documented",
    f"pytorch/xla v2.9.0 docs, troubleshoot; {_CODES}/EMOD025",
    lambda facts, _: facts.fallbacks != "",
    lambda facts, _: facts.fallbacks or "no operator falls back to the CPU while tracing",
)
RULES: tuple[Rule, ...] = (
    Rule(
        "R1",
        "A depthwise convolution sums over its kernel's area only (49 of 128 rows for 7x7) and fills one "
        "output column per group",
        "arithmetic",
        f"{_NKI}: 128x128 tensor engine, tile limits",
        lambda facts, _: facts.depthwise_convolutions > 0,
        lambda facts, _: _part(facts, facts.depthwise_convolutions, facts.depthwise_mac_share),
    ),
    Rule(
        "R2",
        "An ungrouped convolution with fewer than 128 input channels under-fills the partition axis",
        "arithmetic",
        f"{_NKI}; a small CNN reached 1.2% of the bf16 peak, its precision not stated: "
        "scttfrdmn/aws-trainium-tutorial-for-research",
        lambda facts, _: facts.narrow_convolutions > 0,
        lambda facts, _: _part(facts, facts.narrow_convolutions, facts.narrow_mac_share),
    ),
    Rule(
        "R3",
        "The backward of a 7x7 convolution ended in NCC_ITEN404; the reproducer needs its input gradient too",
        "reported",
        f"{_SDK} issue 1295 (2026-03, trn1.32xlarge, input 256x1024)",
        lambda facts, _: facts.large_kernels > 0,
        lambda facts, _: (
            f"largest {facts.largest_kernel}; {facts.large_kernels} with side 7 or more, of which "
            f"{facts.large_kernel_input_gradients} need an input gradient"
        ),
    ),
    Rule(
        "R4",
        "A convolution may not dilate input and kernel together (NCC_EVRF010), nor stride over dilated input "
        "(NCC_EVRF011)",
        "documented",
        f"{_CODES}/EVRF010, EVRF011",
        lambda facts, _: facts.doubly_dilated + facts.strided_on_dilated > 0,
        lambda facts, _: (
            f"{facts.doubly_dilated} doubly dilated, {facts.strided_on_dilated} strided on dilated input"
        ),
    ),
    Rule(
        "R5",
        "LayerNorm, GELU and pooling run off the tensor engine",
        "documented",
        "AWS Neuron SDK docs, about-neuron/arch/neuron-hardware/neuron-core-v2: roles of the engines",
        lambda facts, _: facts.layernorms + facts.gelus + facts.poolings > 0,
        lambda facts, _: f"{facts.layernorms} LayerNorm, {facts.gelus} GELU, {facts.poolings} pooling",
    ),
    Rule(
        "R6",
        "In compilers of 2023 and 2024 a program may not have more than 5,000,000 machine instructions; "
        "tiles are our lower estimate of the tensor engine's share",
        "reported",
        f"{_CODES}/EBVF030, EXTP004, EVRF007 (no number); {_SDK} issues 801, 819, 987, 1003 (the number)",
        lambda facts, _: facts.tiles >= INSTRUCTION_CAP,
        lambda facts, setting: (
            f"{facts.instructions:,} HLO instructions; {facts.tiles:,} matrix tiles at batch "
            f"{setting.batch}, {facts.tiles / INSTRUCTION_CAP:.0%} of {INSTRUCTION_CAP:,}"
        ),
    ),
    Rule(
        "R7",
        "Weights, gradients, moments and activations share 16 GiB per core",
        "documented",
        f"{_CODES}/EOOM001, EOOM002; UNet training above 16 GB: Neuron 2.26 release notes",
        lambda facts, setting: facts.step_gib(setting.batch) > CORE_GIB,
        lambda facts, setting: (
            f"{facts.step_gib(setting.batch):.1f} of {CORE_GIB:.0f} GiB at batch {setting.batch}; "
            f"largest batch {facts.largest_batch(CORE_GIB)}"
        ),
    ),
    FALLBACKS,
    Rule(
        "R9",
        "Vision networks failed at any batch but 1 (TEN404, SDK 2.21); a small CNN compiled only at "
        "multiples of 25",
        "reported",
        f"huggingface/optimum-neuron pull request 754; {_SDK} issue 881",
        lambda _, setting: setting.batch != 1,
        lambda _, setting: f"batch {setting.batch}",
        of="setting",
    ),
    Rule(
        "R10",
        "Matrix products in fp32 run at a quarter of the bf16 rate; nothing is cast by default since 2.27",
        "documented",
        f"{_NKI}; AWS Neuron SDK release notes, compiler 2.27",
        lambda _, setting: setting.precision == "fp32",
        lambda _, setting: setting.precision,
        of="setting",
    ),
    Rule(
        "R11",
        "Linear layers on feature maps (B x H x W x C) instead of 1x1 convolutions: what timm changes from "
        "ConvNeXt nano to tiny",
        "hypothesis",
        "timm 1.0.31, models/convnext.py (conv_mlp); not documented by AWS, to be tested on trn1",
        lambda facts, _: facts.linears_on_maps > 0,
        lambda facts, _: (
            f"{facts.linears_on_maps} Linear layers on B x H x W x C maps; {facts.permutes} permutes of maps "
            f"in forward; in the step {facts.transposes} transposes, {facts.dots} dots and "
            f"{facts.convolutions} convolutions"
        ),
    ),
)


def _part(facts: Facts, convolutions: int, mac_share: float) -> str:
    share = f"{mac_share:.1%} of forward MACs"
    return f"{convolutions} of {facts.forward_convolutions} forward convolutions, {share}"


def verdicts(facts: Facts, setting: Setting) -> list[dict[str, Any]]:
    """Return what each rule finds, in order; only fallbacks are known of a network that was not captured."""
    known = RULES if not facts.problem else (FALLBACKS,) if facts.fallbacks else ()
    return [
        {
            "rule": rule.name,
            "of": rule.of,
            "flagged": rule.flags(facts, setting),
            "found": rule.found(facts, setting),
            "says": rule.says,
            "ground": rule.ground,
            "source": rule.source,
        }
        for rule in known
    ]


def flagged(facts: Facts, setting: Setting) -> str:
    """Return the names of the flagged rules that look at the network, such as ``R1 R3``."""
    found = verdicts(facts, setting)
    return " ".join(verdict["rule"] for verdict in found if verdict["flagged"] and verdict["of"] == "network")
