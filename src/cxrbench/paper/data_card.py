"""The generated parts of data/README.md, the data card: every number in it comes from here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.registry import read_files
from cxrbench.datasets.resizing import contrast_table
from cxrbench.datasets.split import PUBLISHED
from cxrbench.paper.blocks import renewed
from cxrbench.paper.label_noise import label_noise
from cxrbench.paper.label_noise import shown as shown_noise
from cxrbench.paper.splits import shown as shown_splits
from cxrbench.paper.splits import splits
from cxrbench.study.files import write_text


def write_card(card: Path, registry: Path) -> None:
    """Renew every generated part of ``card``; UserError when one has lost its place."""
    write_text(card, card_text(card.read_text(encoding="utf-8"), registry))


def card_text(text: str, registry: Path) -> str:
    """``text`` with what stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` renewed."""
    return renewed(text, {name: f"\n{block}\n" for name, block in blocks(registry).items()}, "data/README.md")


def blocks(registry: Path) -> dict[str, str]:
    """The generated parts as Markdown, by name."""
    parts = splits()
    return {
        "counts": _markdown(_counts()),
        "views": _markdown(_views()),
        "splits": _markdown(shown_splits(parts)),
        "labels": _markdown(_labels(parts)),
        "noise": _markdown(shown_noise(label_noise())),
        "files": _markdown(_files(registry)),
        "resizing": _markdown(contrast_table()),
    }


def _markdown(table: pd.DataFrame) -> str:
    return str(table.to_markdown(index=False, disable_numparse=True)) + "\n"


def _counts() -> pd.DataFrame:
    table = read_nih_table()
    findings, per_patient = table[list(FINDINGS)].sum(axis=1), table.groupby("patient").size()
    rows = {
        "Images": len(table),
        "Patients": len(per_patient),
        "Images without a finding": int((findings == 0).sum()),
        "Images with several findings": int((findings > 1).sum()),
        "Patients with one image": int((per_patient == 1).sum()),
        "Most images of one patient": int(per_patient.max()),
        "Median age in years, over images": int(table["age"].median()),
        "Oldest in years": int(table["age"].max()),
    }
    return pd.DataFrame({"What": list(rows), "How many": [f"{count:,}" for count in rows.values()]})


def _views() -> pd.DataFrame:
    """Images by view and sex, and how common a finding is in each."""
    table = read_nih_table()
    rows = []
    for (view, sex), some in table.groupby(["view", "sex"]):
        without = (some[list(FINDINGS)].sum(axis=1) == 0).mean()
        rows.append(
            {
                "View": view,
                "Sex": sex,
                "Images": f"{len(some):,}",
                "Without a finding": f"{100 * without:.1f} %",
            }
        )
    return pd.DataFrame(rows)


def _labels(parts: pd.DataFrame) -> pd.DataFrame:
    """Positive images per finding, for each part of the published splits."""
    table = read_nih_table()
    columns = {"Finding": list(FINDINGS), "All": [f"{table[finding].sum():,}" for finding in FINDINGS]}
    for split in PUBLISHED:
        for part in SPLITS:
            row = parts[(parts["split"] == split) & (parts["part"] == part)].iloc[0]
            columns[f"{split} {part}"] = [f"{row[finding]:,}" for finding in FINDINGS]
    return pd.DataFrame(columns)


def _files(registry: Path) -> pd.DataFrame:
    rows = []
    for file in read_files(registry):
        size = "not stated" if file.size is None else f"{file.size:,}"
        rows.append({"Dataset": file.dataset, "File": file.name, "Bytes": size, "Terms": file.licence})
    return pd.DataFrame(rows)
