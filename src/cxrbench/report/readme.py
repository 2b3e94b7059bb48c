"""The README's generated parts: what a build from recorded evidence prints, and one figure."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt

from cxrbench.errors import UserError
from cxrbench.files import write_text, written_aside
from cxrbench.report.evaluation import read_metrics
from cxrbench.report.figures import STYLE, auroc_per_label
from cxrbench.report.summary import summary

_BLOCK = re.compile(r"(<!-- begin summary -->\n).*?(<!-- end summary -->)", flags=re.S)


def write_readme(results: Path, readme: Path, figure: Path) -> None:
    """Put the summary of ``results`` between the README's markers and draw ``figure`` (PNG)."""
    text = readme.read_text(encoding="utf-8")
    if not _BLOCK.search(text):
        raise UserError(f"{readme}: the markers <!-- begin summary --> and <!-- end summary --> are missing")
    block = f"```text\n{summary(results, Path('paper/paper.pdf')).strip(chr(10))}\n```\n"
    write_text(readme, _BLOCK.sub(lambda match: match[1] + block + match[2], text))
    with plt.rc_context(STYLE), written_aside(figure) as aside:  # type: ignore[arg-type]
        drawn = auroc_per_label(read_metrics(results / "tables/metrics.csv"))
        drawn.savefig(aside, format="png", dpi=150, metadata={"Software": None})
        plt.close(drawn)
