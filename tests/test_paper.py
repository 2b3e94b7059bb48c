"""The paper's source: no number of its own, every macro defined, text from evidence harmless."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, must_fail, must_work, ran, text_of
from cxrbench.common.files import sha256_file
from cxrbench.paper.formats import Values, escape
from cxrbench.paper.items import figures, keys_of, tables
from cxrbench.paper.latex import macros
from cxrbench.paper.results import Results
from cxrbench.study.config import read_study
from paper.conftest import a_paper, named_values

SOURCES = {
    **{path.name: path.read_text() for path in sorted((ROOT / "paper/sections").glob("*.tex"))},
    **{f"caption of {item.name}": item.caption for item in [*tables().values(), *figures().values()]},
}
# Where digits are no results: keys of values, labels, citations, code, sizes, formulas, the confidence level.
_NO_RESULT = re.compile(
    r"`[^`]*`|\{[a-z][^{} ]*[:/][^{}]*\}|9[05] %"  # of captions: code, values, items
    r"|\\(val|ifany|ifmany|label|autoref|ref|cite|code|url|papertable|paperfigure|input)"
    r"(\[[^\]]*\])?\{[^}]*\}"
    r"|\$[^$]*[_^][^$]*\$"  # a formula
    r"|9[05]\\,\\%|\\begin\{(table|figure)\}\[(htbp|H)\]|ChestX-ray14|F1|resnet18|ResNet-\d+|EfficientNet-Lite0|p4d|A10G|TF32|%.*$"
)


def bare_numbers(text: str) -> list[str]:
    return re.findall(r"\S*\d\S*", "\n".join(_NO_RESULT.sub("", line) for line in text.splitlines()))


@pytest.mark.parametrize("name", SOURCES)
def test_no_number_stands_in_the_source(name: str) -> None:
    assert bare_numbers(SOURCES[name]) == []


@pytest.mark.parametrize("text", ["AUROC is 0.712.", "on $510$ patients", r"\textbf{3} seeds", "95 percent"])
def test_a_number_in_the_source_is_found(text: str) -> None:
    assert bare_numbers(text)


@pytest.fixture(scope="module")
def values(from_evidence: Path) -> Values:
    """The values of the text by their keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(from_evidence)
        return named_values(
            Results.of_build(Path("results"), Path("results/study.json"), Path("data/recorded"))
        )


def chosen_by(values: Values, latex: str) -> str:
    r"""A LaTeX source with the words that its ``\ifany`` and ``\ifmany`` choose."""
    part = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    choice = re.compile(rf"\\if(any|many)\{{([^{{}}]*)\}}{part}{part}")

    def chosen(match: re.Match[str]) -> str:
        kind, key, words, others = match.groups()
        return words if values.get(key, 0) > (kind == "many") else others

    while choice.search(latex):
        latex = choice.sub(chosen, latex)
    return latex


TEN_SEEDS = (
    "arithmetic/",
    "folds/",
    "sources/",
    "power/convnext_pico/",
    "power/resnet18/",
)  # of a setting make these values, or all folds


def test_every_value_in_the_prose_is_defined_by_the_evidence(values: dict[str, str]) -> None:
    text = "\n".join(SOURCES.values())
    used = set(re.findall(r"\\(?:ifany|ifmany)\{([^}]*)\}", text))
    used |= set(re.findall(r"\\val\{([^}]*)\}", chosen_by(values, text)))
    used |= {
        key for name, caption in SOURCES.items() if name.startswith("caption") for key in keys_of(caption)
    }
    undefined = {key for key in used - values.keys() if not key.startswith(TEN_SEEDS)}
    assert not undefined, f"not defined: {sorted(undefined)}"


def test_the_abstract_has_at_most_160_words_12_numbers_and_no_long_sentence(values: dict[str, str]) -> None:
    check_abstract(values)


@pytest.mark.slow
def test_so_has_that_of_all_evidence(from_all_evidence: Path) -> None:
    """Much of it is left out of a small build, which alone was counted: the real one had 199 words."""
    check_abstract(json.loads((from_all_evidence / "results/values.json").read_text(encoding="utf-8")))


def check_abstract(values: dict[str, Any]) -> None:
    chosen = chosen_by(values, SOURCES["abstract.tex"])
    shown = re.sub(r"\\val\{([^}]*)\}", lambda match: str(values.get(match[1], "not run")), chosen)
    _, _, text = re.sub(r"\\(?:code|emph)\{([^{}]*)\}", r"\1", shown).replace("~", " ").partition("noindent")
    text = " ".join(text.replace("%\n", "").replace(r"\end{abstract}", "").split())
    assert 50 < len(text.split()) <= 160, text
    assert max(len(sentence.split()) for sentence in re.split(r"[.?] ", text)) <= 30
    assert len(re.findall(r"(?<![\w.-])[+-]?\d[\d,.]*", text)) <= 12, text


def test_the_method_prints_one_recipe_for_both_sizes_of_the_radiographs() -> None:
    """method.tex names both datasets and prints the values of one; another recipe needs another sentence."""
    named = set(re.findall(r"\\code\{(nih128-\d+px)\}", (ROOT / "paper/sections/method.tex").read_text()))
    study = read_study(ROOT / "config/config.yaml")
    assert len(named) == 2 and len({study.recipe(name).hash() for name in named}) == 1


@pytest.mark.slow
def test_the_order_of_a_day_names_planned_cells() -> None:
    cells = read_study(ROOT / "config/config.yaml").all_cells()
    named = re.findall(r"\\code\{(\w+[^{}]*/[^{}]*)\}", SOURCES["more_data.tex"].replace("\\_", "_"))
    of_cells = [name for name in named if name.count("/") == 1 and name.startswith("nih")]
    assert len(of_cells) == 7
    assert {*of_cells} <= {f"{cell.dataset}/{cell.architecture}" for cell in cells}


