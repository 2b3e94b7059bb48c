"""What is counted of a training step's graph, and the documented limits of Neuron that it is held against.

A flagged rule is a *prior*: the network has what the source reports trouble with. Whether it compiles is
known only from a run: ResNet-50 is flagged for its 7x7 stem and is AWS's own training sample. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

PRIOR = (
    "This is a prior, not a verdict: it says which documented limits a graph comes near. "
    "Whether a network compiles and loads on Trainium is known only from a run there."
)
CORE_GIB = 16.0  # HBM of one NeuronCore-v2: 32 GiB a chip, two cores
INSTRUCTION_CAP = 5_000_000
STEP = (
    "the second training step (forward, binary cross-entropy, backward, AdamW whose moments exist), weights "
    "made on the CPU and moved, random state reset, one input channel, 14 labels; as torch_xla hands it to a "
    "compiler, dead code included; weight averaging and augmentation are left out"
)
ADAMW_BYTES = 16  # per parameter in fp32: weight, gradient and two moments


@dataclass(frozen=True)
class Setting:
    """The recipe of a capture. Counts of different settings are not comparable."""

    pixels: int = 224
    batch: int = 32
    precision: str = "fp32"

    def words(self) -> str:
        """Return the recipe as a sentence."""
        return f"Captured at {self.pixels} px, batch {self.batch}, {self.precision}: {STEP}."


@dataclass(frozen=True)
class Facts:
    """Counts of one network's training step; with a ``problem`` it was not captured and all are zero."""

    problem: str = ""
    parameters: int = 0
    gmac: float = 0.0  # forward, per image
    # What autograd keeps for backward, each storage once; in bf16 with the casts of weights that it keeps.
    activation_mib_per_image: float = 0.0
    instructions: int = 0
    convolutions: int = 0
    grouped_convolutions: int = 0  # feature_group_count above one: forward and input gradients
    batch_grouped_convolutions: int = 0  # their weight gradients
    dots: int = 0
    transposes: int = 0
    permutes: int = 0  # transposes of feature maps in forward, written in the network itself
    forward_convolutions: int = 0
    depthwise_convolutions: int = 0  # in forward
    narrow_convolutions: int = 0  # in forward: not grouped, fewer than 128 input channels
    depthwise_mac_share: float = 0.0  # of forward
    narrow_mac_share: float = 0.0
    kernels: str = ""  # sides of forward kernels, such as "1 3 7"
    largest_kernel: int = 0
    large_kernels: int = 0  # forward convolutions with a side of 7 or more
    large_kernel_input_gradients: int = 0  # of those, with an input gradient that the step needs
    doubly_dilated: int = 0  # convolutions with dilated input and dilated kernel
    strided_on_dilated: int = 0  # strided convolutions of dilated input
    layernorms: int = 0  # modules; in HLO, LayerNorm and BatchNorm are the same instruction
    batchnorms: int = 0
    other_norms: int = 0
    gelus: int = 0
    poolings: int = 0
    linears_on_maps: int = 0  # Linear modules that are given B x H x W x C
    tiles: int = 0  # matrix instructions if each product is tiled by itself; our arithmetic
    traffic_unfused_mib_per_image: float = 0.0  # every instruction through memory
    fallbacks: str = ""  # operators that torch_xla sent to the CPU

    def least_traffic_mib_per_image(self, batch: int) -> float:
        """Return the MiB moved if activations pass memory twice, weights and moments once per step."""
        return 2 * self.activation_mib_per_image + 24 * self.parameters / batch / 2**20

    def step_gib(self, batch: int) -> float:
        """Return the GiB of weights, gradients, moments and saved activations at a batch."""
        return (ADAMW_BYTES * self.parameters / 2**20 + batch * self.activation_mib_per_image) / 1024

    def largest_batch(self, gib: float) -> int:
        """Return the largest batch whose :meth:`step_gib` fits; zero when the weights alone do not."""
        if not self.activation_mib_per_image:
            return 0
        left = gib * 1024 - ADAMW_BYTES * self.parameters / 2**20
        return max(0, int(left // self.activation_mib_per_image))


def facts_of(row: Mapping[Any, Any]) -> Facts:
    """Read the facts from a row of a table with other columns; ValueError when one is missing or invalid."""
    try:
        values = {name: type(default)(row[name]) for name, default in vars(Facts()).items()}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a complete audit: {error}") from None
    return Facts(**values)


class Rule(NamedTuple):
    """What a source reports; ``flags`` and ``found`` are about the names of :func:`_values`."""

    name: str
    says: str
    ground: Literal["documented", "reported", "arithmetic", "hypothesis"]
    source: str
    flags: tuple[str, ...]  # any of them that is not zero
    found: str  # what decided, to be formatted
    of: Literal["network", "setting"] = "network"


_SDK = "aws-neuron/aws-neuron-sdk"
_NKI = "AWS Neuron SDK docs, nki/guides/architecture/trainium_inferentia2_arch"
_CODES = "AWS Neuron SDK docs, compiler/error-codes"
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
