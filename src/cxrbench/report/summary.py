"""What a person sees at the end of `make paper`: the matrix of cells, headline numbers, the PDF's place."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.report.cells import NOT_RUN
from cxrbench.report.evaluation import read_metrics


def summary(results: Path, paper: Path) -> str:
    """Plain text, at most 100 columns wide."""
    cells = pd.read_csv(results / "tables/cells.csv", keep_default_na=False)
    metrics = read_metrics(results / "tables/metrics.csv")
    lines = ["", "Cells (seeds per state)", _matrix(cells), "", "Test AUROC, mean over 14 findings"]
    macro = metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")]
    for row in macro.itertuples():
        lines.append(
            f"  {row.cell:44} {row.value:.3f}  (95 % over patients {row.ci_low:.3f} to {row.ci_high:.3f})"
        )
    if macro.empty:
        lines.append("  no cell has scores")
    lines += ["", f"Paper: {paper}", f"Tables: {results}/tables (CSV, Markdown)", ""]
    return "\n".join(lines)


def _matrix(cells: pd.DataFrame) -> str:
    cells = cells.assign(state=[_state(row) for row in cells.itertuples()])
    counted = cells.groupby(["dataset", "architecture", "platform"], sort=False)["state"].agg(_count)
    table = counted.unstack("platform", sort=False).fillna("-")
    text: str = table.reset_index().to_string(index=False, justify="left")
    return "\n".join("  " + line for line in text.splitlines())


def _state(row: object) -> str:
    status = row.status  # type: ignore[attr-defined]
    if status in ("ok", NOT_RUN):
        return row.origin if status == "ok" else NOT_RUN  # type: ignore[attr-defined]
    return status.replace("_", " ")


def _count(states: pd.Series) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.value_counts(sort=False).items())
