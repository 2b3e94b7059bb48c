"""Links, commands and files that the documents name exist."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from conftest import ROOT
from cxrbench.cli import app

PAGES = sorted(
    path.relative_to(ROOT)
    for folder in (".", "docs", "config", "data")
    for path in (ROOT / folder).glob("*.md")
    if path.name != "CHANGELOG.md"
)
# Written by builds, downloads and their users.
NOT_COMMITTED = re.compile(r"data/(raw|packed|weights)/|data/recorded/(SHA256SUMS\.sig|compile)")
ADDED = {"src/cxrbench/platforms/cpu_channels_last.py", "src/cxrbench/paper/slowest.py"}  # by adding.md
COMMANDS = get_command(app)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of ``page``."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_and_file_exists(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.M | re.S)
    code = "\n".join([*blocks, *re.findall(r"(?<!`)`([^`]+)`(?!`)", text)])
    for line in re.findall(r"^ *cxrbench ((?:\w[\w-]* ?)+)", code, flags=re.M):
        group = COMMANDS
        for word in line.split():
            if not (known := getattr(group, "commands", None)):
                break
            assert word in known, f"cxrbench {line}"
            group = known[word]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert set(re.findall(r"^ *make ([a-z-]+)", code, flags=re.M)) <= set(targets)
    files = r"^(?:config|data|docs|requirements|src|tests|workflow)/[\w./-]+\.\w+$"
    for name in re.findall(files, code, flags=re.M):
        assert name in ADDED or (ROOT / name).exists() or NOT_COMMITTED.match(name), name


def test_the_readme_says_what_ci_runs_and_the_catalog_finds_a_workflow() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "`.ci/run`" in "".join(readme.splitlines(keepends=True)[:10])
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", readme.lower()))  # the catalog's criteria
    assert (ROOT / "Snakefile").exists() and list((ROOT / "workflow/rules").glob("*.smk"))
    assert (ROOT / ".snakemake-workflow-catalog.yml").exists() and (ROOT / "config/README.md").exists()
