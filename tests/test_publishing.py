"""What others read with tools: the citation and the archive's description."""

import json
import re
import tomllib

import yaml

from conftest import ROOT
from cxrbench.study.names import find_cells
from cxrbench.study.platforms import ACCELERATED


def test_citation_archive_package_and_paper_say_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["title"] == archive["title"] == package["description"]
    title, subtitle = re.search(
        r"title\}\\else.*\n(.*)\\\\\\large\n(.*)\\fi\}", (ROOT / "paper/main.tex").read_text()
    ).groups()  # type: ignore[union-attr]
    assert f"{title} {subtitle}" == citation["title"]
    accelerated = [cell for cell in find_cells(ROOT / "data/recorded") if cell.platform in ACCELERATED]
    assert not accelerated or "before it is run" not in subtitle, "it has been run: give it another title"
    assert citation["license"] == archive["license"] == package["license"]
    assert [author["name"] for author in citation["authors"]] == [one["name"] for one in archive["creators"]]
    assert set(archive["keywords"]) <= set(citation["keywords"])
