"""The HTML page: answers, figures, tables, claims and the evidence of every cell, in a single file."""

import base64
import hashlib
import math
import re
import shlex
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cxrbench.claims.file import OURS, read_claims
from cxrbench.claims.ledger import VERDICTS
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_text
from cxrbench.evidence.expected import read_expected
from cxrbench.evidence.record import FAILED, LOG, read_record, short_processor
from cxrbench.evidence.store import check_evidence
from cxrbench.paper import formats, items, ledger
from cxrbench.paper.conclusions import Conclusion, conclusions
from cxrbench.paper.entries import named_in_sentences
from cxrbench.paper.formats import Columns, Table, Values, table
from cxrbench.paper.items import as_text, chosen
from cxrbench.paper.page.links import Links, addressed, linked, marked, marked_pieces
from cxrbench.paper.page.pictures import page_figures
from cxrbench.paper.results import CLAIMS, Results, with_interval
from cxrbench.paper.values import values_of
from cxrbench.results.matrix import NOT_RUN, REFUSED, UNEXPECTED, State, matrix, run_and_unrun, state_of
from cxrbench.study.names import Cell

_LONGEST = 2000  # characters of a text
_LOG_LINES, _LOG_WIDTH, _LOG_WINDOW = 40, 400, 1 << 18  # of its end: lines, characters of each, bytes
_STATES = ("Kind", "State", "Status")  # columns that say of a row that it was not run
_COLOURS = {  # of a badge, by what its text starts with; other texts are grey
    "bad": ("contradicted", "inconsistent", "different", REFUSED, *(s.replace("_", " ") for s in FAILED)),
    "good": ("recorded", "fresh", "confirmed", "adds up", "follows", "equivalent"),
    "warn": ("stale", "conditional", "inconclusive"),
}


@dataclass(frozen=True)
class _PageTable:
    """A table with its title and caption."""

    key: str
    title: str
    caption: str
    table: Table

    @property
    def csv(self) -> str:
        """The name of the table of results that has the rows; empty for a part of a record."""
        if self.key.startswith("table_"):
            return self.key
        return {"ledger": "claims", "cells": "cells"}.get(self.key.partition("_")[0], "")

    @property
    def parts(self) -> list["_Part"]:
        """The rows that were run, and those that were not, if there are any."""
        rows, kinds = self.table.rows, self.table.kinds
        unrun = (rows[[name for name in _STATES if name in rows]] == NOT_RUN).any(axis=1)
        return [_Part.of(Table(rows[~unrun], kinds, self.table.foot)), _Part.of(Table(rows[unrun], kinds))]


@dataclass(frozen=True)
class _Part:
    """Some rows of a table; what they all have in common stands beside them."""

    table: Table
    shared: dict[str, str]

    @classmethod
    def of(cls, table: Table) -> "_Part":
        """Take the columns of one value out of ``table``, but for the first."""
        texts = table.texts
        same = [name for name in texts.columns[1:] if len(texts) > 1 and texts[name].nunique() == 1]
        shared = {name: texts[name].iloc[0] for name in same if texts[name].iloc[0]}
        kept = (rows.drop(columns=same, errors="ignore") for rows in (table.rows, table.foot))
        rows, foot = kept
        return cls(Table(rows, table.kinds, foot), shared)

    @property
    def cells(self) -> list[list[tuple[str, float | None]]]:
        """The text of every value, and the number by which it is sorted."""
        rows = self.table.rows
        columns = [
            [
                (formats.text(value, kind), None if side == "l" else formats.first_number(value))
                for value in rows[name]
            ]
            for name, kind, side in ((name, self.table.kind(name), self.table.side(name)) for name in rows)
        ]
        return [list(row) for row in zip(*columns, strict=True)]


def write_page(read: Results, expected: Path, out: Path) -> None:
    """Write the page about what was ``read`` into ``out``; ``expected`` has reviewed outcomes."""
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in read.cells.itertuples()}
    gathered = _verdicts(read, states) | _answers_and_items(read) | _cells_with_evidence(read, states)
    write_text(out, _render(gathered, Links(read, out.parent)))


def _verdicts(read: Results, states: dict[str, State]) -> dict[str, Any]:
    """The status of the cells, what was not expected of it, and the claims, counted and listed."""
    kinds = Counter("failed" if state.failed else state.word for state in states.values())
    verdicts = Counter(read.claims["verdict"])
    run, unrun = run_and_unrun(matrix(read.cells, states))
    return {
        "study": read.study,
        "counted": kinds,
        "unexpected": [name for name, state in states.items() if not state.expected],
        "refused": {row.cell: row.failure for row in read.cells.itertuples() if row.origin == REFUSED},
        "matrix": {"run": run, "unrun": unrun},
        "verdicts": {"all": len(read.claims)}
        | {name: verdicts[name] for name in VERDICTS if name in verdicts},
        "ledgers": [_ledger(source, rows) for source, rows in read.claims.groupby("source", sort=False)],
    }


