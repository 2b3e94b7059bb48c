"""The whole ledger of claims as a LaTeX table over several pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.claims.inputs import show
from cxrbench.paper.latex import HEAD, escape
from cxrbench.study.files import write_text

CLAIMS = Path("data/claims.yaml")

_HEADER = "Id & Source & Claim, in our words & Stated & Computed & Verdict & Rests on"
_COLUMNS = r"@{}llP{4.4cm}P{2.1cm}P{2.1cm}P{1.7cm}P{1.4cm}@{}"  # P is ragged, see main.tex


def write_ledger(claims: pd.DataFrame, out: Path) -> None:
    """Write ``out``/ledger.tex: every row of claims.csv (read with empty texts, not NaN) as a longtable."""
    lines = [HEAD + rf"\begin{{longtable}}{{{_COLUMNS}}}", rf"\toprule {_HEADER} \\ \midrule \endhead"]
    for row in claims.itertuples():
        cells = [row.id, row.source, claimed(row), stated(row), computed(row), verdict(row), row.rests_on]
        lines.append(" & ".join(escape(cell, longest=400) for cell in cells) + r" \\")
    lines.append(r"\bottomrule" + "\n" + r"\end{longtable}" + "\n")
    write_text(out / "ledger.tex", "\n".join(lines))


def claimed(row: Any) -> str:
    """Return a claim in our words, and what its test assumes."""
    return f"{row.says} Tested if {row.assumes}." if row.assumes else str(row.says)


def verdict(row: Any) -> str:
    """Return the verdict; of a conditional claim also that under its assumption."""
    return f"{row.verdict}: {row.if_assumed}" if row.if_assumed else str(row.verdict)


def stated(row: Any) -> str:
    """Return what the claim states, with its unit when that is short."""
    return f"{row.stated} {row.unit}".strip() if len(row.unit) <= 10 else str(row.stated)


def computed(row: Any) -> str:
    """Return what was computed; where newer prices change it, that value follows."""
    then = _range(row.computed_low, row.computed_high, row.yes_no)
    newest = _range(row.now_low, row.now_high, row.yes_no)
    return then if newest == then else f"{then}; now {newest}"


def _range(low: Any, high: Any, yes_no: bool) -> str:
    missing = low == "" or pd.isna(low)
    return "" if missing else show((_short(float(low)), _short(float(high))), yes_no)


def _short(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1e4 else float(round(value))
