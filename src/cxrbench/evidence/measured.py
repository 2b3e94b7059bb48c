"""Rows of measurements: which settings tell them apart, and how new rows replace older ones."""

import json
from pathlib import Path
from typing import Any

from cxrbench.evidence.tolerances import outside
from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy, sha256_json

Rows = list[dict[str, Any]]
STEPS = Path("results/bench/steps.json")  # of `cxrbench bench steps`, below a checkout
_STEP = ("platform", "architecture", "pixels", "batch", "precision", "fastest")
KEYS = {
    "train": _STEP,
    "gains": _STEP,
    "steps": ("platform", "architecture", "precision"),
    "xla_ways": ("way",),
    "pack": ("format", "pixels"),
    "metrics": ("images", "patients", "replicates"),
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


def step_parity(platform: str, precision: str, path: Path = STEPS) -> dict[str, Any] | None:
    """Return what ``cxrbench bench steps`` measured here of a platform, for a record; None: it was not run.

    ``sha256`` is of its rows as JSON, which ``cxrbench bench record`` keeps.
    """
    some = [row for row in read_rows(path) if (row["platform"], row["precision"]) == (platform, precision)]
    if not some:
        return None
    networks = list(dict.fromkeys(row["architecture"] for row in some))
    return {"sha256": sha256_json(some), "networks": networks, "within_tolerance": not outside(some)}
