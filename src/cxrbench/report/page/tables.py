"""The tables of the page: the paper's own, the ledger of claims and the list of cells, as texts."""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.claims.ledger import VERDICTS
from cxrbench.config import Study
from cxrbench.report import provenance
from cxrbench.report.ledger import claimed, computed, stated
from cxrbench.report.paper import TABLES

OTHER = "Other tables"
_NUMBER = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)? ?%?( ?\(.*\))?", flags=re.I)
NAMES_OF_EVIDENCE = re.compile(r"[em]\d+(, [em]\d+)*")  # see cxrbench.report.provenance
_NO_NUMBER = ("", "-", "none", "any", "undefined", "unknown", "never")


@dataclass(frozen=True)
class Column:
    """A column and how it is shown: text, prose (which wraps), number, badge, cell (a link) or command."""

    name: str
    kind: str = "text"


@dataclass(frozen=True)
class PageTable:
    """One table, every value a text."""

    key: str
    title: str
    caption: str
    columns: list[Column]
    rows: list[list[str]]
    filtered: bool = False  # whether it gets a field that hides rows
    foot: list[list[str]] = field(default_factory=list)  # rows that stay below when it is sorted
    explains: bool = False  # whether names of evidence lead to its rows


@cache
def captions() -> dict[str, Any]:
    """captions.toml: titles of tables by category, titles and alternative texts of figures."""
    return tomllib.loads(resources.files(__package__).joinpath("captions.toml").read_text(encoding="utf-8"))


def paper_tables(folder: Path) -> dict[str, list[PageTable]]:
    """Every table of the paper from its CSV in ``folder``, by category; headline tables come first."""
    left = dict.fromkeys(TABLES)
    found: dict[str, list[PageTable]] = {}
    for category, titles in captions()["tables"].items():
        found[category] = [_paper_table(folder, name, title) for name, title in titles.items()]
        left = {name: None for name in left if name not in titles}
    if left:
        found[OTHER] = [_paper_table(folder, name, _title(name)) for name in left]
    return found


def _title(name: str) -> str:
    return name.removeprefix("table_").replace("_", " ").capitalize()


def _paper_table(folder: Path, name: str, title: str) -> PageTable:
    table = read_texts(folder / f"{name}.csv")
    caption = " ".join((inspect.getdoc(TABLES[name]) or "").split())
    return replace(page_table(name, title, caption, table), explains=name in provenance.EXPLAINED)


def read_texts(path: Path) -> pd.DataFrame:
    """A CSV with every value as the text that stands in it; a file without columns gives an empty table."""
    if path.stat().st_size <= 1:
        return pd.DataFrame()
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    unnamed = {name: "" for name in table if name.startswith("Unnamed: ")}  # pandas' word for an empty header
    return table.rename(columns=unnamed)


def page_table(key: str, title: str, caption: str, table: pd.DataFrame, **kinds: str) -> PageTable:
    """A table of texts for the page; a column whose ``kinds`` are not given is a number or a text."""
    rows = [list(row) for row in table.itertuples(index=False)]
    foot = [row for row in rows if row[0] == provenance.COLUMN]
    rows = [row for row in rows if row[0] != provenance.COLUMN]
    columns = [
        Column(name, kinds.get(name) or _kind([row[index] for row in rows]))
        for index, name in enumerate(table.columns)
    ]
    return PageTable(key, title, caption, columns, rows, foot=foot)


def _kind(values: list[str]) -> str:
    told = [value for value in values if value not in _NO_NUMBER]
    return "number" if told and all(_NUMBER.fullmatch(value) for value in told) else "text"


def ledger(claims: pd.DataFrame) -> PageTable:
    """Every row of claims.csv (read with empty texts): verdict, claim, what was computed, and how."""
    rows = [
        {
            "Id": row.id,
            "Verdict": row.verdict,
            "Claim, in our words": claimed(row),
            "Stated": stated(row),
            "Computed": computed(row),
            "Source": f"{row.source}, {row.where}",
            "How": " ".join(_sentence(text) for text in (row.why, row.inputs, row.note, row.fact) if text),
        }
        for row in claims.itertuples()
    ]
    caption = (
        "Every claim with its computed verdict. A value that was computed at its date's prices and differs "
        "now is followed by that of now."
    )
    columns = ["Id", "Verdict", "Claim, in our words", "Stated", "Computed", "Source", "How"]
    kinds = {"Verdict": "badge"} | dict.fromkeys(("Stated", "Computed", "Source"), "prose")
    table = page_table("ledger", "Ledger of claims", caption, pd.DataFrame(rows, columns=columns), **kinds)
    return replace(table, filtered=True)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def verdicts(claims: pd.DataFrame) -> dict[str, int]:
    """How many claims have each verdict, in the order of the words; those that no claim has are left out."""
    found = claims["verdict"].value_counts()
    return {verdict: int(found[verdict]) for verdict in VERDICTS if verdict in found}


def datasets(study: Study) -> PageTable:
    """The datasets of a study, each with the recipe that it is trained with."""
    rows = []
    for name, dataset in study.datasets.items():
        recipe = study.recipe(name)
        rows.append(
            {
                "Dataset": name,
                "Source": dataset.source,
                "Pixels": str(dataset.pixels),
                "Split": getattr(dataset, "split", "its own"),
                "Recipe": dataset.recipe,
                "Epochs": str(recipe.epochs),
                "Batch": str(recipe.batch),
                "Precision": recipe.precision,
                "Hash of the recipe": recipe.hash(),
            }
        )
    caption = "Two cells are compared only when their packed data and their recipe are the same."
    kinds = {"Hash of the recipe": "text"}
    return page_table("datasets", "Datasets", caption, pd.DataFrame(rows), **kinds)