def _ledger(source: str, claims: pd.DataFrame) -> _PageTable:
    """The claims of a source; the last column opens on demand."""
    columns: Columns = {
        "Id": "id",
        "Verdict": "verdict",
        "Claim, in our words": ("text", ledger.claimed),
        "Stated": ("name", ledger.stated),
        "Computed": ("name", ledger.computed),
        "Where": "where",
        "How": ("text", _how),
    }
    told = read_claims(CLAIMS).sources[source]
    author = "" if told.author == ledger.UNNAMED else f", by {told.author.rstrip('.')}"
    title = "Our own claims" if source == OURS else told.title + author
    return _PageTable(f"ledger_{source}", title, f"Source: {told.where}.", table(claims, columns))


def _how(row: Any) -> str:
    texts = filter(None, (row.why, row.inputs, row.note, row.fact))
    return " ".join(f"{text.rstrip('.')}.".replace("?.", "?") for text in texts)


def _answers_and_items(read: Results) -> dict[str, Any]:
    """The conclusions, each with its figures and tables; and the other figures, and tables by group."""
    values = values_of(read, named_in_sentences())
    printed = marked(values)
    shown, figures_shown = _shown_items(read, "tables"), _shown_items(read, "figures")
    made = {
        name: _PageTable(f"table_{name}", item.title, _caption(item, values, printed), item.make(read))
        for name, item in shown.items()
    }
    captions = {name: _caption(item, values, printed) for name, item in figures_shown.items()}
    drawn = page_figures(read, figures_shown, captions)
    answers = _asked(conclusions(values, printed), read, drawn.keys(), made.keys())
    under = {name for answer in answers for name in answer.tables}
    rest = [name for name in made if name not in under]
    under = {name for answer in answers for name in answer.figures}
    return {
        "answers": answers,
        "made": made,
        "drawn": drawn,
        "groups": {
            group: [made[name] for name in rest if shown[name].group == group]
            for group in dict.fromkeys(shown[name].group for name in rest)
        },
        "figures": [figure for name, figure in drawn.items() if name not in under],
    }


def _asked(
    conclusions: list[Conclusion], read: Results, figures: Container[str], tables: Container[str]
) -> list[Conclusion]:
    """The conclusions with the figures and tables that there are: of an own study those about it, without
    claims."""
    if read.study.own:
        asks = _own_words()["questions"]
        conclusions = [
            replace(conclusion, asks=asks[conclusion.topic], claims=())
            for conclusion in conclusions
            if conclusion.topic in asks
        ]
    return [
        replace(
            conclusion,
            figures=tuple(name for name in conclusion.figures if name in figures),
            tables=tuple(name for name in conclusion.tables if name in tables),
        )
        for conclusion in conclusions
    ]


def _caption(item: items.Item, values: Values, printed: Values) -> str:
    """The caption of an item, chosen by its values, with values as they are ``printed``."""
    return as_text(chosen(item.caption, values), printed)


def _shown_items(read: Results, kind: str) -> dict[str, items.Item]:
    """The tables or the figures by name: all, or those about an own study, with its captions."""
    every = items.tables() if kind == "tables" else items.figures()
    if not read.study.own:
        return every
    captions = _own_words()[kind]
    return {name: replace(item, caption=captions[name]) for name, item in every.items() if name in captions}


def _cells_with_evidence(read: Results, states: dict[str, State]) -> dict[str, Any]:
    """The list of all cells and the evidence of those that have any."""
    aurocs = read.metrics.query("metric == 'auroc' and label == 'macro'")
    scores = {cell: with_interval(rows) for cell, rows in aurocs.groupby("cell")}
    ran = read.cells[read.cells["status"] != NOT_RUN]
    columns: Columns = {
        "Cell": "cell",
        "State": ("name", lambda row: str(states[row.cell])),
        "Ended (UTC)": ("name", lambda row: row.ended[:16] if isinstance(row.ended, str) else ""),
        "Machine": ("name", lambda row: short_processor(row.machine) if isinstance(row.machine, str) else ""),
        "Macro AUROC": ("auroc", lambda row: scores.get(row.cell, "")),
        "Images/s": ("short", lambda row: row.images_per_second or math.nan),  # 0: too short to be timed
        "Command": ("name", lambda row: _again(row.cell, read)),
    }
    caption = "Every cell of the study, with 95 % intervals over patients."
    return {
        "cells_list": _PageTable("cells_list", "All cells", caption, table(read.cells, columns)),
        "cells": [
            _part(row, states[row.cell], read.folder) | {"again": _again(row.cell, read)}
            for row in ran.itertuples()
        ],
        "with_evidence": set(ran["cell"]),
    }


def _again(cell: str, read: Results) -> str:
    """The command that trains a cell again; an own study's cells are not in the repository's."""
    if read.study.own:
        return f"cxrbench train {shlex.quote(cell)} --study {shlex.quote(str(read.folder / 'study.json'))}"
    return f"make cell CELL={shlex.quote(cell)}"


