"""The HTML page: conclusions, claims, tables, figures and the evidence of every cell, in a single file."""

import base64
import csv
import hashlib
import io
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib as mpl
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cxrbench.analysis.matrix import NOT_RUN, REFUSED, UNEXPECTED, State, matrix, state_of
from cxrbench.claims.ledger import VERDICTS
from cxrbench.evidence.expected import read_expected
from cxrbench.evidence.machine import short_processor
from cxrbench.evidence.record import FAILED, LOG, read_record
from cxrbench.evidence.store import check_evidence
from cxrbench.paper import fmt, items, ledger
from cxrbench.paper.conclusions import conclusions
from cxrbench.paper.figures import drawn_figures
from cxrbench.paper.fmt import Columns
from cxrbench.paper.latex import as_text, read_macros
from cxrbench.paper.results import Results, with_interval
from cxrbench.paper.tables import INTERVAL_OF, PROCESSORS
from cxrbench.study.cells import Cell
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_text

LONGEST = 2000  # characters of a text
LINES, WIDTH, WINDOW = 40, 400, 1 << 18  # of the end of a log: lines, characters of each, bytes
_ONE = r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( k)?"
_NUMBER = re.compile(rf"{_ONE}( (±|to) {_ONE})? ?%?( ?\(.*\))?", flags=re.I)
_BELOW = (INTERVAL_OF, PROCESSORS)  # first texts of rows that explain those above
_NO_NUMBER = ("", "-", "none", "any", "undefined", "unknown", "never")  # beside numbers
_COLOURS = {  # of a badge, by what its text starts with; other texts are grey
    "bad": ("contradicted", "inconsistent", "different", REFUSED, *(s.replace("_", " ") for s in FAILED)),
    "good": ("recorded", "fresh", "confirmed", "adds up", "follows", "equivalent"),
    "warn": ("stale", "conditional", "inconclusive"),
}
# Ids are hashes of the content with a fixed salt, and no date is written: the same bytes every time.
_SVG: Any = {"svg.hashsalt": "cxrbench", "svg.fonttype": "path", "path.simplify_threshold": 0.4}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class PageTable:
    """A table of texts with its title and caption; ``numeric`` columns stand right and sort as numbers."""

    key: str
    title: str
    caption: str
    rows: pd.DataFrame

    @property
    def numeric(self) -> set[str]:
        """The columns in which every text that is not a word for nothing is a number, but for rows below."""
        rows = self.rows[~self.rows.iloc[:, 0].isin(_BELOW)] if len(self.rows.columns) else self.rows
        shown = {name: [text for text in rows[name] if text not in _NO_NUMBER] for name in rows}
        return {name for name, texts in shown.items() if texts and all(map(_NUMBER.fullmatch, texts))}


def write_page(
    results: Path, study: Path, recorded: Path, expected: Path, generated: Path, out: Path
) -> None:
    """Write the page about ``study`` from ``results`` into ``out``. UserError when a table is missing."""
    read, reviewed = Results.read(results, study, recorded), read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in read.cells.itertuples()}
    gathered = _verdicts(read, states) | _items(read, generated) | _cells(read, states)
    write_text(out, _render(gathered))


def _verdicts(read: Results, states: dict[str, State]) -> dict[str, Any]:
    """Return the status of the cells, what was not expected of it, and the claims, counted and listed."""
    kinds = Counter("failed" if state.failed else state.word for state in states.values())
    verdicts = Counter(read.claims["verdict"])
    columns: Columns = {
        "Id": "{id}",
        "Verdict": "{verdict}",
        "Claim, in our words": ledger.claimed,
        "Stated": ledger.stated,
        "Computed": ledger.computed,
        "Source": "{source}, {where}",
        "How": lambda row: " ".join(
            f"{text.rstrip('.')}.".replace("?.", "?")
            for text in filter(None, (row.why, row.inputs, row.note, row.fact))
        ),
    }
    caption = "Verdicts are computed. Where newer prices change a computed value, the new value follows."
    rows = pd.DataFrame(fmt.rows(read.claims, columns))
    always = ("recorded", "fresh", "failed", NOT_RUN)
    return {
        "study": read.study,
        "counted": {kind: kinds[kind] for kind in (*always, REFUSED) if kind in always or kinds[kind]},
        "unexpected": [name for name, state in states.items() if not state.expected],
        "refused": {row.cell: row.failure for row in read.cells.itertuples() if row.origin == REFUSED},
        "matrix": matrix(read.cells, states),
        "verdicts": {"all": len(rows)} | {name: verdicts[name] for name in VERDICTS if name in verdicts},
        "ledger": PageTable("ledger", "Ledger of claims", caption, rows),
    }


