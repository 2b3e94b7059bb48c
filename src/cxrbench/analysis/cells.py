"""cells.csv: every cell of the study with its status, and where, when and at which commit it ran."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.evidence.machine import is_busy, machine_of, processor_of
from cxrbench.evidence.record import Record, read_record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.cells import Cell
from cxrbench.study.config import Study
from cxrbench.study.platform_names import ACCELERATED

NOT_RUN = "not run"
REFUSED = (
    "refused"  # an origin: recorded evidence that is not used; its status is 'not run', `failure` says why
)
COLUMNS = [
    *(
        "cell",
        "dataset",
        "architecture",
        "platform",
        "seed",
        "status",
        "origin",
        "failure",
        "ended",
        "device",
    ),
    *("instance", "cores_used", "commit", "dirty", "attempts", "parameters", "images_per_second"),
    *("train_seconds", "total_seconds", "recipe_hash", "packed", "torch", "train_images", "norm_images"),
    *("machine", "processor", "others_share", "busy"),
]


def cells_table(study: Study, records: Iterable[Path], recorded: Path) -> pd.DataFrame:
    """One row per cell of ``study`` in its order; ``records``: the adopted record.json of those that ran."""
    evidence = EvidenceStore(recorded)
    adopted = {Cell.parse("/".join(path.parts[-5:])): path for path in records}
    rows = [
        _row(cell, study.recipe(cell.dataset).hash(), adopted.get(cell), evidence)
        for cell in study.all_cells()
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(cell: Cell, recipe: str, path: Path | None, evidence: EvidenceStore) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": str(cell), **vars(cell), "status": NOT_RUN, "origin": ""}
    origin = evidence.origin(cell, path)
    if origin == REFUSED:
        return row | {"origin": REFUSED, "failure": evidence.refused(cell)}
    if path is None:
        return row
    record = read_record(path)
    if record.recipe_hash != recipe:  # adopted before the study's recipe changed
        return row
    timing = record.timing
    accelerated = cell.platform in ACCELERATED
    return row | {
        "status": record.status,
        "origin": origin,
        "failure": record.failure.fingerprint if record.failure else None,
        "ended": record.ended,
        "device": record.host.device if accelerated else record.host.cpu,
        "instance": record.host.instance,
        "cores_used": record.host.cores_used,
        "commit": record.commit,
        "dirty": record.dirty,
        "attempts": record.attempts,
        "parameters": record.parameters,
        "images_per_second": timing.images_per_second,
        "train_seconds": timing.train_seconds,
        "total_seconds": timing.total_seconds,
        "recipe_hash": record.recipe_hash,
        "packed": record.dataset.packed if record.dataset else None,
        "torch": record.versions.get("torch"),
        "train_images": record.dataset.images["train"] if record.dataset else None,
        "norm_images": _norm_images(record),
        "machine": machine_of(record, cell.platform),
        "processor": processor_of(record),
        "others_share": timing.others_share,
        "busy": is_busy(timing.others_share),
    }


def _norm_images(record: Record) -> int:
    """Images behind each BatchNorm statistic; 0 for a network without, or where no network was built."""
    has_statistics = record.platform.get("batchnorm_statistics") == "per process"
    return (record.micro_batch or 0) if has_statistics else 0
