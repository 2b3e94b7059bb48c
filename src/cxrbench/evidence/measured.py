"""Rows of measurements: which settings tell them apart, and how new rows replace older ones."""

import json
from pathlib import Path
from typing import Any

from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy

Rows = list[dict[str, Any]]
_STEP = ("platform", "architecture", "pixels", "batch", "precision", "fastest")
KEYS = {
    "train": _STEP,
    "gains": _STEP,
    "steps": ("platform", "architecture", "precision"),
    "xla_ways": ("way",),
    "pack": ("format", "pixels"),
    "metrics": ("images", "patients", "replicates"),
    "graph": ("cells",),
}
DEFAULTS = {"precision": "fp32", "fastest": False, "own_processes": False}  # of rows older than these fields


def read_rows(path: Path) -> Rows:
    """Read the rows of a file of measurements; none where there is no file."""
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a list of rows is expected")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: {error}; {remedy(path)}") from None
    return list(rows)


def merged(before: Rows, new: Rows, kind: str) -> Rows:
    """Return ``new``, after the rows of ``before`` whose settings (:data:`KEYS` of ``kind``) it lacks."""

    def setting(row: dict[str, Any]) -> list[Any]:
        return [(DEFAULTS | row).get(name) for name in KEYS[kind]]

    replaced = [setting(row) for row in new]
    return [row for row in before if setting(row) not in replaced] + new
