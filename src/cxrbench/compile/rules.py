"""Documented limits of Neuron that a graph can be held against: one table, each rule with its source.

A flagged rule is a *prior*: the network has what the source reports trouble with. Whether it compiles is
known only from a run: ResNet-50 is flagged for its 7x7 stem and is AWS's own training sample. No torch here.
"""

from __future__ import annotations

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
    """What a source reports; ``flags`` and ``found`` are about the names of :func:`_values`."""

    name: str
    says: str
    ground: Literal["documented", "reported", "arithmetic", "hypothesis"]
    source: str
    flags: tuple[str, ...]  # any of them that is not zero
    found: str  # what decided, to be formatted
    of: Literal["network", "setting"] = "network"


RULES: tuple[Rule, ...] = (
    Rule(
        "R1",
        "A depthwise convolution sums over its kernel's area only (49 of 128 rows for 7x7) and fills one "
        "output column per group",
        "arithmetic",
        f"{_NKI}: 128x128 tensor engine, tile limits",
        ("depthwise_convolutions",),
        "{depthwise_convolutions} of {forward_convolutions} forward convolutions, "
        "{depthwise_mac_share:.1%} of forward MACs",
    ),
    Rule(
        "R2",
        "An ungrouped convolution with fewer than 128 input channels under-fills the partition axis",
        "arithmetic",
        f"{_NKI}; a small CNN reached 1.2% of the bf16 peak, its precision not stated: "
        "scttfrdmn/aws-trainium-tutorial-for-research",
        ("narrow_convolutions",),
        "{narrow_convolutions} of {forward_convolutions} forward convolutions, "
        "{narrow_mac_share:.1%} of forward MACs",
    ),
    Rule(
        "R3",
        "The backward of a 7x7 convolution ended in NCC_ITEN404; the reproducer needs its input gradient too",
        "reported",
        f"{_SDK} issue 1295 (2026-03, trn1.32xlarge, input 256x1024)",
        ("large_kernels",),
        "largest {largest_kernel}; {large_kernels} with side 7 or more, of which "
        "{large_kernel_input_gradients} need an input gradient",
    ),
    Rule(
        "R4",
        "A convolution may not dilate input and kernel together (NCC_EVRF010), nor stride over dilated input "
        "(NCC_EVRF011)",
        "documented",
        f"{_CODES}/EVRF010, EVRF011",
        ("doubly_dilated", "strided_on_dilated"),
        "{doubly_dilated} doubly dilated, {strided_on_dilated} strided on dilated input",
    ),
    Rule(
        "R5",
        "LayerNorm, GELU and pooling run off the tensor engine",
        "documented",
        "AWS Neuron SDK docs, about-neuron/arch/neuron-hardware/neuron-core-v2: roles of the engines",
        ("layernorms", "gelus", "poolings"),
        "{layernorms} LayerNorm, {gelus} GELU, {poolings} pooling",
    ),
    Rule(
        "R6",
        "In compilers of 2023 and 2024 a program may not have more than 5,000,000 machine instructions; "
        "tiles are our lower estimate of the tensor engine's share",
        "reported",
        f"{_CODES}/EBVF030, EXTP004, EVRF007 (no number); {_SDK} issues 801, 819, 987, 1003 (the number)",
        ("over_cap",),
        "{instructions:,} HLO instructions; {tiles:,} matrix tiles at batch {batch}, {share_of_cap:.0%} of "
        f"{INSTRUCTION_CAP:,}",
    ),
    Rule(
        "R7",
        "Weights, gradients, moments and activations share 16 GiB per core",
        "documented",
        f"{_CODES}/EOOM001, EOOM002; UNet training above 16 GB: Neuron 2.26 release notes",
        ("over_memory",),
        f"{{step_gib:.1f}} of {CORE_GIB:.0f} GiB at batch {{batch}}; largest batch {{largest_batch}}",
    ),
    Rule(
        "R8",
        "An operator without a lowering cuts the graph, a dynamic shape is refused (NCC_EMOD025); shapes "
        "here are fixed, so only fallbacks are looked for",
        "documented",
        f"pytorch/xla v2.9.0 docs, troubleshoot; {_CODES}/EMOD025",
        ("fallbacks",),
        "{operators}",
    ),
    Rule(
        "R9",
        "Vision networks failed at any batch but 1 (TEN404, SDK 2.21); a small CNN compiled only at "
        "multiples of 25",
        "reported",
        f"huggingface/optimum-neuron pull request 754; {_SDK} issue 881",
        ("several_images",),
        "batch {batch}",
        of="setting",
    ),
    Rule(
        "R10",
        "Matrix products in fp32 run at a quarter of the bf16 rate; nothing is cast by default since 2.27",
        "documented",
        f"{_NKI}; AWS Neuron SDK release notes, compiler 2.27",
        ("full_precision",),
        "{precision}",
        of="setting",
    ),
    Rule(
        "R11",
        "Linear layers on feature maps (B x H x W x C) instead of 1x1 convolutions: what timm changes from "
        "ConvNeXt nano to tiny",
        "hypothesis",
        "timm 1.0.31, models/convnext.py (conv_mlp); not documented by AWS, to be tested on trn1",
        ("linears_on_maps",),
        "{linears_on_maps} Linear layers on B x H x W x C maps; {permutes} permutes of maps in forward; in "
        "the step {transposes} transposes, {dots} dots and {convolutions} convolutions",
    ),
)


def _values(facts: Facts, setting: Setting) -> dict[str, Any]:
    """Return the counts of a network, its setting, and what rules derive from both."""
    step_gib = facts.step_gib(setting.batch)
    return {
        **vars(facts),
        **vars(setting),
        "share_of_cap": facts.tiles / INSTRUCTION_CAP,
        "over_cap": facts.tiles >= INSTRUCTION_CAP,
        "step_gib": step_gib,
        "over_memory": step_gib > CORE_GIB,
        "largest_batch": facts.largest_batch(CORE_GIB),
        "operators": facts.fallbacks or "no operator falls back to the CPU while tracing",
        "several_images": setting.batch != 1,
        "full_precision": setting.precision == "fp32",
    }


def verdicts(facts: Facts, setting: Setting) -> list[dict[str, Any]]:
    """Return what each rule finds, in order; only fallbacks are known of a network that was not captured."""
    values = _values(facts, setting)
    return [
        {
            "rule": rule.name,
            "of": rule.of,
            "flagged": any(values[name] for name in rule.flags),
            "found": rule.found.format_map(values),
            "says": rule.says,
            "ground": rule.ground,
            "source": rule.source,
        }
        for rule in RULES
        if not facts.problem or (facts.fallbacks and rule.flags == ("fallbacks",))
    ]


def flagged(facts: Facts, setting: Setting) -> str:
    """Return the names of the flagged rules that look at the network, such as ``R1 R3``."""
    found = verdicts(facts, setting)
    return " ".join(verdict["rule"] for verdict in found if verdict["flagged"] and verdict["of"] == "network")