def _part(row: Any, state: State, results: Path) -> dict[str, Any]:
    """The evidence of a row of cells.csv; damaged evidence is named."""
    cell = Cell.parse(row.cell)
    folder, refused = cell.folder(results / "cells"), ""
    try:
        record = check_evidence(folder, cell)
    except UserError as error:
        refused, record = str(error).replace(f"{folder}/", "").replace(str(folder), ""), read_record(folder)
    history = pd.DataFrame([vars(epoch) for epoch in record.history])
    caption = f"Losses and validation AUROC of {cell} by epoch."
    left_out: Any = {"history": True, "dataset": {"positive_images"}, "failure": {"last_lines"}}
    fields = {"evidence": row.origin, **record.model_dump(exclude=left_out)}
    parts = {name: part for name, part in fields.items() if isinstance(part, dict) and part}
    return {
        "name": row.cell,
        "state": state,
        "facts": _known({"run": {name: fields[name] for name in fields if name not in parts}} | parts),
        "history": _PageTable(
            f"history/{cell}", "Epochs", caption, Table(history, dict.fromkeys(history, "measured"))
        ),
        "log": _tail(folder / LOG),
        "refused": refused,
        "last_lines": record.failure.last_lines if record.failure else [],
    }


def _known(facts: Any) -> Any:
    """Facts without those that are absent: no value, and nothing in a list or a group."""
    if not isinstance(facts, dict):
        return facts
    known = {name: _known(value) for name, value in facts.items()}
    return {name: value for name, value in known.items() if value is not None and value not in ("", [], {})}


def _fact_in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_fact_in_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return formats.text(value, "measured") if isinstance(value, float) else str(value)


def _tail(path: Path) -> list[str]:
    """The last lines of a log, each cut after ``_LOG_WIDTH`` characters."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_WINDOW))
        lines = file.read().decode("utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    return [line if len(line) <= _LOG_WIDTH else f"{line[:_LOG_WIDTH]} … [cut]" for line in lines]


def _render(gathered: dict[str, Any], links: Links) -> str:
    """The page: every value visible and escaped, no script or style allowed but the page's own."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"badge": _badge, "linked": partial(_linked, links), "shown": _fact_in_words}
    environment.filters |= {"address": _anchor, "answer": lambda topic: _anchor(topic, "answer").lower()}
    own = resources.files(__package__)
    style, script = (Markup((own / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    unknown = _own_words()["unknown"] if gathered["study"].own else ()
    glossary = [entry for entry in _words()["glossary"] if entry["term"] not in unknown]
    environment.filters["addressed"] = lambda text: addressed(visible(text))
    texts = {"links": links, "style": style, "script": script, "policy": policy, "glossary": glossary}
    return environment.get_template("page.html").render(gathered | texts)


def visible(value: Any) -> Any:
    """``value`` as text without control or bidirectional characters and cut; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … [{len(text) - _LONGEST:,} more characters]"
    text = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "\ufffd" for c in text)


def _badge(state: object) -> Markup:
    """A verdict or state in its colour, with a link to its meaning."""
    text = visible(state)
    colours = (name for name, words in _COLOURS.items() if text.startswith(words))
    colour = "bad" if text.endswith(UNEXPECTED) else next(colours, "none")
    term = next((entry["term"] for entry in _words()["glossary"] if text.startswith(entry["term"])), None)
    if term is None:
        return Markup('<span class="badge {}">{}</span>').format(colour, text)
    return Markup('<a class="badge {}" href="#{}">{}</a>').format(colour, _anchor(term), text)


def _linked(links: Links, text: object, csv: str = "") -> Markup:
    """Link the first use of each term of the glossary to its meaning, addresses to places, and values to the
    tables they are from; others to ``csv``."""
    terms = {form: entry["term"] for entry in _words()["glossary"] for form in entry["forms"]}
    forms, used = "|".join(sorted(terms, key=len, reverse=True)), set()

    def link(match: re.Match[str]) -> str:
        term = terms.get(match[0]) or terms[match[0].lower()]
        if term in used:
            return match[0]
        used.add(term)
        return f'<a href="#{_anchor(term)}">{match[0]}</a>'

    def with_terms(words: str) -> Markup:
        return Markup(re.sub(rf"(?<![\w/-])(?i:{forms})(?![\w/-])", link, str(escape(words))))

    pieces = (
        addressed(visible(piece), with_terms)
        if table is None
        else linked(links.csv(table) if table else csv, visible(piece).replace(" %", "\u00a0%"))
        for table, piece in marked_pieces(str(text))
    )
    return Markup("").join(pieces)


def _anchor(term: str, kind: str = "term") -> str:
    return f"{kind}-{term.replace(' ', '-')}"


@cache
def _words() -> Any:
    return tomllib.loads((resources.files(__package__) / "words.toml").read_text(encoding="utf-8"))


@cache
def _own_words() -> Any:
    return tomllib.loads((resources.files(__package__) / "own.toml").read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    """``text`` as a source of a Content-Security-Policy (W3C CSP3)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
