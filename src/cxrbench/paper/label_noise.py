"""The table of label noise, and the numbers on it that the prose names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from cxrbench.analysis.label_noise import EXACT, NONE

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

_HEADER = {"sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "kappa": "Kappa"}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is read: counts and ``0.81 (0.77 to 0.85)``, as text."""
    rows = [
        {
            "Adjudicated finding": row["finding"],
            "NIH's labels": _labels(row["nih_labels"], row["relation"]),
            "Adjudicated": f"{row['adjudicated_positive']:,}",
            "NIH": f"{int(row['nih_positive']):,}" if row["nih_labels"] else "",
            **{header: _with_interval(row, name) for name, header in _HEADER.items()},
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def _labels(labels: str, relation: str) -> str:
    if relation == EXACT:
        return labels
    return f"{labels} ({relation})" if labels else relation


def _with_interval(row: dict, name: str) -> str:
    if pd.isna(row[name]):
        return ""
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def typeset(read: Results) -> tuple[pd.DataFrame, str]:
    """Return the paper's table, from ``tables/label_noise.csv``, and its LaTeX preamble."""
    return shown(read_table(read)), "lp{4.5cm}rrllll"


def numbers(read: Results) -> dict[str, str]:
    """Return what the prose may name: ``label noise/<finding>/<measure>``; of two unions the first."""
    table = read_table(read)
    values = {
        "label noise/images": f"{table['images'].iloc[0]:,}",
        "label noise/patients": f"{table['patients'].iloc[0]:,}",
        "label noise/official test": f"{table['official_test_images'].iloc[0]:,}",
    }
    for row in table.drop_duplicates("finding").to_dict("records"):
        key = f"label noise/{row['finding']}"
        values[f"{key}/adjudicated"] = f"{row['adjudicated_positive']:,}"
        if row["relation"] != NONE:
            values |= {f"{key}/{name}": _with_interval(row, name) for name in _HEADER}
            values[f"{key}/nih"] = f"{int(row['nih_positive']):,}"
            values[f"{key}/both"] = f"{int(row['both']):,}"
    return values


def read_table(read: Results) -> pd.DataFrame:
    """Return ``tables/label_noise.csv``."""
    table = pd.read_csv(read.folder / "tables/label_noise.csv", keep_default_na=False, na_values=[""])
    return table.fillna({"nih_labels": ""})
