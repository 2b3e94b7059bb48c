"""The paper from recorded evidence: whole, and the same bytes in any folder, locale and time zone."""

import locale
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import ELSEWHERE, FEW_CELLS, build_from_evidence, clone_of_the_tree, keep_recorded, ran
from study.test_build import made

ALSO_MADE = (
    *("results/cells/**/*.*", "results/*.txt", "results/report.html", "results/study.json"),
    *("README.md", "ARTIFACT.md", "docs/practitioner.md", "docs/variance.png"),
)


def a_german_locale() -> str:
    """A locale with a decimal comma and another order of letters, where the machine has one."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        return "C.UTF-8"
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return "de_DE.UTF-8"


@pytest.mark.slow
def test_the_paper_from_all_evidence_has_its_pages_and_references(
    latex: None, from_all_evidence: Path
) -> None:
    """A body of ten pages at most, twenty in all; references hold; no box stands out by more than 2 pt."""
    build_from_evidence(from_all_evidence, "paper/paper.pdf")
    log = (from_all_evidence / "paper/paper.log").read_text()
    pages = re.search(r"^Pages before the appendix: (\d+)$", log, flags=re.M)
    in_all = re.search(r"Output written on main\.pdf \((\d+) pages", log)
    assert pages and int(pages[1]) <= 10, pages
    assert in_all and int(in_all[1]) <= 20, in_all
    warnings = re.findall(r"^(?:LaTeX|Package natbib) Warning: (.*)$", log, flags=re.M)
    assert [text for text in warnings if re.search("undefined|multiply|may have changed", text)] == []
    overfull = re.findall(r"^Overfull .*?\(([\d.]+)pt", log, flags=re.M)
    assert [points for points in overfull if float(points) > 2] == []


def finished(clone: Path, umask: int, cores: int, **environment: str) -> dict[str, bytes]:
    """Every file that a build from recorded evidence makes in ``clone``, in an environment of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    environment = kept | {"PYTHONPATH": str(clone / "src"), "HOME": str(clone.parent)} | environment
    evidence = ("--cores", cores, "--workflow-profile", "none", "--config", "run=[]")
    for words in (
        ("snakemake", "all", "page", *evidence),
        ("cxrbench", "report", "--only", "documents"),
    ):
        done = ran(sys.executable, "-m", *words, cwd=clone, env=environment, umask=umask)
        assert done.returncode == 0, done.stderr[-3000:]
    return made(clone, *ALSO_MADE)


@pytest.mark.slow
def test_two_builds_in_other_folders_locales_and_time_zones_are_the_same_bytes(
    latex: None, from_evidence: Path, tmp_path: Path
) -> None:
    of_the_page = shutil.ignore_patterns("hostile", "unrun", "report.html")
    early = finished(
        shutil.copytree(from_evidence, tmp_path / "here", ignore=of_the_page), 0o022, 2, **ELSEWHERE
    )
    elsewhere = clone_of_the_tree(tmp_path / "in another place, with spaces")
    keep_recorded(elsewhere, *FEW_CELLS)
    (elsewhere / "src/torch.py").write_text("raise SystemExit('torch was imported')\n")
    late = finished(
        elsewhere,
        *(0o077, 1),
        LC_ALL=a_german_locale(),
        TZ="America/St_Johns",
        PYTHONHASHSEED="2",
        USER="two",
        COLUMNS="40",
    )
    assert early.keys() == late.keys() and {"paper/paper.pdf", "results/report.html"} <= early.keys()
    assert [name for name in early if early[name] != late[name]] == []
