"""Which platforms there are, read from their modules without importing them: an import may load torch.

A platform is a module of ``cxrbench/platforms`` with a class that states ``name = "..."`` in its own body.
That module is the only place that has to know it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "platforms"


@dataclass(frozen=True)
class Stated:
    """What a platform's class states in its body, as literal values."""

    module: str
    cls: str
    accelerated: bool = False  # it is counted, and paid for, in devices and not in CPU cores
    modules: tuple[str, ...] = ()  # Python packages that it needs besides torch
    found_by: tuple[str, str] | None = None  # a file that is there with its device; else this sentence


def _stated(path: Path) -> dict[str, Stated]:
    """The platforms of one module, by name."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            values = dict(filter(None, map(_literal, node.body)))
            if isinstance(values.get("name"), str):
                known = {key: values[key] for key in ("accelerated", "modules", "found_by") if key in values}
                found[values["name"]] = Stated(path.stem, node.name, **known)
    return found


def _literal(statement: ast.stmt) -> tuple[str, Any] | None:
    """(name, value) of ``name = value`` when the value is written out; None for anything else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            try:
                return name, ast.literal_eval(value)
            except ValueError:
                return None
    return None


STATED: dict[str, Stated] = {
    name: stated for path in sorted(_FOLDER.glob("*.py")) for name, stated in _stated(path).items()
}
PLATFORMS: tuple[str, ...] = tuple(STATED)
ACCELERATED = frozenset(name for name, stated in STATED.items() if stated.accelerated)
# What a platform computes on; a platform that is not named here runs on CPUs.
FAMILIES = {"cuda": "gpu", "neuron": "neuron", "torchneuron": "neuron"}
TRAINIUM = tuple(name for name, family in FAMILIES.items() if family == "neuron")
GPU = "cuda"
