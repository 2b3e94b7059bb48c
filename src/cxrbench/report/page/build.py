"""The page: gathered from what the graph made, rendered, written."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cxrbench.errors import UserError
from cxrbench.expected import read_expected
from cxrbench.files import write_text
from cxrbench.report.cells import NOT_RUN, REFUSED
from cxrbench.report.page import overview, tables
from cxrbench.report.page.cells import CellParts, list_of_cells
from cxrbench.report.page.pictures import paper_pictures
from cxrbench.report.page.text import plain
from cxrbench.report.results import Results
from cxrbench.report.states import matrix, state_of

_TEMPLATES = "templates"


def write_page(results: Path, study: Path, recorded: Path, expected: Path, out: Path) -> None:
    """Write the page about ``study`` from ``results``/tables and ``results``/cells into ``out``.

    The same evidence gives the same bytes. UserError when a table is missing.
    """
    try:
        gathered = _gather(results, study, recorded, expected)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename}: missing; the page shows what a build made: run `make paper-from-evidence`"
        ) from None
    write_text(out, render(gathered))


def _gather(results: Path, study: Path, recorded: Path, expected: Path) -> dict[str, Any]:
    """Everything that the template names."""
    read = Results.read(results, study, recorded)
    cells = pd.read_csv(results / "tables/cells.csv", dtype=str, keep_default_na=False)
    reviewed = read_expected(expected)
    states = {row.cell: state_of(row, reviewed) for row in cells.itertuples()}
    parts = CellParts(results, read.metrics, read.cost)
    ran = [row for row in cells.itertuples() if row.status != NOT_RUN]
    return {
        "study": read.study,
        "datasets": tables.datasets(read.study),
        "counts": overview.counts(states),
        "unexpected": [name for name, state in states.items() if not state.expected],
        "refused": {row.cell: row.failure for row in cells.itertuples() if row.origin == REFUSED},
        "platforms": list(cells["platform"].unique()),
        "matrix": matrix(cells, states),
        "verdicts": tables.verdicts(read.claims),
        "ledger": tables.ledger(read.claims),
        "categories": tables.paper_tables(results / "tables"),
        "figures": paper_pictures(read),
        "cells_list": list_of_cells(cells, states, read.metrics),
        "cells": [parts.of(row, states[row.cell]) for row in ran],
        "with_evidence": {row.cell for row in ran},
    }


def render(gathered: dict[str, Any]) -> str:
    """The page as text: every value visible and escaped, no script or style but the page's own allowed."""
    environment = Environment(
        loader=PackageLoader("cxrbench.report.page", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["names_of_evidence"] = tables.NAMES_OF_EVIDENCE.fullmatch
    style, script = (_own(name) for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return environment.get_template("page.html").render(**gathered, style=style, script=script, policy=policy)


def _own(name: str) -> Markup:
    """A file of this package, which goes into the page as it is."""
    return Markup(resources.files(__package__).joinpath(_TEMPLATES, name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    """``text`` as a source in a Content-Security-Policy (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
