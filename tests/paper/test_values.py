"""A value exists because a document names it; its key leads to one line of values.toml."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.paper import entries
from cxrbench.paper.entries import entry_of, must_agree, named, named_in_latex
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of

from .conftest import made_up


def test_every_value_is_named_and_every_name_has_a_value() -> None:
    where = named(ROOT / "paper")
    must_agree(where)
    assert len(where) > 200 and {entry_of(key).key for key in where} == {*entries.entries()}


def paper_with(folder: Path, old: str, new: str) -> Path:
    """A copy of the paper's source in which these words were changed."""
    shutil.copytree(ROOT / "paper", folder, ignore=shutil.ignore_patterns("generated"))
    path = folder / "sections/abstract.tex"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return folder


def test_a_name_without_a_value_is_an_error_with_its_place(tmp_path: Path) -> None:
    paper = paper_with(tmp_path / "paper", r"\val{cells/run}", r"\val{cells/ran/here}")
    with pytest.raises(
        UserError, match=re.escape("abstract.tex: there is no value 'cells/ran/here'; give it")
    ):
        must_agree(named(paper))


def test_a_value_that_no_document_names_is_an_error(tmp_path: Path) -> None:
    paper = paper_with(tmp_path / "paper", r"\val{cells/run}", r"% \val{cells/run}" + "\n")
    must_agree(named(paper))  # a conclusion names it too
    where = {key: places for key, places in named(paper).items() if key != "cells/run"}
    with pytest.raises(
        UserError, match=re.escape("values.toml: no document names 'cells/run'; remove the line")
    ):
        must_agree(where)


def test_what_is_commented_out_is_not_named() -> None:
    named_here = named_in_latex("\\val{a/b} 5\\% \\ifany{c}{x}{y} % \\val{d}\n\\ifmany{e f/g}{}{}")
    assert named_here == {"a/b", "c", "e f/g"}
    assert named_in_latex(r"\newcommand{\val}[1]{\csname cxr@#1\endcsname}") == set()


def test_no_key_fits_two_lines_but_its_own(read: Results) -> None:
    """A key with a line of its own may fit one with names in braces as well; others fit one line only."""
    for key in named(ROOT / "paper"):
        fitting = [entry.key for entry in entries.entries().values() if entry.parts_of(key) is not None]
        assert key in fitting or len(fitting) == 1, (key, fitting)


def test_a_build_writes_the_values_key_by_key(from_evidence: Path, monkeypatch) -> None:
    monkeypatch.chdir(from_evidence)
    written = json.loads(Path("results/values.json").read_text())
    read = Results.of_build(Path("results"), Path("results/study.json"), Path("data/recorded"))
    values = values_of(read, named(Path("paper")))
    assert written == {key: one if isinstance(one, int) else str(one) for key, one in values.items()}
    macros = Path("paper/generated/macros.tex").read_text()
    assert sorted(re.findall(r"csname cxr@(.*?)\\endcsname", macros)) == sorted(written)
    assert written["cells/run"] == int((read.cells["status"] != "not run").sum())


def a_line(monkeypatch: pytest.MonkeyPatch, **fields: str) -> Callable[[pd.DataFrame], object]:
    """A function of a table, cells.csv, that returns the value of the only line, ``key``."""
    line = entries.ValueLine("key", table="cells", **fields)
    monkeypatch.setattr(entries, "entries", lambda: {"key": line})
    return lambda cells: values_of(made_up(cells=cells, metrics=NO_SCORES), ["key"]).get("key")


CELLS = pd.DataFrame(
    {"dataset": ["a", "a", "b"], "size": [1.5, 2.5, 2.5], "low": [1, 1, 2], "word": [*"xyz"]}
).assign(many=[3, 9, np.nan])  # how many it takes; of the last, none would do
NO_SCORES = pd.DataFrame(columns=["dataset", "architecture", "platform", "metric", "label"])


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"take": "count"}, "3"),
        ({"rows": "dataset == 'a' and size > 2", "column": "word"}, "y"),
        ({"rows": "size > 2", "column": "size", "kind": "one"}, "2.5"),
        ({"column": "size - low", "take": "range", "kind": "one"}, "0.5 to 1.5"),
        ({"column": "size", "take": "max", "kind": "one"}, "2.5"),
        ({"column": "word", "take": "listed"}, "x, y, z"),
        ({"rows": "size > 9", "column": "word", "empty": "no word"}, "no word"),
        ({"rows": "size > 9", "column": "word"}, "None"),
        ({"rows": "size > 9", "take": "count"}, "0"),
        ({"column": "many", "take": "range", "kind": "count", "none": "none would do"}, "3 or more"),
        ({"column": "many", "take": "power:most"}, "None"),  # so that its \\ifany leaves its sentence out
        ({"rows": "word != 'z'", "column": "many", "take": "power:most"}, "9"),
        (
            {"rows": "word == 'z'", "column": "many", "take": "range", "none": "none would do"},
            "none would do",
        ),
    ],
)
def test_a_line_takes_its_value_from_a_table(monkeypatch, fields: dict[str, str], shown: str) -> None:
    assert str(a_line(monkeypatch, **fields)(CELLS)) == shown


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"column": "word"}, "'key' has 3 rows of different values; say which it takes"),
        ({"rows": "sizes > 2", "take": "count"}, "'key' cannot be read: name 'sizes' is not defined; mend"),
        ({"column": "size +", "take": "max"}, "'key' cannot be read: invalid syntax"),
    ],
)
def test_a_line_that_fits_no_value_is_named(monkeypatch, fields: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"src/cxrbench/paper/values.toml: {said}")):
        a_line(monkeypatch, **fields)(CELLS)
