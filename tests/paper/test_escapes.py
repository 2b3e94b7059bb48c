"""Any text in any document: LaTeX, HTML, CSV, Markdown and the terminal print it and run nothing."""

import csv
import io
import re
import subprocess
import unicodedata
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from conftest import ROOT
from cxrbench.cli.words import in_columns, say
from cxrbench.common.files import read_csv, read_texts, write_csv
from cxrbench.paper.blocks import as_markdown
from cxrbench.paper.formats import escape, latex
from cxrbench.paper.page import visible

OF_CATEGORY: dict[str, list[str]] = defaultdict(list)  # a few characters of each, but halves of pairs
for character in map(chr, (*range(0x3000), *range(0xE000, 0x20000), *range(0xE0000, 0x10FFFF, 997))):
    OF_CATEGORY[unicodedata.category(character)].append(character)
SAMPLES = {name: of[:400:13] for name, of in OF_CATEGORY.items()}
# What once broke a document.
BROKEN = """AMD EPYC \u2603;Mass \u2265 3 cm;x\u2082;\u2153;\u2162;\u2713;\u221e;\u3001;\u2212;e\u0301;\u0661
\uff11;\U0001f600;\u202eabc;<script>alert(1)</script>;=HYPERLINK(1);+cmd|' /C calc'!A0;@SUM(1);-2+3|x;a|b
\\input{/etc/passwd};`x`;$x$;%;\x1b[2J;a\rb""".replace("\n", ";").split(";")
BROKEN.append("a\nb")
TEXTS = st.text(max_size=40) | st.sampled_from(BROKEN)


def test_every_category_of_unicode_is_tried() -> None:
    assert len(SAMPLES) == 29 and all(SAMPLES.values())


@given(TEXTS)
def test_latex_gets_what_it_can_set_and_nothing_that_acts(text: str) -> None:
    made = escape(text)
    assert made.isprintable() and escape(unicodedata.normalize("NFD", text)) == escape(
        unicodedata.normalize("NFC", text)
    )
    plain = re.sub(r"\\(text[a-z]+\{\}|[&%$#_{}])|-\{\}", "", made)
    assert not set(plain) & set("\\{}$&#%_^~<>|")


@pytest.mark.slow
@pytest.mark.fault("names with signs that the paper's fonts lack", "a question mark; the PDF is made")
def test_the_paper_sets_a_text_of_any_category(tmp_path: Path, latex: None) -> None:
    head = (ROOT / "paper/main.tex").read_text().partition("% Floats stay")[0]
    texts = [
        *BROKEN,
        *(f"x{c}y" for of in SAMPLES.values() for c in of),
        *map(chr, range(0xA0, 0x250)),
    ]
    lines = (f"{escape(text)} \\texttt{{{escape(text)}}}\n\n" for text in texts)
    (tmp_path / "any.tex").write_text(f"{head}\\begin{{document}}\n{''.join(lines)}\\end{{document}}\n")
    words = ("pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "any.tex")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")
    assert "root:" not in (tmp_path / "any.log").read_text(errors="replace")


def test_what_the_paper_can_set_is_kept() -> None:
    for text in ("Grün", "Épaisseur", "Łódź", "10 µm ± 2", "x²", "5–7", "“x”", "→"):
        assert escape(text) == text
    assert escape("e\u0301") == "é" and escape("Mass \u2265 3") == "Mass ? 3" and escape("α") == "?"
    assert latex("-3") == "$-$3"


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_csv_gives_every_text_back_and_starts_no_formula(tmp_path_factory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    plain = [text for text in texts if text.isprintable() and text.strip()] or ["=x"]
    write_csv(path, pd.DataFrame({"name": plain, "number": range(len(plain))}))
    back = read_csv(path, dtype={"name": str}, keep_default_na=False, na_values=[])
    assert back["name"].tolist() == plain == [row["name"] for row in read_texts(path)]
    for row in [*csv.reader(io.StringIO(path.read_text()))][1:]:
        assert not re.match(r"[=@\t\r]|[+-].*\|", row[0]), row


def test_numbers_and_dashes_in_a_csv_stay_as_they_are(tmp_path: Path) -> None:
    texts = ["-0.0012 (-0.0034 to +0.0010)", "+1.2 %", "-", "", "- none", "it's", "'quoted'"]
    write_csv(tmp_path / "t.csv", pd.DataFrame({"a": texts, "b": [1, None, 2, 3, 4, 5, "x"]}))
    assert [row["a"] for row in csv.DictReader((tmp_path / "t.csv").open())] == texts
    assert [row["b"] for row in read_texts(tmp_path / "t.csv")] == ["1", "", "2", "3", "4", "5", "x"]
    write_csv(tmp_path / "t.csv", pd.DataFrame({"a": ["x\u202ey"]}))
    assert (tmp_path / "t.csv").read_text() == "a\nx\\u202ey\n"


@given(TEXTS)
def test_markdown_is_one_row_without_markup(text: str) -> None:
    made = as_markdown(pd.DataFrame({"head": [text], "other": ["x"]}))
    lines = made.strip("\n").split("\n")
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert not re.search(r"<[A-Za-z/!?]", made)
    assert len(re.findall(r"(?<!\\)\|", lines[2])) >= 3


@given(TEXTS)
def test_html_shows_text_and_no_element(text: str) -> None:
    page = Environment(autoescape=True, finalize=visible).from_string("<p>{{ text }}</p>").render(text=text)
    inner = page.removeprefix("<p>").removesuffix("</p>")
    assert "<" not in inner and all(c.isprintable() or c == "\n" for c in inner)
    assert inner == unicodedata.normalize("NFC", inner)


@given(TEXTS)
def test_the_terminal_is_not_steered(text: str) -> None:
    shown = in_columns(pd.DataFrame({"head": [text, "x"], "n": [1, 2]}))
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_a_message_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2Jb\u202e\nc")
    assert capsys.readouterr().err == "a\\x1b[2Jb\\u202e\nc\n"