def _items(read: Results, generated: Path) -> dict[str, Any]:
    """Return the conclusions, the paper's tables by group, as read from their CSV files, and its figures."""
    values = read_macros(generated / "macros.tex")
    groups: dict[str, list[PageTable]] = {}
    for item in items.tables().values():
        with (read.folder / f"tables/table_{item.name}.csv").open(newline="", encoding="utf-8") as file:
            head, *texts = csv.reader(file)
        rows = pd.DataFrame(texts, columns=head)
        table = PageTable(f"table_{item.name}", item.title, as_text(item.caption, values), rows)
        groups.setdefault(item.group, []).append(table)
    figures = []
    with mpl.rc_context(_SVG):
        for item, figure in drawn_figures(read):
            svg = io.StringIO()
            figure.savefig(svg, format="svg", metadata=_NO_METADATA)
            text = quote(" ".join(svg.getvalue().split()), safe=" !*+,/:;=?@")  # shorter than base64
            uri = Markup("data:image/svg+xml;charset=utf-8," + text)
            size = [round(96 * inches) for inches in figure.get_size_inches()]  # CSS pixels
            figures.append((item, as_text(item.caption, values), uri, size))
    return {"conclusions": conclusions(values), "groups": groups, "figures": figures, "items": items.tables()}


def _cells(read: Results, states: dict[str, State]) -> dict[str, Any]:
    """Return the list of all cells and the evidence of those that have any."""
    aurocs = read.metrics.query("metric == 'auroc' and label == 'macro'")
    scores = {cell: with_interval(rows) for cell, rows in aurocs.groupby("cell")}
    ran = read.cells[read.cells["status"] != NOT_RUN]
    columns: Columns = {
        "Cell": "{cell}",
        "State": lambda row: str(states[row.cell]),
        "Ended (UTC)": "{ended:.16}",
        "Machine": lambda row: short_processor(row.machine) if isinstance(row.machine, str) else "",
        "Macro AUROC": lambda row: scores.get(row.cell, ""),
        "Images/s": "{images_per_second:,.0f}",
        "Command": lambda row: f"make cell CELL={shlex.quote(row.cell)}",
    }
    caption = "Every cell of the study, with 95 % intervals over patients."
    rows = pd.DataFrame(fmt.rows(read.cells, columns))
    return {
        "cells_list": PageTable("cells_list", "All cells", caption, rows),
        "cells": [_part(row, states[row.cell], read.folder) for row in ran.itertuples()],
        "with_evidence": set(ran["cell"]),
    }


def _part(row: Any, state: State, results: Path) -> dict[str, Any]:
    """Return the evidence of a row of cells.csv; damaged evidence is named."""
    cell = Cell.parse(row.cell)
    folder, refused = cell.folder(results / "cells"), ""
    try:
        record = check_evidence(folder, cell)
    except UserError as error:
        refused, record = str(error).replace(f"{folder}/", "").replace(str(folder), ""), read_record(folder)
    history = pd.DataFrame([vars(epoch) for epoch in record.history]).map(_shown)
    caption = f"Losses and validation AUROC of {cell} by epoch."
    left_out: Any = {"history": True, "dataset": {"positive_images"}, "failure": {"last_lines"}}
    fields = {"evidence": row.origin, **record.model_dump(exclude=left_out)}
    parts = {name: part for name, part in fields.items() if isinstance(part, dict) and part}
    return {
        "name": row.cell,
        "state": state,
        "facts": {"run": {name: fields[name] for name in fields if name not in parts}} | parts,
        "history": PageTable(f"history/{cell}", "Epochs", caption, history),
        "log": _tail(folder / LOG),
        "refused": refused,
        "last_lines": record.failure.last_lines if record.failure else [],
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_shown(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return {"None": "none", "True": "yes", "False": "no"}.get(text, text)


def _tail(path: Path) -> list[str]:
    """Return the last lines of a log, each cut after ``WIDTH`` characters."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - WINDOW))
        lines = file.read().decode("utf-8", errors="replace").splitlines()[-LINES:]
    return [line if len(line) <= WIDTH else f"{line[:WIDTH]} … [cut]" for line in lines]


def _render(gathered: dict[str, Any]) -> str:
    """Return the page: every value visible and escaped, no script or style allowed but the page's own."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"badge": _badge, "shown": _shown}
    own = resources.files(__package__)
    style, script = (Markup((own / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    texts = {"style": style, "script": script, "policy": policy}
    return environment.get_template("page.html").render(gathered | texts)


def visible(value: Any) -> Any:
    """Return ``value`` as text without control or bidirectional characters and cut; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … [{len(text) - LONGEST:,} more characters]"
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "\ufffd" for c in text)


def _badge(state: object) -> Markup:
    text = visible(state)
    found = (name for name, words in _COLOURS.items() if text.startswith(words))
    colour = "bad" if text.endswith(UNEXPECTED) else next(found, "none")
    return Markup('<span class="badge {}">{}</span>').format(colour, text)


def _hash(text: str) -> str:
    """Return ``text`` as a source of a Content-Security-Policy (W3C CSP3)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
