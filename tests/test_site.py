"""The documentation site: its index, the pages made from code and data, and a strict build."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, ran

SPEC = importlib.util.spec_from_file_location("pages", ROOT / "docs/pages.py")
assert SPEC and SPEC.loader
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)
ENVIRONMENT = Path(os.environ.get("VENV", f"{ROOT}/.venv") + "-docs") / "bin/python"


def test_the_index_lists_every_page_by_reader() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    by_reader = dict(pages.READERS.findall(index))
    assert list(by_reader) == ["Use it", "Check it", "Extend it"]
    listed = {path for body in by_reader.values() for path, _ in pages.LINK.findall(body)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_no_link_leads_to_a_page_that_the_site_lacks(tmp_path: Path) -> None:
    pages.write_pages(tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.md"):
        for path, _ in pages.LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / path).is_file(), f"{page.name} links to {path}"


def test_every_fault_that_a_test_is_marked_with_is_on_the_page(tmp_path: Path) -> None:
    table = pages.faults(ROOT / "tests")
    marked = ran("git", "grep", "-hc", r"pytest\.mark\.fault(", "--", "tests", cwd=ROOT).stdout.split()
    assert 100 < len(table) <= sum(map(int, marked)) and not (table == "").any().any()
    (tmp_path / "area").mkdir()
    (tmp_path / "area/test_x.py").write_text(
        '@pytest.mark.fault("a | b", "one message")\ndef test_x(): ...\n'
    )
    assert r"| area | a \| b | one message | `area/test_x.py` |" in pages.markdown(pages.faults(tmp_path))
    (tmp_path / "area/test_y.py").write_text("pytest.mark.fault(what, outcome)\n")
    with pytest.raises(ValueError, match="malformed"):  # a text that is computed cannot be listed
        pages.faults(tmp_path)


def test_statistics_md_quotes_the_simulated_coverage() -> None:
    """The ranges in the last column of its first table are those of the recorded tables."""
    tables = pages.coverage(ROOT / "data/recorded")
    networks, others = tables["intervals"], tables["means"]
    findings = networks[networks["Interval of"] == "finding"]

    def ends(rows: pd.DataFrame) -> str:
        """The lowest and the highest rate, in whole per cent."""
        rates = rows.astype(str).stack().str.extract(r"^([\d.]+)%")[0].dropna().astype(float)
        low, high = f"{rates.min():.0f}", f"{rates.max():.0f}"
        return f"{low} %" if low == high else f"{low} to {high} %"

    quoted = {}
    for one, few in (
        ("one finding of one network, 15 or more positive patients", False),
        ("the same, 5", True),
    ):
        f1 = others[(others["Metric"] == "F1") & ((others["Positive patients"] == "5 to 14") == few)]
        rows = findings[(findings["Positive patients"] == "5 to 14") == few]
        quoted[one] = [f"AUROC: {ends(rows)}", f"F1: {ends(f1[['one network']])}"]
    macro = others.loc[others["Metric"] == "F1, macro"]
    quoted["one network |"] = [
        f"macro AUROC: in {ends(networks[networks['Interval of'] == 'macro'])} of simulated studies",
        f"macro F1: {ends(macro[['one network']])}",
    ]
    quoted["a setting"] = [f"macro F1: {ends(macro[['mean of three']])}"]
    text = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    for head, rates in quoted.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {head}")]
        for rate in rates:
            assert rate in line.replace("97 to 99 %, and wide", "97 to 99 %"), (head, rate)


def build(source: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    return ran(ENVIRONMENT, "-m", "sphinx", "-W", "-q", "-c", ROOT / "docs", source, out)


@pytest.mark.slow
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="`make docs` makes the environment")
@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("# A page\n\n[A link](missing.md)\n", "cross-reference target not found"),
        ("# A page\n\n[A heading](index.md#missing)\n", "local id not found"),
        ("# A page\n", "document isn't included in any toctree"),
        ("# A page\n\n[A link](index.md#index)\n", ""),
    ],
)
def test_a_strict_build_fails_on_a_broken_link(tmp_path: Path, page: str, complaint: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    listed = "a" if "toctree" not in complaint else ""
    (source / "index.md").write_text(f"# Index\n\n```{{toctree}}\n\n{listed}\n```\n")
    (source / "a.md").write_text(page)
    done = build(source, tmp_path / "out")
    assert (done.returncode == 0) == (complaint == "") and complaint in done.stderr
