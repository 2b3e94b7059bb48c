"""What an HloModuleProto contains, read from its bytes: no torch and no protobuf are needed.

Field numbers: openxla/xla, xla/service/hlo.proto and xla/xla_data.proto; the encoding: protobuf.dev.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
    """Return what a serialised HloModuleProto contains; ValueError where the bytes are none."""
    opcodes, targets, types, entry, sizes = set[str](), set[str](), set[str](), 0, dict[int, int]()
    try:
        for number, value in _fields(content):
            if number == _ENTRY:
                entry = _integer(value)
            elif number == _COMPUTATIONS:
                size, name = 0, 0
                for part, inner in _fields(_message(value)):
                    if part == _ID:
                        name = _integer(inner)
                    elif part == _INSTRUCTIONS:
                        size += 1
                        for key, detail in _fields(_message(inner)):
                            if key == _OPCODE:
                                opcodes.add(_message(detail).decode())
                            elif key == _TARGET and detail:
                                targets.add(_message(detail).decode())
                            elif key == _SHAPE:
                                types |= set(_types(_message(detail)))
                sizes[name] = size
        if not opcodes:
            raise KeyError("no instruction")
        return Contents(frozenset(opcodes), frozenset(targets), frozenset(types), sizes[entry])
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError("not an HloModuleProto") from error


def _types(shape: bytes) -> Iterator[str]:
    for number, value in _fields(shape):
        if number == _TYPE and value in _WIDE:
            yield _WIDE[_integer(value)]
        elif number == _PARTS:
            yield from _types(_message(value))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = divmod(key, 8)
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size, at = _varint(message, at) if kind == 2 else (_BYTES[kind], at)
        if at + size > len(message):
            raise IndexError("the message ends inside of a field")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a message is expected, not a number")
    return value


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TypeError("a number is expected, not a message")
    return value
