"""YAML keeps the last of two equal keys without a word; here a second one is an error."""

from __future__ import annotations

from pathlib import Path

import yaml

from cxrbench.errors import UserError


def refuse_repeated_keys(node: yaml.Node | None, path: Path | str) -> None:
    """UserError with file, line and column of the first key below ``node`` that its mapping has already."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for name, value in node.value:
            if name.value in seen:
                at = f"{path}:{name.start_mark.line + 1}:{name.start_mark.column + 1}"
                raise UserError(f"{at}: key '{name.value}' is given twice; keep one")
            seen.add(name.value)
            refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            refuse_repeated_keys(one, path)


def refuse_repeated_keys_in(path: Path | str) -> None:
    """The same for a whole file, which is YAML or JSON."""
    refuse_repeated_keys(yaml.compose(Path(path).read_text(encoding="utf-8"), yaml.SafeLoader), path)
