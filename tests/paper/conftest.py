"""What tests of the paper share: the tables of a build, or made-up ones."""

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from cxrbench.paper.results import Results


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence, as working directory."""
    monkeypatch.chdir(from_evidence)
    return Results.read(Path("results"), Path("results/study.json"), Path("data/recorded"))


def made_up(**given: pd.DataFrame | Path) -> Results:
    """Results with these tables and folders and nothing else."""
    return Results(**dict.fromkeys(field.name for field in fields(Results)) | given)  # type: ignore[arg-type]
