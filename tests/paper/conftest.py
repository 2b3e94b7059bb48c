"""What tests of the paper share: the tables of a build, or made-up ones."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.paper.entries import named
from cxrbench.paper.formats import Values
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of
from cxrbench.study.config import Study


def a_paper(folder: Path, source: str, generated: str = "") -> list[str]:
    """Write a paper of these words below ``folder``; return the command that makes out.pdf of it there."""
    for name in ("paper/sections", "generated", "figures"):
        (folder / name).mkdir(parents=True)
    (folder / "paper/main.tex").write_text(source)
    (folder / "generated/macros.tex").write_text(generated)
    return ["report", "--only", "paper", "--generated", "generated", "--paper", "out.pdf"]


@pytest.fixture
def read(from_evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """The tables of a build from recorded evidence, as working directory."""
    monkeypatch.chdir(from_evidence)
    return Results.of_build(Path("results"), Path("results/study.json"), Path("data/recorded"))


def made_up(**given: pd.DataFrame | Path | Study) -> Results:
    """Results with these tables and folders and nothing else; datasets are drawn as their names say."""
    known = {name: drawn_by_name(value) for name, value in given.items()}
    return Results(**dict.fromkeys(field.name for field in fields(Results)) | known)  # type: ignore[arg-type]


def drawn_by_name(value: Any) -> Any:
    """A table of results with the column ``drawn``; anything else as it is."""
    if not isinstance(value, pd.DataFrame) or "drawn" in value or "dataset" not in value:
        return value
    return value.assign(drawn=value["dataset"].astype(str).str.startswith("phantom"))


def named_values(read: Results, *families: str) -> Values:
    """The values that documents name, or those whose keys begin so."""
    keys = [key for key in named(ROOT / "paper") if key.startswith(families or "")]
    return values_of(read, keys)
