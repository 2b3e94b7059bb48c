"""A YAML file whose values know where they stand, so that a complaint can name line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cxrbench.errors import UserError
from cxrbench.yaml_keys import refuse_repeated_keys

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Keys = tuple[str | int, ...]  # the way to a value: keys of mappings, numbers in lists


class Document:
    """``value``, the file's plain value, and :meth:`at`, the place of any value below it.

    UserError with the place when the file cannot be read, is not YAML or gives a key twice.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._root, self.value = _load(self.path)
        refuse_repeated_keys(self._root, self.path)

    def at(self, *keys: str | int, offset: int = 0) -> str:
        """file:line:column of the value below ``keys``, or of the nearest one above that exists."""
        node = self._root
        for key in keys:
            node = _below(node, key) or node
        if node is None:
            return f"{self.path}:1:1"
        mark = node.start_mark
        quoted = 1 if getattr(node, "style", None) in ("'", '"') and offset else 0
        return f"{self.path}:{mark.line + 1}:{mark.column + 1 + quoted + offset}"

    def wrong(self, keys: Keys, what: str, offset: int = 0) -> UserError:
        """The complaint ``what`` about the value below ``keys``."""
        return UserError(f"{self.at(*keys, offset=offset)}: {what}")


def _load(path: Path) -> tuple[yaml.Node | None, Any]:
    try:
        loader = _LOADER(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        return root, loader.construct_document(root) if root is not None else None
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; restore it with git") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable ({error}); restore it with git") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise UserError(f"{at}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: not YAML: {error}") from None


def _below(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == str(key)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key]
    return None
