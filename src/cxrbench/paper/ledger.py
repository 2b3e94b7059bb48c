"""The whole ledger of claims as a LaTeX table over several pages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.claims.file import read_claims
from cxrbench.claims.inputs import show
from cxrbench.paper.latex import HEAD, escape
from cxrbench.paper.results import Results, Table
from cxrbench.study.files import write_text

CLAIMS = Path("data/claims.yaml")

_HEADER = "Id & Source & Claim, in our words & Stated & Computed & Verdict & Rests on"
_COLUMNS = r"@{}llP{4.4cm}P{2.1cm}P{2.1cm}P{1.7cm}P{1.4cm}@{}"  # P is ragged, see main.tex


def write_ledger(claims: pd.DataFrame, out: Path) -> None:
    """Write ``out``/ledger.tex: every row of claims.csv (read with empty texts, not NaN) as a longtable.

    A value that was computed at its date's prices and differs now is followed by that of now.
    """
    lines = [HEAD + rf"\begin{{longtable}}{{{_COLUMNS}}}", rf"\toprule {_HEADER} \\ \midrule \endhead"]
    for row in claims.itertuples():
        cells = [row.id, row.source, claimed(row), stated(row), computed(row), verdict(row), row.rests_on]
        lines.append(" & ".join(escape(cell, longest=400) for cell in cells) + r" \\")
    lines.append(r"\bottomrule" + "\n" + r"\end{longtable}" + "\n")
    write_text(out / "ledger.tex", "\n".join(lines))


def sources(read: Results) -> Table:
    """Who says what is tested: author, title, place, and what they may gain by it."""
    known = read_claims(CLAIMS).sources
    rows = [
        {
            "Source": key,
            "Author": source.author,
            "Title": source.title,
            "Where": source.where,
            "Interest": source.interest,
        }
        for key, source in known.items()
        if key in set(read.claims["source"])
    ]
    return pd.DataFrame(rows), "lp{3cm}p{5cm}p{3.5cm}p{3cm}"


def facts(read: Results) -> Table:
    """Facts that several entries rest on: those entries are one finding."""
    rows = read.claims[read.claims["rests_on"] != ""]
    table = rows.groupby(["rests_on", "fact"], sort=False)["id"].agg(", ".join).reset_index()
    return table.set_axis(["Name", "Fact", "Entries"], axis=1), "lp{9cm}p{4cm}"


def claimed(row: object) -> str:
    """A claim in our words, and what its test assumes."""
    assumes = str(row.assumes)  # type: ignore[attr-defined]
    return f"{row.says} Tested if {assumes}." if assumes else str(row.says)  # type: ignore[attr-defined]


def verdict(row: object) -> str:
    """The verdict; of a conditional claim also the one under its assumption."""
    under = str(row.if_assumed)  # type: ignore[attr-defined]
    return f"{row.verdict}: {under}" if under else str(row.verdict)  # type: ignore[attr-defined]


def stated(row: object) -> str:
    """What the claim in a row of claims.csv states, with its unit when that is short."""
    value, unit = str(row.stated), str(row.unit)  # type: ignore[attr-defined]
    return f"{value} {unit}".strip() if len(unit) <= 10 else value


def computed(row: object) -> str:
    """What was computed for a row of claims.csv; where newer prices change it, that value follows."""
    then = _range(row.computed_low, row.computed_high, row.yes_no)  # type: ignore[attr-defined]
    newest = _range(row.now_low, row.now_high, row.yes_no)  # type: ignore[attr-defined]
    return then if newest == then else f"{then}; now {newest}"


def _range(low: object, high: object, yes_no: bool) -> str:
    if low == "" or pd.isna(low):
        return ""
    return show((_short(float(low)), _short(float(high))), yes_no)  # type: ignore[arg-type]


def _short(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1e4 else float(round(value))
