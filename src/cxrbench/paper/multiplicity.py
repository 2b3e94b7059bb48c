"""The sentence on a table's family of verdicts and its correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from cxrbench.analysis.components import ALPHA
from cxrbench.analysis.parity import family

if TYPE_CHECKING:
    from cxrbench.paper.results import Results


def numbers(read: Results) -> dict[str, str]:
    """Return ``parity/<real or phantoms>/family``: a sentence on the family of a table and its correction."""
    from cxrbench.paper.results import PHANTOM

    drawn = read.parity["dataset"].str.startswith(PHANTOM)
    parts = {"real": read.parity[~drawn], "phantoms": read.parity[drawn]}
    return {f"parity/{name}/family": _sentence(family(rows)) for name, rows in parts.items()}


def _sentence(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "No verdict was tested."
    pairs = len(rows.drop_duplicates(["dataset", "architecture", "platform_a", "platform_b"]))
    counts = []
    for verdict in ("equivalent", "different"):
        some = rows[rows["verdict"] == verdict]
        if len(some):
            counts.append(f"of {len(some)} {verdict}, {(some['p_family'] < ALPHA).sum()} stay so")
    after = f"corrected over all of them (Holm), {'; '.join(counts)}" if counts else "all are inconclusive"
    return f"The table's verdicts are {len(rows)}, on {pairs} {'pair' if pairs == 1 else 'pairs'}: {after}."
