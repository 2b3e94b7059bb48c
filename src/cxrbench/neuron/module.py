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
        instructions = [operation for computation in computations.values() for operation in computation]
        targets = (target for operation in instructions for target in operation.get(_TARGET, []) if target)
        shapes = (shape for operation in instructions for shape in operation.get(_SHAPE, []))
        return Contents(
            opcodes=frozenset(operation[_OPCODE][-1].decode() for operation in instructions),
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
    offset, values = 0, defaultdict[int, list[Any]](list)
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, kind = divmod(key, 8)
        value: int | bytes
        if kind == 0:
            value, offset = _varint(message, offset)
        else:
            size, offset = _varint(message, offset) if kind == 2 else (_BYTES[kind], offset)
            value, offset = message[offset : offset + size], offset + size
        values[number].append(value)
    if offset > len(message):
        raise IndexError("the message ends inside of a field")
    return dict(values)


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while message[offset] >= 128:
        value |= (message[offset] & 127) << shift
        offset, shift = offset + 1, shift + 7
    return value | message[offset] << shift, offset + 1
