"""The whole ledger of claims as a LaTeX table over several pages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.claims import read_claims
from cxrbench.claims.evidence import show
from cxrbench.files import write_text
from cxrbench.report.latex import HEAD, escape
from cxrbench.report.results import Results, Table

CLAIMS = Path("data/claims.yaml")

_HEADER = "Id & Source & Claim, in our words & Stated & Computed & Verdict"
_COLUMNS = r"@{}llP{5.4cm}P{2.3cm}P{2.5cm}P{1.9cm}@{}"  # P is ragged, see main.tex


def write_ledger(claims: pd.DataFrame, out: Path) -> None:
    """Write ``out``/ledger.tex: every row of claims.csv (read with empty texts, not NaN) as a longtable.

    A value that was computed at its date's prices and differs today is followed by today's.
    """
    lines = [HEAD + rf"\begin{{longtable}}{{{_COLUMNS}}}", rf"\toprule {_HEADER} \\ \midrule \endhead"]
    for row in claims.itertuples():
        cells = [row.id, row.source, row.says, stated(row), computed(row), row.verdict]
        lines.append(" & ".join(escape(cell) for cell in cells) + r" \\")
    lines.append(r"\bottomrule" + "\n" + r"\end{longtable}" + "\n")
    write_text(out / "ledger.tex", "\n".join(lines))


def sources(read: Results) -> Table:
    """Who says what is tested: author, title, place, and what they may gain by it."""
    known = read_claims(CLAIMS).sources
    rows = [
        {
            "Source": key,
            "Author": one.author,
            "Title": one.title,
            "Where": one.where,
            "Interest": one.interest,
        }
        for key, one in known.items()
        if key in set(read.claims["source"])
    ]
    return pd.DataFrame(rows), "lp{3cm}p{5cm}p{3.5cm}p{3cm}"


def stated(row: object) -> str:
    """What the claim in a row of claims.csv states, with its unit when that is short."""
    value, unit = str(row.stated), str(row.unit)  # type: ignore[attr-defined]
    return f"{value} {unit}".strip() if len(unit) <= 10 else value


def computed(row: object) -> str:
    """What was computed for a row of claims.csv; where today's prices change it, today's value follows."""
    then = _range(row.computed_low, row.computed_high)  # type: ignore[attr-defined]
    now = _range(row.now_low, row.now_high)  # type: ignore[attr-defined]
    return then if now == then else f"{then}; now {now}"


def _range(low: object, high: object) -> str:
    if low == "" or pd.isna(low):
        return ""
    return show((_short(float(low)), _short(float(high))))  # type: ignore[arg-type]


def _short(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1e4 else float(round(value))
