"""What others read with tools: the citation and the archive's description."""

import json
import tomllib

import yaml

from conftest import ROOT


def test_citation_archive_and_package_say_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["title"] == archive["title"]
    assert citation["license"] == archive["license"] == package["license"]
    assert [author["name"] for author in citation["authors"]] == [one["name"] for one in archive["creators"]]
    assert set(archive["keywords"]) <= set(citation["keywords"])
