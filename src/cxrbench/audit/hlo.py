"""HLO text as torch_xla prints it: instructions, convolutions and dots with their work. Imports no torch.

Grammar: XLA's HloModule text (openxla.org/xla/hlo_dumps); the meaning of windows, dimension labels and
groups is that of Conv and Dot in openxla.org/xla/operation_semantics. Shapes are taken from the defining line
of each name, so both printed forms (operands with and without their types) are read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_LINE = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"([a-z]+\d*\w*)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_BITS = {"pred": 8, "token": 0}
# Moves no data, or only renames it.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "reshape", "bitcast"})

# One matrix instruction of NeuronCore-v2: contraction, stationary and moving sides (AWS Neuron SDK docs,
# nki/guides/architecture/trainium_inferentia2_arch).
TILE_CONTRACTION, TILE_STATIONARY, TILE_MOVING = 128, 128, 512

Shape = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]  # more than one for a tuple
    operands: tuple[str, ...]
    attributes: str

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of the (first) result."""
        return self.shapes[0][1] if self.shapes else ()

    @property
    def bytes(self) -> float:
        """Bytes of all results."""
        return sum(math.prod(dims) * _bits(kind) / 8 for kind, dims in self.shapes)

    def numbers(self, key: str) -> tuple[int, ...]:
        """The list after ``key=`` such as ``lhs_contracting_dims={1}``; empty when it is not there."""
        match = re.search(rf"{key}=\{{([\d,]*)\}}", self.attributes)
        return tuple(map(int, filter(None, match[1].split(",")))) if match else ()

    def number(self, key: str, default: int) -> int:
        """The number after ``key=``."""
        match = re.search(rf"{key}=(\d+)", self.attributes)
        return int(match[1]) if match else default


@dataclass(frozen=True)
class Product:
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
        return self.groups * self.m * self.k * self.n

    @property
    def tiles(self) -> int:
        """Matrix instructions if each group is tiled by itself, the better side stationary."""
        along = math.ceil(self.k / TILE_CONTRACTION)
        sides = ((self.m, self.n), (self.n, self.m))
        return (
            self.groups
            * along
            * min(math.ceil(a / TILE_STATIONARY) * math.ceil(b / TILE_MOVING) for a, b in sides)
        )


@dataclass(frozen=True)
class Convolution:
    """A convolution of the graph. ``role``: forward, input gradient or weight gradient, by its labels."""

    name: str
    role: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    input_dilation: tuple[int, ...]
    kernel_dilation: tuple[int, ...]
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
        """Read HLO text; ValueError when it has no entry computation or a line that is none of HLO's."""
        graph = cls()
        inside = False
        for line in text.splitlines():
            if line.startswith("ENTRY "):
                inside = True
            elif inside and line.startswith("}"):
                return graph
            elif inside and line.strip():
                graph._add(line)
        raise ValueError("not a complete HLO module: its entry computation has no end")

    def _add(self, line: str) -> None:
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"not a line of HLO: {line[:120]}")
        root, name, result, opcode, rest = match.groups()
        inside, _, attributes = rest.partition("), ")
        shapes = tuple(
            (kind, tuple(map(int, filter(None, dims.split(","))))) for kind, dims in _SHAPE.findall(result)
        )
        named = () if opcode == "constant" else tuple(_OPERAND.findall(inside))
        self.instructions[name] = Instruction(name, opcode, shapes, named, attributes)
        if root:
            self.root = name

    @cached_property
    def counts(self) -> Counter[str]:
        """Instructions by opcode."""
        return Counter(one.opcode for one in self.instructions.values())

    def of(self, *opcodes: str) -> Iterator[Instruction]:
        """The instructions with one of the ``opcodes``."""
        return (one for one in self.instructions.values() if one.opcode in opcodes)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Names that the root depends on: what is left after dead code is eliminated."""
        seen, waiting = {self.root}, [self.root]
        while waiting:
            new = set(self.instructions[waiting.pop()].operands) - seen
            seen |= new
            waiting += new
        return frozenset(seen)

    def depending_on(self, names: set[str]) -> frozenset[str]:
        """Names that depend on one of ``names`` (definitions come before uses in HLO)."""
        found = set(names)
        for one in self.instructions.values():
            if not found.isdisjoint(one.operands):
                found.add(one.name)
        return frozenset(found)

    @cached_property
    def convolutions(self) -> list[Convolution]:
        """All convolutions, dead ones included."""
        return [self._convolution(one) for one in self.of("convolution")]

    @property
    def products(self) -> list[Product]:
        """The products of all convolutions and dots that the root depends on."""
        of_convolutions = [one.product for one in self.convolutions if one.name in self.needed]
        return of_convolutions + [self._dot(one) for one in self.of("dot") if one.name in self.needed]

    @property
    def unfused_bytes(self) -> float:
        """Bytes if every instruction read its operands from memory and wrote its result."""
        return sum(
            one.bytes + sum(self.instructions[name].bytes for name in one.operands)
            for one in self.instructions.values()
            if one.opcode not in _FREE
        )

    def _convolution(self, one: Instruction) -> Convolution:
        labels = _LABELS.search(one.attributes)
        if labels is None:
            raise ValueError(f"convolution {one.name} has no dimension labels")
        _, right, out = labels.groups()
        kernel_dims = self.instructions[one.operands[1]].dims
        sizes = _window(one.attributes, len(out) - 2)
        channels = kernel_dims[right.index("i")]
        feature_groups = one.number("feature_group_count", 1)
        batch_groups = one.number("batch_group_count", 1)
        groups = max(feature_groups, batch_groups)
        features = one.dims[out.index("f")]
        product = Product(
            groups,
            features // groups,
            math.ceil(channels * math.prod(sizes["size"]) / math.prod(sizes["lhs_dilate"])),
            math.prod(one.dims) // features,
        )
        return Convolution(
            one.name,
            _role(right, out),
            sizes["size"],
            sizes["stride"],
            sizes["lhs_dilate"],
            sizes["rhs_dilate"],
            feature_groups,
            batch_groups,
            channels,
            product,
        )

    def _dot(self, one: Instruction) -> Product:
        left, right = (self.instructions[name].dims for name in one.operands[:2])
        batch = math.prod(left[d] for d in one.numbers("lhs_batch_dims"))
        k = math.prod(left[d] for d in one.numbers("lhs_contracting_dims"))
        return Product(batch, math.prod(right) // (batch * k), k, math.prod(left) // (batch * k))


def _bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return _BITS[kind] if kind in _BITS else int(digits[0]) if digits else 0


def _window(attributes: str, rank: int) -> dict[str, tuple[int, ...]]:
    """Size, stride and both dilations of a window; what is not written is one."""
    found = dict.fromkeys(("size", "stride", "lhs_dilate", "rhs_dilate"), (1,) * rank)
    match = _WINDOW.search(attributes)
    for part in match[1].split() if match else ():
        key, _, value = part.partition("=")
        if key in found:
            found[key] = tuple(map(int, value.split("x")))
    return found


def _role(right: str, out: str) -> str:
    """torch_xla writes gradients with the kernel's spatial dimensions first; forward never."""
    if out[0].isdigit():
        return "weight gradient"
    return "input gradient" if right[0].isdigit() else "forward"
