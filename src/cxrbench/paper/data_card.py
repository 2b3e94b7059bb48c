"""The generated parts of data/README.md, the data card: every number in it comes from here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.analysis.label_noise import label_noise
from cxrbench.analysis.splits import splits
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.pictures import contrast_table
from cxrbench.datasets.registry import read_files
from cxrbench.datasets.split import PUBLISHED
from cxrbench.paper.blocks import renew
from cxrbench.paper.label_noise import shown as shown_noise
from cxrbench.paper.splits import shown as shown_splits


def write_card(card: Path, registry: Path) -> None:
    """Renew every generated part of ``card``; UserError when one has lost its place."""
    renew(card, blocks(registry))


def blocks(registry: Path) -> dict[str, str]:
    """Return the generated parts as Markdown, by name."""
    parts = splits()
    tables = {
        "counts": _counts(),
        "views": _views(),
        "splits": shown_splits(parts),
        "labels": _labels(parts),
        "noise": shown_noise(label_noise()),
        "files": _files(registry),
        "resizing": contrast_table(),
    }
    return {
        name: f"\n{table.to_markdown(index=False, disable_numparse=True)}\n\n"
        for name, table in tables.items()
    }


def _counts() -> pd.DataFrame:
    table = read_nih_table()
    findings, per_patient = table[list(FINDINGS)].sum(axis=1), table.groupby("patient").size()
    rows = {
        "Images": len(table),
        "Patients": len(per_patient),
        "Images without a finding": (findings == 0).sum(),
        "Images with several findings": (findings > 1).sum(),
        "Patients with one image": (per_patient == 1).sum(),
        "Most images of one patient": per_patient.max(),
        "Median age in years, over images": int(table["age"].median()),
        "Oldest in years": table["age"].max(),
    }
    return pd.DataFrame([(name, f"{count:,}") for name, count in rows.items()], columns=["What", "How many"])


def _views() -> pd.DataFrame:
    """Return images by view and sex, and how common a finding is in each."""
    rows = [
        (*group, f"{len(some):,}", f"{100 * (some[list(FINDINGS)].sum(axis=1) == 0).mean():.1f} %")
        for group, some in read_nih_table().groupby(["view", "sex"])
    ]
    return pd.DataFrame(rows, columns=["View", "Sex", "Images", "Without a finding"])


def _labels(parts: pd.DataFrame) -> pd.DataFrame:
    """Return positive images per finding, for each part of the published splits."""
    counts = {"All": read_nih_table()[list(FINDINGS)].sum()}
    for row in parts[parts["split"].isin(PUBLISHED)].to_dict("records"):
        counts[f"{row['split']} {row['part']}"] = row
    rows = {name: [f"{count[finding]:,}" for finding in FINDINGS] for name, count in counts.items()}
    return pd.DataFrame({"Finding": FINDINGS, **rows})


def _files(registry: Path) -> pd.DataFrame:
    rows = [
        (file.dataset, file.name, "not stated" if file.size is None else f"{file.size:,}", file.licence)
        for file in read_files(registry)
    ]
    return pd.DataFrame(rows, columns=["Dataset", "File", "Bytes", "Terms"])
