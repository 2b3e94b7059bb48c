"""The README's generated parts: what a build from evidence prints, the claims map, one figure."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from cxrbench.analysis.evaluate import read_metrics
from cxrbench.paper.artifact import Artifact, map_of_claims
from cxrbench.paper.blocks import renewed
from cxrbench.paper.figures import STYLE, auroc_per_label
from cxrbench.paper.summary import summary
from cxrbench.study.files import write_text, written_aside


def write_readme(results: Path, readme: Path, figure: Path, made: Artifact) -> None:
    """Put the summary of ``results`` and the claims map into the README, and draw ``figure`` (PNG)."""
    blocks = {
        "summary": f"```text\n{summary(results, Path('paper/paper.pdf')).strip(chr(10))}\n```\n",
        "artifact": map_of_claims(made),
    }
    write_text(readme, renewed(readme.read_text(encoding="utf-8"), blocks, str(readme)))
    with plt.rc_context(STYLE), written_aside(figure) as aside:  # type: ignore[arg-type]
        spread = pd.read_csv(results / "tables/spread.csv")
        drawn = auroc_per_label(read_metrics(results / "tables/metrics.csv"), spread)
        drawn.savefig(aside, format="png", dpi=150, metadata={"Software": None})
        plt.close(drawn)
