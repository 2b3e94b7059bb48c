"""What an HloModuleProto contains, read from its bytes: no torch and no protobuf are needed.

Field numbers: openxla/xla, xla/service/hlo.proto and xla/xla_data.proto; the encoding: protobuf.dev.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_COMPUTATIONS, _ENTRY = 3, 6  # of a module
_INSTRUCTIONS, _ID = 2, 5  # of a computation
_OPCODE, _SHAPE, _TARGET = 2, 3, 28  # of an instruction
_TYPE, _PARTS = 2, 4  # of a shape
_WIDE = {5: "s64", 9: "u64", 12: "f64", 18: "c128"}
_BYTES = {1: 8, 5: 4}  # of the encodings with a fixed size


@dataclass(frozen=True)
class Contents:
    """Opcodes, targets of custom calls and types of 64 bits and more of all computations of a module."""

    opcodes: frozenset[str]
    targets: frozenset[str]
    wide_types: frozenset[str]
    instructions: int  # of the entry computation


def read_module(content: bytes) -> Contents:
    """The contents of a serialised HloModuleProto; ValueError where the bytes are none."""
    try:
        module = fields(content)
        computations = {
            computation.get(_ID, [0])[-1]: [fields(instruction) for instruction in computation[_INSTRUCTIONS]]
            for computation in map(fields, module[_COMPUTATIONS])
        }
        instructions = [one for computation in computations.values() for one in computation]
        targets = (target for one in instructions for target in one.get(_TARGET, []) if target)
        shapes = (shape for one in instructions for shape in one.get(_SHAPE, []))
        return Contents(
            opcodes=frozenset(one[_OPCODE][-1].decode() for one in instructions),
            targets=frozenset(target.decode() for target in targets),
            wide_types=frozenset(kind for shape in shapes for kind in _types(shape)),
            instructions=len(computations[module.get(_ENTRY, [0])[-1]]),
        )
    except (AttributeError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError("not an HloModuleProto") from error


def _types(shape: bytes) -> Iterator[str]:
    """Yield the wide types of a shape, and of the parts of a tuple."""
    values = fields(shape)
    yield from (_WIDE[kind] for kind in values.get(_TYPE, []) if kind in _WIDE)
    for part in values.get(_PARTS, []):
        yield from _types(part)


def fields(message: bytes) -> dict[int, list[Any]]:
    """The values of the fields of a message, by number: integers or bytes."""
    at, values = 0, defaultdict[int, list[Any]](list)
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = divmod(key, 8)
        value: int | bytes
        if kind == 0:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if kind == 2 else (_BYTES[kind], at)
            value, at = message[at : at + size], at + size
        values[number].append(value)
    if at > len(message):
        raise IndexError("the message ends inside of a field")
    return dict(values)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] >= 128:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1
