"""Counts of a training step's graph, and the Neuron rules they are checked against.

A flagged rule is a *prior*: the network has what the source reports trouble with. Only
Neuron's compiler shows whether it compiles; :mod:`cxrbench.compile.reports` holds each rule against what is
reported. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

PRIOR = (
    "This is a prior, not a verdict: it says which documented limits a graph comes near. "
    "Neuron's compiler, which needs no device, shows whether a network compiles; only a run on Trainium "
    "shows whether it loads and trains."
)
CORE_GIB = 16.0  # HBM of one NeuronCore-v2: 32 GiB a chip, two cores
INSTRUCTION_CAP = 5_000_000
STEP = (
    "the second training step as platform neuron takes it: uint8 images streamed from the host, "
    "augmentation, normalisation, forward, binary cross-entropy, backward, the sum of losses, AdamW and "
    "weight averaging whose states exist; one input channel, 14 labels, one process, functionalization "
    "off as on the device; as torch_xla hands it to a compiler, dead code included"
)
ADAMW_BYTES = 16  # per parameter in fp32: weight, gradient and two moments
AUDITED_PARTS = ("forward", "step")  # ``backward``, a step without its update, has the step's facts


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
    """Counts of the graph of one ``part`` of a network's training step; with a ``problem`` all are zero.

    ``parameters``, ``gmac``, ``activation_mib_per_image`` and modules are those of the step in every part.
    """

    part: str = "step"
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
    layernorm_batchnorms: int = 0  # batch-norm-training that normalises each row: LayerNorm, GroupNorm
    largest_layernorm: int = 0  # their largest feature dimension: rows of a batch
    batchnorms: int = 0
    other_norms: int = 0
    gelus: int = 0
    poolings: int = 0
    select_and_scatters: int = 0  # backward of max-pooling
    bad_reduce_windows: int = 0  # dilated, or with other than two operands
    special_rngs: int = 0  # random bits by another algorithm than the default
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


Predicts = Literal["failure", "wrong results", "speed"]
Ground = Literal["documented", "reported", "arithmetic", "hypothesis"]


class Rule(NamedTuple):
    """What a source reports; ``flags`` and ``found`` are about the names of :func:`_values`."""

    name: str
    says: str
    predicts: Predicts  # failure: of the compiler, or for lack of memory
    ground: Ground
    source: str
    seen_with: str  # version of SDK or compiler; empty where the source names none
    date: str  # of the report, or when the page was last changed
    flags: tuple[str, ...]  # the rule is flagged if any of these is not zero
    found: str  # a format string that shows the deciding values
    of: Literal["network", "setting"] = "network"


DESCRIBED = ("says", "predicts", "ground", "source", "seen_with", "date")  # what a rule is for a reader


class Known(NamedTuple):
    """An error code of the compiler of which no condition on a graph is public."""

    code: str
    what: str
    source: str
    seen_with: str


_SDK = "aws-neuron/aws-neuron-sdk"
_NKI = "AWS Neuron SDK docs, nki/guides/architecture/trainium_inferentia2_arch"
_CODES = "AWS Neuron SDK docs, compiler/error-codes"
_NOTES = "AWS Neuron SDK release notes"
RULES: tuple[Rule, ...] = (
    Rule(
        "R1",
        "A depthwise convolution sums over its kernel's area only (49 of 128 rows for 7x7) and fills one "
        "output column per group",
        "speed",
        "arithmetic",
        f"{_NKI}: 128x128 tensor engine, tile limits",
        "",
        "2026-07-17",
        ("depthwise_convolutions",),
        "{depthwise_convolutions} of {forward_convolutions} forward convolutions, "
        "{depthwise_mac_share:.1%} of forward MACs",
    ),
    Rule(
        "R2",
        "An ungrouped convolution with fewer than 128 input channels under-fills the partition axis",
        "speed",
        "arithmetic",
        f"{_NKI}; a small CNN reached 1.2% of the bf16 peak, its precision not stated: "
        "scttfrdmn/aws-trainium-tutorial-for-research",
        "SDK 2.30",
        "2026-07-17",
        ("narrow_convolutions",),
        "{narrow_convolutions} of {forward_convolutions} forward convolutions, "
        "{narrow_mac_share:.1%} of forward MACs",
    ),
    Rule(
        "R3",
        "The backward of a 7x7 convolution (3 to 64 channels, stride 2, ungrouped) with the gradient of its "
        "images ended in NCC_ITEN404; that any input gradient of a kernel of 7 or more does, depthwise ones "
        "included, is extrapolated",
        "failure",
        "reported",
        f"{_SDK} issue 1295 (trn1.32xlarge, input 256x1024, batch 1; closed)",
        "neuronx-cc 2.23.6484.0",
        "2026-03-15",
        ("large_kernel_input_gradients",),
        "largest kernel {largest_kernel}; {large_kernels} with side 7 or more, of which "
        "{large_kernel_input_gradients} need an input gradient",
    ),
    Rule(
        "R4",
        "A convolution may not dilate input and kernel together (NCC_EVRF010), nor stride over dilated input "
        "(NCC_EVRF011)",
        "failure",
        "documented",
        f"{_CODES}/EVRF010, EVRF011",
        "",
        "2025-12-02",
        ("doubly_dilated", "strided_on_dilated"),
        "{doubly_dilated} doubly dilated, {strided_on_dilated} strided on dilated input",
    ),
    Rule(
        "R5",
        "LayerNorm, GELU and pooling run on slower engines than matrix products; most networks have some",
        "speed",
        "documented",
        "AWS Neuron SDK docs, about-neuron/arch/neuron-hardware/neuron-core-v2: roles of the engines",
        "",
        "2025-10-17",
        ("layernorms", "gelus", "poolings"),
        "{layernorms} LayerNorm, {gelus} GELU, {poolings} pooling",
    ),
    Rule(
        "R6",
        "In compilers of 2023 and 2024 a program may not have more than 5,000,000 machine instructions; the "
        "documentation of today has no number. Tiles are our lower estimate of the tensor engine's share",
        "failure",
        "reported",
        f"{_CODES}/EBVF030, EXTP004, EVRF007 (no number); {_SDK} issues 801, 819, 987, 1003 (the number)",
        "compilers of 2023-12 to 2024-10",
        "2024-10-07",
        ("over_cap",),
        "{instructions:,} HLO instructions; {tiles:,} matrix tiles at batch {batch}, {share_of_cap:.0%} of "
        f"{INSTRUCTION_CAP:,}",
    ),
    Rule(
        "R7",
        "Weights, gradients, moments and activations share 16 GiB per core",
        "failure",
        "documented",
        f"{_CODES}/EOOM001, EOOM002; UNet training above 16 GB: Neuron 2.26 release notes",
        "SDK 2.26",
        "2025-12-02",
        ("over_memory",),
        f"{{step_gib:.1f}} of {CORE_GIB:.0f} GiB at batch {{batch}}; largest batch {{largest_batch}}",
    ),
    Rule(
        "R8",
        "An operator without a lowering runs on the host and cuts the graph; shapes here are fixed, so that "
        "dynamic ones (NCC_EMOD025) are not looked for",
        "speed",
        "documented",
        f"pytorch/xla v2.9.0 docs, troubleshoot; {_CODES}/EMOD025",
        "",
        "2026-07-15",
        ("fallbacks",),
        "{operators}",
    ),
    Rule(
        "R10",
        "Matrix products in fp32 run at a quarter of the bf16 rate; nothing is cast by default since 2.27",
        "speed",
        "documented",
        f"{_NKI}; {_NOTES}, compiler 2.27",
        "SDK 2.27",
        "2025-12-19",
        ("full_precision",),
        "{precision}",
        of="setting",
    ),
    Rule(
        "R11",
        "Linear layers on feature maps (B x H x W x C) instead of 1x1 convolutions: what timm changes from "
        "ConvNeXt nano to tiny",
        "failure",
        "hypothesis",
        "timm 1.0.31, models/convnext.py (conv_mlp); not documented by AWS, to be tested on trn1",
        "",
        "",
        ("linears_on_maps",),
        "{linears_on_maps} Linear layers on B x H x W x C maps; {permutes} permutes of maps in forward; in "
        "this graph {transposes} transposes, {dots} dots and {convolutions} convolutions",
    ),
    Rule(
        "R12",
        "torch_xla writes LayerNorm as batch-norm-training with a feature for every row of the batch; for "
        "swin-tiny at batch 2, not at 1, this ended in TEN404 'Unsupported batch-norm-training op'. That it "
        "depends on the number of features, or fails today, is not known",
        "failure",
        "reported",
        f"{_SDK} issue 1080 (inference; closed 2025-03 with a compiler flag, huggingface/optimum-neuron pull "
        f"789); the same words of language-perceiver, resolved in SDK 2.19: {_NOTES}",
        "SDK 2.21",
        "2025-01-06",
        ("layernorms_of_batch",),
        "{layernorm_batchnorms} batch-norm-training from LayerNorm or GroupNorm at batch {batch}, of at most "
        "{largest_layernorm:,} features",
    ),
    Rule(
        "R13",
        "select-and-scatter, the backward of max-pooling, gave incorrect results for missing boundary "
        "conditions before SDK 2.30",
        "wrong results",
        "documented",
        f"{_NOTES}, compiler 2.30",
        "before SDK 2.30",
        "2026-05-21",
        ("select_and_scatters",),
        "{select_and_scatters} select-and-scatter",
    ),
    Rule(
        "R14",
        "reduce-window may not dilate its input (NCC_EVRF017) or its window (NCC_EVRF018), and takes one "
        "input with one initial value (NCC_EVRF019)",
        "failure",
        "documented",
        f"{_CODES}/EVRF017, EVRF018, EVRF019",
        "",
        "2025-12-02",
        ("bad_reduce_windows",),
        "{bad_reduce_windows} reduce-window of such a form",
    ),
    Rule(
        "R15",
        "Random bits are drawn by the default algorithm only (NCC_EVRF006)",
        "failure",
        "documented",
        f"{_CODES}/EVRF006",
        "",
        "2025-12-02",
        ("special_rngs",),
        "{special_rngs} rng-bit-generator with an algorithm of its own",
    ),
)
RETIRED = {  # names are not used again
    "R9": "batches other than 1 (issue 1080) are now part of R12, which names the instruction; multiples of "
    "25 for a small CNN (issue 881, neuronx-cc 2.13) are thought to be fixed by AWS (2025-05-28)",
    "R16": "a gather of the input in the graph: platform neuron streams its images, so that no audited graph "
    "can have one",
}
KNOWN: tuple[Known, ...] = (
    Known(
        "NCC_IBIR229",
        "no room in on-chip memory (the state buffer); reported of large feature maps, and of a whole U-Net "
        "cast to bf16. Cases were fixed in SDK 2.29 and 2.30; no size is public at which it starts",
        f"{_NOTES}, compiler 2.29 and 2.30; users' notes in public repositories",
        "before SDK 2.30, and neuronx-cc 2.27",
    ),
    Known(
        "NCC_ILIN902",
        "a crash in the backward of softmax for some input shapes, which are not named; fixed in SDK 2.30",
        f"{_NOTES}, compiler 2.30",
        "before SDK 2.30",
    ),
)


def _values(facts: Facts, setting: Setting) -> dict[str, Any]:
    """Return the counts of a graph, its setting, and what rules derive from both."""
    step_gib = facts.step_gib(setting.batch)
    return {
        **vars(facts),
        **vars(setting),
        "share_of_cap": facts.tiles / INSTRUCTION_CAP,
        "over_cap": facts.tiles >= INSTRUCTION_CAP,
        "step_gib": step_gib,
        "over_memory": facts.part != "forward" and step_gib > CORE_GIB,
        "largest_batch": facts.largest_batch(CORE_GIB),
        "operators": facts.fallbacks or "no operator falls back to the CPU while tracing",
        "full_precision": setting.precision == "fp32",
        "layernorms_of_batch": facts.layernorm_batchnorms if setting.batch > 1 else 0,
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
            **{name: getattr(rule, name) for name in DESCRIBED},
        }
        for rule in RULES
        if not facts.problem or (facts.fallbacks and rule.flags == ("fallbacks",))
    ]


def flagged(facts: Facts, setting: Setting) -> tuple[str, str]:
    """Return the flagged rules that predict failure, such as ``R3 R12``, and the others about networks."""
    found = [rule for rule in verdicts(facts, setting) if rule["flagged"] and rule["of"] == "network"]
    failure = [rule["rule"] for rule in found if rule["predicts"] == "failure"]
    return " ".join(failure), " ".join(rule["rule"] for rule in found if rule["rule"] not in failure)