def test_the_table_of_cells_names_the_commits_of_all_that_was_scored(from_evidence: Path) -> None:
    rows = pd.read_csv(from_evidence / "results/tables/table_cells.csv", keep_default_na=False)
    cells = pd.read_csv(from_evidence / "results/tables/cells.csv")
    shown = rows.loc[rows["Status"].str.startswith("ok"), "Commit"]
    commits = set(", ".join(shown).split(", "))
    assert commits == set(cells.loc[cells["status"] == "ok", "commit"].str[:7]) and len(commits) > 1


def test_f1_says_which_findings_it_leaves_out(from_evidence: Path, values: dict[str, str]) -> None:
    metrics = pd.read_csv(from_evidence / "results/tables/metrics.csv")
    real = metrics[(metrics["dataset"] == "nih128-64px") & (metrics["metric"] == "f1_macro")]
    (note,) = real.loc[real["split"] == "test", "note"].unique()
    assert "without" in note and values["f1/scope"] == note


@pytest.mark.slow
def test_documents_follow_the_evidence(from_all_evidence: Path) -> None:
    said = must_work("report", "--only", "documents", cwd=from_all_evidence).stderr
    names = re.findall(r"^wrote (.*)$", said, flags=re.M)
    assert {"README.md", "ARTIFACT.md", "docs/practitioner.md"} < {*names}
    for name in names:
        same = (from_all_evidence / name).read_bytes() == (ROOT / name).read_bytes()
        assert same, f"{name}: run make paper-from-evidence and cxrbench report --only documents"


@pytest.mark.slow
def test_every_value_that_a_document_names_is_known(from_all_evidence: Path) -> None:
    """The paper said "not run" in the place of a fraction whose key another key's pattern had taken."""
    named, known = (
        json.loads((from_all_evidence / f"results/{name}.json").read_text(encoding="utf-8"))
        for name in ("named", "values")
    )
    absent = {*named} - {*known}
    assert absent <= {"paper/title", "small/cores", "small/minutes", "small/processors"}, absent


def test_cited_works_are_in_the_bibliography() -> None:
    cited = {
        key
        for text in SOURCES.values()
        for keys in re.findall(r"\\cite\{([^}]*)\}", text)
        for key in keys.split(",")
    }
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper/references.bib").read_text(), flags=re.M))
    assert cited == listed


@settings(max_examples=200)
@given(st.text())
def test_escaped_text_has_no_command_left(text: str) -> None:
    left = re.sub(
        r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}", "", escape(text)
    )
    left = re.sub(r"\\[&%$#_{}]", "", left)
    assert "--" not in escape(text), "the font joins them"
    left = left.replace("-{}", "-")
    assert not set(left) & set("\\&%$#_{}~^<>|\n")


def test_hostile_text_is_typeset_as_it_is(latex: None, tmp_path: Path) -> None:
    hostile = r"\input{/etc/passwd} 50% a_b #1 $x$ ~ ^ <script> | & {" + "x" * 1000
    document = (
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\input{generated/macros}"
        "\\begin{document}\\csname cxr@key\\endcsname\\end{document}"
    )
    said = must_work(*a_paper(tmp_path, document, macros({"key": hostile})), cwd=tmp_path).stderr
    sha = sha256_file(tmp_path / "out.pdf")
    assert re.search(rf"out\.pdf: sha256 {sha}, by pdfTeX [\d.]+ \(.+\)$", said, re.M), said
    text = text_of(tmp_path / "out.pdf")
    assert "\\input{/etc/passwd} 50%" in text and "root:" not in text


def test_a_latex_error_is_named_with_its_line(latex: None, tmp_path: Path) -> None:
    words = a_paper(tmp_path, "\\documentclass{article}\n\\begin{document}\n\\nonsense\n")
    message = must_fail(*words, cwd=tmp_path)
    assert "Undefined control sequence at l.3 \\nonsense" in message and not (tmp_path / "out.pdf").exists()


@pytest.mark.slow
@pytest.mark.fault("LaTeX meets a limit on the size of files (ulimit -f)", "one message that names the limit")
def test_a_limit_that_latex_meets_is_named(latex: None, tmp_path: Path) -> None:
    words = a_paper(tmp_path, "\\documentclass{article}\n\\begin{document}x\\end{document}\n")
    command = shlex.join([sys.executable, "-m", "cxrbench", *map(str, words)])
    uncached = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # Python would leave cut caches of its modules
    done = ran("bash", "-c", f"ulimit -f 4; {command}", cwd=tmp_path, env=uncached)
    assert done.returncode == 1 and not (tmp_path / "out.pdf").exists()
    assert done.stderr.startswith("cxrbench: out.pdf: File too large for a limit on file sizes (ulimit -f)")


def test_missing_latex_is_one_message_with_the_commands(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = must_fail("report", "--only", "paper", cwd=tmp_path)
    for system in ("Debian", "Fedora", "macOS", "conda"):
        assert system in message


def test_a_row_names_its_cells_and_no_other_name_stands_between(from_evidence: Path) -> None:
    for path in sorted((from_evidence / "results/tables").glob("table_*.csv")):
        assert not re.search(r"^[em]\d+(, [em]\d+)*$", path.read_text().replace(",", "\n"), flags=re.M), path
    cells = pd.read_csv(from_evidence / "results/tables/cells.csv")
    for name in ("cost", "cells"):
        table = (from_evidence / f"results/tables/table_{name}.csv").read_text()
        assert all(network in table for network in cells.loc[cells["status"] == "ok", "architecture"]), name
