"""The README's generated parts: what a build from evidence prints, the claims map, one figure."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from cxrbench.analysis.evaluation import read_metrics
from cxrbench.paper.artifact import Artifact, map_of_claims
from cxrbench.paper.blocks import renew
from cxrbench.paper.figures import STYLE, auroc_per_label
from cxrbench.paper.summary import summary
from cxrbench.study.files import written_aside


def write_readme(results: Path, readme: Path, figure: Path, made: Artifact) -> None:
    """Put the summary of ``results`` and the claims map into the README, and draw ``figure`` (PNG)."""
    printed = summary(results, Path("paper/paper.pdf")).strip("\n")
    renew(readme, {"summary": f"```text\n{printed}\n```\n", "artifact": map_of_claims(made)})
    metrics, spread = read_metrics(results / "tables/metrics.csv"), pd.read_csv(results / "tables/spread.csv")
    with plt.rc_context(STYLE), written_aside(figure) as aside:
        drawn = auroc_per_label(metrics, spread)
        drawn.savefig(aside, format="png", dpi=150, metadata={"Software": None})
        plt.close(drawn)
