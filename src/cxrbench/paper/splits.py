"""The table of the splits, and the numbers on them that the prose names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

_SHOWN_DIGITS = 16  # of a hash, in print


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is read, without the findings."""
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
    """Return the paper's table, from ``tables/splits.csv``, and its LaTeX preamble."""
    return shown(pd.read_csv(read.folder / "tables/splits.csv")), "llrrl"


def numbers(read: Results) -> dict[str, str]:
    """Return what the prose may name: ``split/<name>/<part>/images``, ``.../patients`` and ``.../hash``."""
    values = {}
    for row in pd.read_csv(read.folder / "tables/splits.csv").itertuples():
        key = f"split/{row.split}/{row.part}"
        values[f"{key}/images"], values[f"{key}/patients"] = f"{row.images:,}", f"{row.patients:,}"
        values[f"{key}/hash"] = str(row.sha256)[:_SHOWN_DIGITS]
    return values
