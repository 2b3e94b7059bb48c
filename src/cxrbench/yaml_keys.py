"""YAML keeps the last of two equal keys without a word; here a second one is an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import yaml

from cxrbench.errors import UserError

_MERGE = "tag:yaml.org,2002:merge"  # << may be there twice: both are merged


def refuse_repeated_keys(node: yaml.Node | None, path: Path | str) -> None:
    """UserError with file, line and column of the first key below ``node`` that its mapping has already."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for name, value in node.value:
            key = (name.tag, str(name.value))
            if key in seen and name.tag != _MERGE:
                at = f"{path}:{name.start_mark.line + 1}:{name.start_mark.column + 1}"
                raise UserError(f"{at}: key '{name.value}' is given twice; keep one")
            seen.add(key)
            refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            refuse_repeated_keys(one, path)


def refuse_repeated_keys_in(path: Path | str) -> None:
    """The same for a whole file that somebody else has read; what is no YAML (JSON with tabs) is let pass."""
    with suppress(yaml.YAMLError):
        refuse_repeated_keys(yaml.compose(Path(path).read_text(encoding="utf-8"), yaml.SafeLoader), path)
