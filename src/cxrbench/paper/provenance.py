"""What was run and what others report, and which evidence a table row or a figure rests on.

Evidence has short names, valid in one build, that two tables explain: ``e1``, ``e2``, ... are groups of cells
alike in dataset, architecture, platform, status and origin; ``m1``, ``m2``, ... are files of measurements.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.analysis.matrix import NOT_RUN, state_of
from cxrbench.compile.reports import read_reported
from cxrbench.evidence.machine import GROUP, host_in_words, short_processor
from cxrbench.evidence.record import RECORD
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Row, Table, Values, listed
from cxrbench.paper.items import Item, figures, tables
from cxrbench.paper.results import Results, parity_drawn, rows_of
from cxrbench.study.files import sha256_file

COLUMN = "Evidence"  # of a table, or the first text of a row
EXPLAINED = ("cells", "measured")  # where the names lead to
_ALIKE = [*GROUP, "status", "origin"]
_NAME = re.compile(r"\b([em]\d+)\b")
_WHAT = {
    "train": "speed of training",
    "gains": "gains of ways to run a step",
    "steps": "steps on two platforms",
    "xla_ways": "XLA's ways",
    "pack": "speed of packing",
    "audit": "graphs of training steps",
}


def names(cells: pd.DataFrame) -> dict[str, str]:
    """Return cell -> the name of its group, for every cell of cells.csv that has evidence."""
    run = cells[cells["status"] != NOT_RUN]
    numbers = run.groupby(_ALIKE, sort=False).ngroup() + 1
    return {cell: f"e{number}" for cell, number in zip(run["cell"], numbers, strict=True)}


def of_cells(read: Results, cells: Iterable[str]) -> str:
    """Return ``e1, e4``: the names behind ``cells``, in order, each once; empty when none has evidence."""
    known = names(read.cells)
    return ", ".join(sorted({known[cell] for cell in cells if cell in known}, key=lambda name: int(name[1:])))


def of_group(read: Results, *group: str) -> str:
    """Return the names behind dataset, architecture and platform (or the first of these)."""
    return of_cells(read, rows_of(read.ok, *group)["cell"])


def of_files(recorded: Path, name: str, host: str | None = None) -> str:
    """Return ``m1``: the names of the measurement files called ``name`` (of one ``host``)."""
    files = _files(recorded).items()
    return ", ".join(m for m, path in files if path.stem == name and host in (None, path.parent.name))


def _files(recorded: Path) -> dict[str, Path]:
    """Return every file of measurements by its name."""
    paths = sorted([*(recorded / "bench").glob("*/*.json"), *(recorded / "audit").glob("*.csv")])
    return {f"m{number}": path for number, path in enumerate(paths, start=1)}


def linked(table: pd.DataFrame, read: Results, name: str) -> pd.DataFrame:
    """Return LaTeX texts with names of evidence as links, or as the places that links lead to."""
    command = "hypertarget" if name in EXPLAINED else "hyperlink"
    table, below = table.copy(), table.iloc[:, 0] == COLUMN
    if COLUMN in table:
        table[COLUMN] = [_link(text, command) for text in table[COLUMN]]
    table[below] = table[below].map(_link)
    if name == "cells":
        groups = (some for _, some in read.cells.groupby(_ALIKE, sort=False, dropna=False))
        links = (", ".join(map(_record_link, some.itertuples())) for some in groups)
        pairs = zip(links, table["Seeds"], strict=True)
        table["Seeds"] = [link if r"\href" in link else text for link, text in pairs]
    return table


def _link(text: str, command: str = "hyperlink") -> str:
    return _NAME.sub(rf"\\{command}{{\1}}{{\1}}", text)


def _record_link(cell: Any) -> str:
    """Return a seed as a link to its record, relative to the paper."""
    root = {"fresh": "../results/cells", "recorded": "../data/recorded"}.get(str(cell.origin))
    return rf"\href{{{root}/{cell.cell}/{RECORD}}}{{{cell.seed}}}" if root else f"{cell.seed}"


def numbers(read: Results) -> Values:
    """Return links to the evidence of items, ``evidence/<item>``, and speeds that others published,
    ``reported/<network>/<status>``."""
    items = [item for item in (*tables().values(), *figures().values()) if item.evidence]
    links = {f"evidence/{item.name}": _link(behind(item, read)) or r"\emph{none}" for item in items}
    rows = read_reported().dropna(subset="images_per_second").itertuples()
    speeds = {f"reported/{row.architecture}/{row.status}": f"{row.images_per_second:,.0f}" for row in rows}
    return links | speeds


def behind(item: Item, read: Results) -> str:
    """Return the names of the evidence behind a table or figure, as its ``evidence`` says."""
    kind, _, file = item.evidence.partition(" ")
    if kind == "file":
        return of_files(read.recorded, file)
    drawn = parity_drawn(read.parity)
    sides = [drawn.rename(columns={f"platform_{side}": "platform"})[GROUP] for side in "ab"]
    cells = {
        "cells": read.cells,
        "scored": read.ok,
        "first": read.ok[read.ok["dataset"] == read.main()].drop_duplicates(GROUP),
        "compared": read.ok.merge(pd.concat(sides)),
    }
    return of_cells(read, cells[kind]["cell"])


# -- what was run, and what others report ----------------------------------------------------------


def status_matrix(read: Results) -> Table:
    """States of our cells by architecture and platform, then what others report, marked as cited.

    Networks that only others report share a row if they agree; "not run" without a count: none is planned.
    """
    cells, reported, by = read.cells, read_reported(), ["architecture", "platform"]
    states = cells.assign(state=[state_of(row).word for row in cells.itertuples()]).groupby(by)["state"]
    ours = states.agg(lambda some: "; ".join(f"{n} {state}" for state, n in Counter[str](some).items()))
    theirs = reported.groupby(by)["status"].agg(lambda some: f"; {listed(some)} (cited)")
    platforms = list(dict.fromkeys([*cells["platform"], *reported["platform"]]))
    trained = reported.loc[reported["part"] == "training", "architecture"]
    rows = []
    for network in dict.fromkeys([*cells["architecture"], *trained]):
        own = cells.loc[cells["architecture"] == network, "cell"]
        keys = {platform: (network, platform) for platform in platforms}
        texts = {platform: ours.get(key, NOT_RUN) + theirs.get(key, "") for platform, key in keys.items()}
        row = {"Architecture": network, "own": network if len(own) else "", **texts}
        rows.append(row | {COLUMN: of_cells(read, own)})
    known = ["own", *platforms, COLUMN]  # a network of the study has a row of its own
    table = pd.DataFrame(rows).groupby(known, sort=False)["Architecture"].agg(", ".join).reset_index()
    shown = table[["Architecture", *known[1:]]]
    return shown, "l" * len(shown.columns)


def reports(read: Results) -> Table:
    """What others report, with the source of each, and whether we read it ourselves."""
    table = read_reported()
    table["images_per_second"] = [fmt.number(speed, ".10g", "") for speed in table["images_per_second"]]
    stated = ("{target}", "{pixels} px", "batch {batch}", "{precision}", "{version}")
    texts = (fmt.row(row, {form: form for form in stated}).values() for row in table.itertuples())
    table["compiled"] = [", ".join(filter(None, some)) for some in texts]
    shown = ["architecture", "platform", "status", "compiled", "images_per_second", "source", "source_was"]
    table = table[[*shown, "words"]]
    return table.rename(columns=lambda name: fmt.words(name).capitalize()), "llllrlll"


@fmt.table("lllllllll")
def cells_by_status(read: Results) -> Iterator[Row]:
    """The groups of cells that names lead to: status, origin, date, machine and commit."""
    known = names(read.cells)
    for group, some in read.cells.groupby(_ALIKE, sort=False, dropna=False):
        run = (some if group[3] != NOT_RUN else some[:0]).astype({"ended": "string", "commit": "string"})
        yield {
            COLUMN: known.get(some["cell"].iloc[0], "none"),
            **dict(zip(("Dataset", "Architecture", "Platform"), group[:3], strict=True)),
            "Seeds": _in_a_row(some["seed"]),
            "Status": ", ".join(part for part in group[3:] if isinstance(part, str) and part),
            "Run on": listed(run["ended"].str[:10]),
            "Machine": _machines(run),
            "Commit": listed(run["commit"].str[:7]),
        }


def _in_a_row(seeds: pd.Series) -> str:
    """Return ``0 to 17`` for more than three seeds in a row, else every seed."""
    in_a_row = len(seeds) > 3 and seeds.diff().iloc[1:].eq(1).all()
    return f"{seeds.iloc[0]} to {seeds.iloc[-1]}" if in_a_row else listed(seeds)


def _machines(some: pd.DataFrame) -> str:
    """Return the machines of some cells, with their seeds where there are several; then busy seeds."""
    found = {name: _seeds(rows["seed"]) for name, rows in some.groupby("machine", sort=False)}
    texts = (
        short_processor(name) + (f" ({seeds})" if len(found) > 1 else "") for name, seeds in found.items()
    )
    busy = some.loc[some["busy"].astype(str) == "True", "seed"]
    return "; ".join(texts) + (f"; busy: {_seeds(busy)}" if len(busy) else "")


def _seeds(seeds: pd.Series) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)}"


@fmt.table("lllllll")
def measured_files(read: Results) -> Iterator[Row]:
    """Recorded measurements that are no cells: what, where, when, at which commit, and the hash."""
    for name, path in _files(read.recorded).items():
        timed = path.suffix == ".json"
        kept = json.loads(path.read_text(encoding="utf-8")) if timed else []
        table = pd.DataFrame(kept, columns=["measured", "commit"]).astype("string")
        yield {
            COLUMN: name,
            "What": _WHAT.get(path.stem, path.stem),
            "Machine": host_in_words(path.parent.name) if timed else "any: counted, not timed",
            "Measured": listed(table["measured"].str[:10]),
            "Commit": listed(table["commit"].str[:7]),
            "File": path.name,
            "SHA-256": sha256_file(path)[:12],
        }
