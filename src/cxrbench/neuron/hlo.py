"""HLO text as torch_xla prints it: instructions, convolutions and dots with their work. Imports no torch.

Grammar: XLA's HloModule text (openxla.org/xla/hlo_dumps); the meaning of windows, dimension labels and
groups is that of Conv and Dot in openxla.org/xla/operation_semantics. Shapes are taken from the defining line
of each name, so both printed forms (operands with and without their types) are read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

_LINE = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"([a-z]+\d*\w*)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->(\w+)")
_WINDOW = ("size", "stride", "lhs_dilate", "rhs_dilate")
# Moves no data, or only renames it.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "reshape", "bitcast"})

# One matrix instruction of NeuronCore-v2: contraction, stationary and moving sides (AWS Neuron SDK docs,
# nki/guides/architecture/trainium_inferentia2_arch).
TILE_CONTRACTION, TILE_STATIONARY, TILE_MOVING = 128, 128, 512

Sizes = tuple[int, ...]
Role = Literal["forward", "input gradient", "weight gradient"]


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[tuple[str, Sizes], ...]  # element type and dimensions; several for a tuple
    operands: tuple[str, ...]
    attributes: str

    @property
    def dims(self) -> Sizes:
        """The dimensions of the (first) result."""
        return self.shapes[0][1] if self.shapes else ()

    @property
    def kind(self) -> str:
        """The element type of the (first) result, such as f32."""
        return self.shapes[0][0] if self.shapes else ""

    @property
    def bytes(self) -> float:
        """Bytes of all results."""
        return sum(math.prod(dims) * _bits(kind) / 8 for kind, dims in self.shapes)

    def numbers(self, key: str, default: Sizes = ()) -> Sizes:
        """The numbers of an attribute: ``key={1,2}``, ``key=1`` or, in a window, ``key=3x3``."""
        match = re.search(rf"\b{key}=\{{?([\dx,]+)", self.attributes)
        return tuple(map(int, re.split("[x,]", match[1]))) if match else default


class Product(NamedTuple):
    """A convolution or dot as ``groups`` matrix products: (M x K) times (K x N).

    M: output features, N: all other output elements, K: what one output element sums over (padding included,
    zeros that input dilation inserts left out).
    """

    groups: int
    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return math.prod(self)

    @property
    def tiles(self) -> int:
        """Matrix instructions if each group is tiled by itself, the better side stationary."""
        sides = ((self.m, self.n), (self.n, self.m))
        areas = [math.ceil(a / TILE_STATIONARY) * math.ceil(b / TILE_MOVING) for a, b in sides]
        return self.groups * math.ceil(self.k / TILE_CONTRACTION) * min(areas)


class Convolution(NamedTuple):
    """A convolution of the graph."""

    name: str
    role: Role
    kernel: Sizes
    stride: Sizes
    input_dilation: Sizes
    kernel_dilation: Sizes
    feature_groups: int
    batch_groups: int
    channels: int  # input channels of one group
    product: Product

    @property
    def depthwise(self) -> bool:
        """Whether each group sees one channel."""
        return self.feature_groups > 1 and self.channels == 1


@dataclass
class Graph:
    """The entry computation of an HLO module."""

    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""

    @classmethod
    def parse(cls, text: str) -> Graph:
        """Read HLO text; ValueError when it has no complete entry computation, or a line that is not HLO."""
        entry = re.search(r"^ENTRY .*\n((?:.*\n)*?)\}", text, re.M)
        if entry is None:
            raise ValueError("not a complete HLO module: its entry computation has no end")
        graph = cls()
        for line in filter(str.strip, entry[1].splitlines()):
            match = _LINE.match(line)
            if match is None:
                raise ValueError(f"not a line of HLO: {line[:120]}")
            root, name, result, opcode, rest = match.groups()
            inside, _, attributes = rest.partition("), ")
            shapes = ((kind, re.findall(r"\d+", dims)) for kind, dims in _SHAPE.findall(result))
            graph.instructions[name] = Instruction(
                name,
                opcode,
                shapes=tuple((kind, tuple(map(int, dims))) for kind, dims in shapes),
                operands=() if opcode == "constant" else tuple(_OPERAND.findall(inside)),
                attributes=attributes,
            )
            graph.root = name if root else graph.root
        return graph

    @cached_property
    def counts(self) -> Counter[str]:
        """Instructions by opcode."""
        return Counter(node.opcode for node in self.instructions.values())

    def of(self, opcode: str) -> list[Instruction]:
        """The instructions with an opcode."""
        return [node for node in self.instructions.values() if node.opcode == opcode]

    @cached_property
    def needed(self) -> frozenset[str]:
        """Names that the root depends on: what is left after dead code is eliminated."""
        seen, waiting = {self.root}, [self.root]
        while waiting:
            new = set(self.instructions[waiting.pop()].operands) - seen
            seen |= new
            waiting += new
        return frozenset(seen)

    def depending_on(self, names: set[str]) -> set[str]:
        """The names that depend on one of ``names`` (definitions come before uses in HLO)."""
        dependent = set(names)
        for node in self.instructions.values():
            if not dependent.isdisjoint(node.operands):
                dependent.add(node.name)
        return dependent

    @cached_property
    def convolutions(self) -> list[Convolution]:
        """All convolutions, dead ones included."""
        return [self._convolution(node) for node in self.of("convolution")]

    @property
    def products(self) -> list[Product]:
        """The products of all convolutions and dots that the root depends on."""
        of_convolutions = [conv.product for conv in self.convolutions if conv.name in self.needed]
        return of_convolutions + [self._dot(node) for node in self.of("dot") if node.name in self.needed]

    @property
    def row_norms(self) -> list[Instruction]:
        """The batch-norm-training that torch_xla makes of LayerNorm and GroupNorm.

        Each normalises 1 x rows x C values with a feature for every row; a BatchNorm of one image is taken
        for such a one if its maps have one dimension.
        """
        norms = self.of("batch-norm-training")
        return [node for node in norms if len(node.dims) == 3 and node.dims[0] == 1]

    @property
    def unfused_bytes(self) -> float:
        """Bytes if every instruction read its operands from memory and wrote its result."""
        return sum(
            node.bytes + sum(self.instructions[name].bytes for name in node.operands)
            for node in self.instructions.values()
            if node.opcode not in _FREE
        )

    def _convolution(self, node: Instruction) -> Convolution:
        labels = _LABELS.search(node.attributes)
        if labels is None:
            raise ValueError(f"convolution {node.name} has no dimension labels")
        right, out = labels.groups()
        ones = (1,) * (len(out) - 2)
        size, stride, input_dilation, kernel_dilation = (node.numbers(key, ones) for key in _WINDOW)
        (feature_groups,) = node.numbers("feature_group_count", (1,))
        (batch_groups,) = node.numbers("batch_group_count", (1,))
        groups = max(feature_groups, batch_groups)
        channels = self.instructions[node.operands[1]].dims[right.index("i")]
        features = node.dims[out.index("f")]
        k = math.ceil(channels * math.prod(size) / math.prod(input_dilation))
        product = Product(groups, m=features // groups, k=k, n=math.prod(node.dims) // features)
        # torch_xla writes gradients with the kernel's spatial dimensions first; forward never.
        backward: Role = "weight gradient" if out[0].isdigit() else "input gradient"
        role: Role = backward if out[0].isdigit() or right[0].isdigit() else "forward"
        sizes = size, stride, input_dilation, kernel_dilation
        return Convolution(node.name, role, *sizes, feature_groups, batch_groups, channels, product)

    def _dot(self, node: Instruction) -> Product:
        left, right = (self.instructions[name].dims for name in node.operands[:2])
        batch = math.prod(left[d] for d in node.numbers("lhs_batch_dims"))
        k = math.prod(left[d] for d in node.numbers("lhs_contracting_dims"))
        return Product(batch, m=math.prod(right) // (batch * k), k=k, n=math.prod(left) // (batch * k))


def is_bad_window(node: Instruction) -> bool:
    """Whether a reduce-window is dilated, or has other than two operands."""
    dilations = (*node.numbers("lhs_dilate", (1,)), *node.numbers("rhs_dilate", (1,)))
    return max(dilations) > 1 or len(node.operands) != 2


def _bits(kind: str) -> int:
    """The bits of an element type: its number, such as 16 of bf16."""
    digits = re.search(r"\d+", kind)
    return 8 if kind == "pred" else int(digits[0]) if digits else 0
