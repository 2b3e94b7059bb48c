"""The splits of the whole ChestX-ray14, with a hash of each part: what was trained on can be checked."""

from __future__ import annotations

import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import PUBLISHED, assign_split, part_hash

NAMES = (*PUBLISHED, "seeded-0")


def splits() -> pd.DataFrame:
    """Return one row per split and part: images, patients, images of each finding, sha256 of sorted names.

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
