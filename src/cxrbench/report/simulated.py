"""What simulation says of the intervals, for the paper's prose and docs/statistics.md.

``python -m cxrbench.report.simulated RECORDED DOCS`` (`make coverage`) simulates, records and renews DOCS.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from cxrbench.files import write_text
from cxrbench.metrics import coverage
from cxrbench.report.blocks import as_markdown, renewed
from cxrbench.report.results import Results

NOT_SIMULATED = r"\emph{not simulated}"
MANY = 15  # positive patients from which on an interval is to be trusted


def numbers(read: Results) -> dict[str, str]:
    """Coverage of AUROC's intervals (``coverage/...``), over all skills and bands of positive patients."""
    rows = coverage.read_coverage(read.recorded)
    findings = rows[rows["what"] == coverage.FINDING]
    fewest = findings["positive_patients"].str.split().str[0].astype(int)
    chosen = {
        "many": findings[fewest >= MANY],
        "ten": findings[fewest == 10],
        "few": findings[fewest == 2],
        "macro": rows[rows["what"] == coverage.MACRO],
    }
    return {f"coverage/{name}": _percent(some["rate"]) for name, some in chosen.items()}


def blocks(recorded: Path) -> dict[str, str]:
    """The tables of docs/statistics.md, by the names of their places."""
    rows = coverage.read_coverage(recorded)
    shown = rows["rate"].map("{:.1%}".format) + " ± " + rows["monte_carlo_error"].map("{:.1%}".format)
    wide = rows.assign(rate=shown, auroc=rows["auroc"].map("AUROC {}".format)).pivot_table(
        "rate", ["what", "positive_patients"], "auroc", aggfunc="first", sort=False
    )
    table = wide.reset_index().rename(columns={"what": "Interval", "positive_patients": "Positive patients"})
    return {"coverage": as_markdown(table)}


def _percent(rates: pd.Series) -> str:
    if rates.empty:
        return NOT_SIMULATED
    low, high = (rf"\SI{{{100 * rate:.1f}}}{{\percent}}" for rate in (rates.min(), rates.max()))
    return low if low == high else f"{low} to {high}"


def renew(recorded: Path, docs: Path) -> None:
    """Put the recorded tables into the file ``docs``."""
    write_text(docs, renewed(docs.read_text(encoding="utf-8"), blocks(recorded), str(docs)))


if __name__ == "__main__":
    coverage.record(Path(sys.argv[1]))
    renew(Path(sys.argv[1]), Path(sys.argv[2]))
