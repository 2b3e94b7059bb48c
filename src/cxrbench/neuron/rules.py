"""Counts of a training step's graph, and the Neuron rules (rules.toml) they are checked against.

A flagged rule is a *prior*: the network has what the source reports trouble with. Only
Neuron's compiler shows whether it compiles; :mod:`cxrbench.neuron.reports` counts how flags agree with
reports. No torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

CORE_GIB = 16.0  # HBM of one NeuronCore-v2: 32 GiB a chip, two cores
INSTRUCTION_CAP = 5_000_000
_ADAMW_BYTES = 16  # per parameter in fp32: weight, gradient and two moments
AUDITED_PARTS = ("forward", "step")  # ``backward``, a step without its update, has the step's facts


@dataclass(frozen=True)
class Setting:
    """The recipe of a capture. Counts of different settings are not comparable."""

    pixels: int = 224
    batch: int = 32
    precision: str = "fp32"


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
        """The MiB moved if activations pass memory twice, weights and moments once per step."""
        return 2 * self.activation_mib_per_image + 24 * self.parameters / batch / 2**20

    def step_gib(self, batch: int) -> float:
        """The GiB of weights, gradients, moments and saved activations at a batch."""
        return (_ADAMW_BYTES * self.parameters / 2**20 + batch * self.activation_mib_per_image) / 1024

    def largest_batch(self, gib: float) -> int:
        """The largest batch whose :meth:`step_gib` fits; zero when the weights alone do not."""
        if not self.activation_mib_per_image:
            return 0
        left = gib * 1024 - _ADAMW_BYTES * self.parameters / 2**20
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
    """A rule of rules.toml; ``flags`` and ``found`` are about the names of :func:`_values`."""

    name: str
    says: str
    predicts: Predicts
    ground: Ground
    source: str
    seen_with: str
    date: str
    flags: list[str]
    found: str
    of: Literal["network", "setting"] = "network"


_DESCRIBED = ("says", "predicts", "ground", "source", "seen_with", "date")  # what a rule is for a reader


class Known(NamedTuple):
    """An error code of the compiler of which no condition on a graph is public."""

    code: str
    what: str
    source: str
    seen_with: str


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RULES = tuple(Rule(**entry) for entry in _TABLE["rule"])
RETIRED: dict[str, str] = _TABLE["retired"]
KNOWN = tuple(Known(**entry) for entry in _TABLE["known"])


def _values(facts: Facts, setting: Setting) -> dict[str, Any]:
    """The counts of a graph, its setting, and what rules derive from both."""
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
    """The results of the rules, in order; only fallbacks are known of a network that was not captured."""
    values = _values(facts, setting)
    return [
        {
            "rule": rule.name,
            "of": rule.of,
            "flagged": any(values[name] for name in rule.flags),
            "found": rule.found.format_map(values),
            **{name: getattr(rule, name) for name in _DESCRIBED},
        }
        for rule in RULES
        if not facts.problem or (facts.fallbacks and rule.flags == ["fallbacks"])
    ]


def flagged(facts: Facts, setting: Setting) -> tuple[str, str]:
    """The flagged rules that predict failure, such as ``R3 R12``, and the others about networks."""
    flags = [rule for rule in verdicts(facts, setting) if rule["flagged"] and rule["of"] == "network"]
    failure = [rule["rule"] for rule in flags if rule["predicts"] == "failure"]
    return " ".join(failure), " ".join(rule["rule"] for rule in flags if rule["rule"] not in failure)
