"""The splits of the whole ChestX-ray14, with a hash of each part: what was trained on can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import PUBLISHED, assign_split, part_hash

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

NAMES = (*PUBLISHED, "seeded-0")
NAME = "splits"
_SHOWN_DIGITS = 16  # of a hash, in print


def splits() -> pd.DataFrame:
    """One row per split and part: images, patients, images of each finding, sha256 of the sorted names.

    Every split keeps a patient's images together (asserted by :func:`assign_split`).
    """
    table, rows = read_nih_table(), []
    for split in NAMES:
        parts = assign_split(table, split)
        for part in SPLITS:
            some = table[parts == part]
            row = {"split": split, "part": part, "images": len(some), "patients": some["patient"].nunique()}
            rows.append(row | some[list(FINDINGS)].sum().to_dict() | {"sha256": part_hash(some["image"])})
    return pd.DataFrame(rows)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read, without the findings."""
    return pd.DataFrame(
        {
            "Split": table["split"],
            "Part": table["part"],
            "Images": [f"{count:,}" for count in table["images"]],
            "Patients": [f"{count:,}" for count in table["patients"]],
            "SHA-256 (first digits)": table["sha256"].str[:_SHOWN_DIGITS],
        }
    )


def typeset(read: Results) -> tuple[pd.DataFrame, str]:
    """The paper's table, from ``tables/splits.csv``, and its LaTeX preamble."""
    return shown(pd.read_csv(read.folder / "tables" / f"{NAME}.csv")), "llrrl"


def numbers(read: Results) -> dict[str, str]:
    """What the prose may name: ``split/<name>/<part>/images``, ``.../patients`` and ``.../hash``."""
    values = {}
    for row in pd.read_csv(read.folder / "tables" / f"{NAME}.csv").itertuples():
        key = f"split/{row.split}/{row.part}"
        values[f"{key}/images"], values[f"{key}/patients"] = f"{row.images:,}", f"{row.patients:,}"
        values[f"{key}/hash"] = str(row.sha256)[:_SHOWN_DIGITS]
    return values
