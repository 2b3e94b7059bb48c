"""Which verdicts on platforms form a family, what was corrected, and which check software alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from cxrbench.analysis.components import ALPHA
from cxrbench.analysis.parity import EVERY, holm
from cxrbench.study.platform_names import ACCELERATED

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

SHOWN = (("macro", "auroc"), ("macro", "f1_macro"), (EVERY, "auroc"))  # (label, metric) of a pair's verdicts


def checks_software(row: Any) -> bool:
    """Whether neither platform of a row of parity.csv is an accelerator: no evidence about hardware."""
    return not {row.platform_a, row.platform_b} & ACCELERATED


def family(parity: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts on pairs of platforms that a table shows, with their p corrected over all of them.

    ``p_family`` is Holm's over the rows, of the test that the verdict stands on: equivalence, else
    difference. Rows that no test was made for are left out.
    """
    shown = pd.MultiIndex.from_frame(parity[["label", "metric"]]).isin(SHOWN)
    rows = parity[(parity["kind"] == "platforms") & shown]
    equivalent = rows["verdict"] == "equivalent"
    alike = equivalent & rows["p_equivalent"].isna()  # the same for every seed and patient
    p = rows["p_equivalent"].mask(alike, 0.0).where(equivalent, rows["p_holm"]).astype(float)
    return rows.assign(p_family=holm(p.to_numpy()))[p.notna()]


def numbers(read: Results) -> dict[str, str]:
    """``parity/<real or phantoms>/family``: a sentence on the family of a table and its correction."""
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
