"""What tests of the paper share: the tables of a build, or made-up ones."""

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from cxrbench.paper.results import Results
from cxrbench.study.config import Study


def a_paper(folder: Path, source: str, generated: str = "") -> list[str]:
    """Write a paper of these words below ``folder``; return the command that makes out.pdf of it there."""
    for name in ("paper/sections", "generated", "figures"):
        (folder / name).mkdir(parents=True)
    (folder / "paper/main.tex").write_text(source)
    (folder / "generated/macros.tex").write_text(generated)
    where = ["--sources", "paper", "--generated", "generated", "--figures", "figures", "--out", "out.pdf"]
    return ["report", "paper", *where]


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence, as working directory."""
    monkeypatch.chdir(from_evidence)
    return Results.read(Path("results"), Path("results/study.json"), Path("data/recorded"))


def made_up(**given: pd.DataFrame | Path | Study) -> Results:
    """Results with these tables and folders and nothing else."""
    return Results(**dict.fromkeys(field.name for field in fields(Results)) | given)  # type: ignore[arg-type]
