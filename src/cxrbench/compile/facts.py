"""What is counted for one network, and how it was captured. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
