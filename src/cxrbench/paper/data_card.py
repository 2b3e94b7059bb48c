"""The data in tables: splits and label noise for the paper, and the generated parts of data/README.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.datasets.decoding import contrast_table
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.datasets.registry import read_files
from cxrbench.datasets.split import PUBLISHED_SPLITS, splits
from cxrbench.paper.blocks import renew
from cxrbench.paper.formats import (
    Columns,
    Table,
    WithInterval,
    csv_table,
    kinds_of,
    row,
    table,
)
from cxrbench.results.label_noise import EXACT, NONE, label_noise

_SPLITS: Columns = {
    "Split": "split",
    "Part": "part",
    "Images": "images:count",
    "Patients": "patients:count",
    "SHA-256 (first digits)": ("name", lambda row: row.sha256[:16]),
}
_MEASURES = {"sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "kappa": "Kappa"}


def _with_ends(measure: str) -> Callable[[Any], WithInterval]:
    names = (measure, f"{measure}_low", f"{measure}_high")
    return lambda row: WithInterval(*(getattr(row, name) for name in names))


_INTERVALS: Columns = {name: ("ratio", _with_ends(name)) for name in _MEASURES}


def _labels_in_words(row: Any) -> str:
    if row.relation == EXACT:
        return str(row.nih_labels)
    return row.relation if row.relation == NONE else f"{row.nih_labels} ({row.relation})"


NOISE_COLUMNS: Columns = {
    "Adjudicated finding": "finding",
    "NIH's labels": ("name", _labels_in_words),
    "Adjudicated": "adjudicated_positive:count",
    "NIH": "nih_positive:count",
    **{_MEASURES[name]: column for name, column in _INTERVALS.items()},
}
_FILES: Columns = {
    "Dataset": "dataset",
    "File": "name",
    "Bytes": ("count", lambda file: "not stated" if file.size is None else file.size),
    "Terms": "licence",
}
splits_of_images = csv_table("splits", _SPLITS)
noise_of_labels = csv_table("label_noise", NOISE_COLUMNS)


def write_card(card: Path, registry: Path) -> None:
    """Renew every generated part of ``card``; UserError when one has lost its place."""
    images, parts = read_nih_table(), splits()
    tables = {
        "counts": _sizes_of_set(images),
        "views": _views(images),
        "splits": table(parts, _SPLITS),
        "labels": _positive(images, parts),
        "noise": table(label_noise(), NOISE_COLUMNS),
        "files": Table(pd.DataFrame([row(file, _FILES) for file in read_files(registry)]), kinds_of(_FILES)),
        "resizing": Table(contrast_table()),
    }
    texts = {
        name: made.texts.to_markdown(index=False, disable_numparse=True) for name, made in tables.items()
    }
    renew(card, {name: f"\n{text}\n\n" for name, text in texts.items()})


def _sizes_of_set(images: pd.DataFrame) -> Table:
    findings, per_patient = images[list(FINDINGS)].sum(axis=1), images.groupby("patient").size()
    counts = {
        "Images": len(images),
        "Patients": len(per_patient),
        "Images without a finding": (findings == 0).sum(),
        "Images with several findings": (findings > 1).sum(),
        "Patients with one image": (per_patient == 1).sum(),
        "Most images of one patient": per_patient.max(),
        "Median age in years, over images": int(images["age"].median()),
        "Oldest in years": images["age"].max(),
    }
    return Table(pd.DataFrame(counts.items(), columns=["What", "How many"]), {"How many": "count"})


def _views(images: pd.DataFrame) -> Table:
    """Images by view and sex, and the share of each without a finding."""
    rows = [
        (*group, len(rows), 100 * (rows[list(FINDINGS)].sum(axis=1) == 0).mean())
        for group, rows in images.groupby(["view", "sex"])
    ]
    shown = pd.DataFrame(rows, columns=["View", "Sex", "Images", "Without a finding"])
    return Table(shown, {"Images": "count", "Without a finding": "rate"})


def _positive(images: pd.DataFrame, parts: pd.DataFrame) -> Table:
    """Positive images per finding, for each part of the published splits."""
    counts = {"All": images[list(FINDINGS)].sum()}
    for part in parts[parts["split"].isin(PUBLISHED_SPLITS)].to_dict("records"):
        counts[f"{part['split']} {part['part']}"] = part
    rows = {name: [count[finding] for finding in FINDINGS] for name, count in counts.items()}
    return Table(pd.DataFrame({"Finding": FINDINGS, **rows}), dict.fromkeys(rows, "count"))
