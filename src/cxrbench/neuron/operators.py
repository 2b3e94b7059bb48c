"""Which opcodes of a graph a compiler names as its own: ``neuronx-cc list-operators``. Imports no torch.

The list has XlaBuilder's names (Neuron SDK docs, neuronx-cc CLI reference), which are not HLO's opcodes. That
of an older page lacks convolutions, so a graph with an unlisted opcode is compiled all the same: what
compiles is an outcome, and so is a failure of a graph whose opcodes are all listed or proven. A failure of
any other graph is a fault of the trace: a device may never send it.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from cxrbench.neuron.module import Contents

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TARGETS = frozenset(_TABLE["targets"])
REFUSED_TYPES = frozenset({"f64", "c128"})  # NCC_ESPP004 as reported, NCC_EVRF004
_STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})  # no operators


def unlisted(contents: Contents, listed: Iterable[str], proven: frozenset[str]) -> list[str]:
    """The operators of a graph neither ``listed`` by the compiler nor ``proven`` by a compiled graph.

    Opcodes, targets of custom calls that no documentation names, and types that are documented or reported to
    be refused.
    """
    plain_names = {_plain(name) for name in listed}
    opcodes = contents.opcodes - _STRUCTURE - proven
    missing = {
        code for code in opcodes if plain_names.isdisjoint((_plain(code), *_TABLE["builder"].get(code, ())))
    }
    return sorted(missing | (contents.targets - TARGETS - proven) | (contents.wide_types & REFUSED_TYPES))


def names_in(answer: str) -> list[str]:
    """The operators in what ``list-operators`` printed, one on each line; other lines are messages."""
    return [line.strip() for line in answer.splitlines() if re.fullmatch(r"\s*[A-Za-z][\w\-]*\s*", line)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
