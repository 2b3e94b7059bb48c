"""The networks that ``cxrbench audit`` captures when none is named, by family. Imports no torch."""

import re
import tomllib
from pathlib import Path

FAMILIES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
NETWORKS: tuple[str, ...] = tuple(name for names in FAMILIES.values() for name in names)


def family_of(architecture: str) -> str:
    """The family of a listed network; for any other, the letters that its name starts with."""
    for family, names in FAMILIES.items():
        if architecture in names:
            return family
    start = re.match(r"[a-z]+", architecture)
    return start[0] if start else architecture
