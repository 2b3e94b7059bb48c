"""Links, commands and files that the documents name exist."""

import re
from pathlib import Path

import pandas as pd
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
COMMANDS.get_command(None, "")  # of an unknown one all are loaded


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
            if not (commands := getattr(group, "commands", None)):
                break
            assert word in commands, f"cxrbench {line}"
            group = commands[word]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert set(re.findall(r"^ *make ([a-z-]+)", code, flags=re.M)) <= set(targets)
    files = r"^(?:config|data|docs|requirements|src|tests|workflow)/[\w./-]+\.\w+$"
    for name in re.findall(files, code, flags=re.M):
        assert name in ADDED or (ROOT / name).exists() or NOT_COMMITTED.match(name), name


def test_a_page_on_neuron_names_no_package_index_but_neurons_own() -> None:
    """Commands take an index from requirements/, which name Neuron's; others are the user's own choice."""
    option = r"--(?:extra-)?index(?:-url)?[ =]+(\S+)"
    pins = "\n".join(path.read_text() for path in sorted((ROOT / "requirements").glob("*neuron*.txt")))
    assert set(re.findall(option, pins)) == {"https://pip.repos.neuron.amazonaws.com"}
    text = (ROOT / "docs/neuron.md").read_text(encoding="utf-8")
    assert not re.search(rf"{option}|\b[\w.-]*(?:pypi|whl|pip\.repos|pkg)[\w-]*\.[a-z]+/\S*", text)


README = (ROOT / "README.md").read_text(encoding="utf-8")


def sentences(page: str) -> list[str]:
    """The sentences of a page of Markdown: no code blocks, links as their texts, a table's cell ends one."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "\n\n", page, flags=re.M | re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = re.split(r"\n\s*\n|\n(?=[-#|]|\d+\. )|(?<=\S) +\|", text)
    parts = (part for block in blocks for part in re.split(r"(?<=[.?!])\**\s+", " ".join(block.split())))
    return [part.strip("|*# -") for part in parts if re.search(r"\w", part)]


def generated(name: str, page: str = README) -> str:
    return page.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]


def test_the_readme_is_short_and_each_finding_has_at_most_25_words() -> None:
    assert README.count("\n") <= 90 and len(README.split()) <= 800
    findings = [" ".join(item.split()) for item in generated("found").split("\n- ")[1:]]
    assert len(findings) == 4 and "Variance of one score" in findings[0]
    for finding in findings:
        text = re.sub(r"^(- )?\*\*.*?\*\* | \(`table_.*$", "", finding)
        assert len(text.split()) <= 25, text


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_sentence_has_more_than_30_words(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [one for one in sentences(text) if len(one.split()) > 30] == []


def test_two_pages_take_a_gpu_to_a_record_that_is_sent() -> None:
    pages = ((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("cuda", "evidence"))
    assert sum(len(re.findall(r"\S*\w\S*", page)) for page in pages) <= 1100


def test_a_long_sentence_is_found_in_paragraphs_lists_and_tables() -> None:
    long = " ".join(["word"] * 31)
    for page in (f"Short. {long}.", f"- Item.\n- {long}.", f"| a | b |\n|---|---|\n| c | {long} |"):
        assert max(len(one.split()) for one in sentences(page)) == 31
    assert max(len(one.split()) for one in sentences("Ends here. Begins [anew\nhere](x.md).")) == 3
    step = f"1. A step:\n   ```sh\n   {long}\n   ```\n   Its end."
    assert [len(one.split()) for one in sentences(step)] == [1, 2, 2], "code is no sentence and ends one"


def test_the_readme_has_no_number_but_those_that_are_computed() -> None:
    text = re.sub(r"^\| `make.*", "", README.replace(generated("found"), ""), flags=re.M)
    text = re.sub(
        r"`[^`]*`|\]\([^)]*\)|ChestX-ray14|F1|bf16|fp32|Python 3\.9|Python 3\.11|the locked 3\.11"
        r"|up\s+to\s+2\.21|95 % confidence",
        "",
        text,
    )
    assert re.findall(r"\S*\d\S*", text) == []


def test_the_readme_says_what_ci_runs_and_the_catalog_finds_a_workflow() -> None:
    assert "`.ci/run`" in README and "`make test`" in README
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", README.lower()))  # the catalog's criteria
    assert (ROOT / "Snakefile").exists() and list((ROOT / "workflow/rules").glob("*.smk"))
    assert (ROOT / ".snakemake-workflow-catalog.yml").exists() and (ROOT / "config/README.md").exists()


def test_the_page_on_compare_says_how_often_a_loss_was_noticed_in_simulations() -> None:
    rows = pd.read_csv(ROOT / "data/recorded/simulated/comparisons.csv")
    rows = rows[(rows["what"] == "different") & (rows["difference"] == 0.01) & rows["paired"]]
    page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    for patients, words in ((200, "10 paired runs, 200 patients"), (500, "the same, 500 patients")):
        of_size = rows[rows["patients"] == patients].sort_values("runs")
        shown = "{:.0f}, {:.0f} and {:.0f} %".format(*100 * of_size["rate"])
        assert [*of_size["runs"]] == [3, 5, 10] and f"{words} | {shown} |" in page
        assert (of_size["monte_carlo_error"] < 0.03).all()


def test_the_page_on_compare_says_how_often_equal_platforms_were_found_equivalent() -> None:
    rows = pd.read_csv(ROOT / "data/recorded/simulated/comparisons.csv")
    equal = rows[(rows["what"] == "equivalent") & (rows["difference"] == 0)]
    page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    for runs, paired in ((3, True), (5, True), (5, False), (10, True)):
        some = equal[(equal["runs"] == runs) & (equal["paired"] == paired)].sort_values("patients")
        assert [*some["patients"]] == [200, 500, 2000]
        shown = " | ".join(f"{100 * rate:.0f} %" for rate in some["rate"])
        assert f"\n| {runs}, {'paired' if paired else 'unpaired'} | {shown} |\n" in page
