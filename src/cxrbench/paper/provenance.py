"""Which evidence a table row or a figure stands on, by short names that two tables explain.

``e1``, ``e2``, ... are groups of cells alike in dataset, architecture, platform, status and origin, in the
study's order; ``m1``, ``m2``, ... are files of measurements. A name holds for one build of the paper. In the
PDF each is a link to its row, and the row links to the files themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from cxrbench.analysis.matrix import NOT_RUN
from cxrbench.evidence.machine import short_processor
from cxrbench.evidence.record import RECORD
from cxrbench.paper.items import Item, figures, tables
from cxrbench.paper.results import Results, Table, listed, parity_drawn
from cxrbench.study.files import sha256_file

COLUMN = "Evidence"  # of a table, or the first text of a row
EXPLAINED = ("cells", "measured")  # where the names lead to
_GROUP = ["dataset", "architecture", "platform", "status", "origin"]
_NAMES = re.compile(r"[em]\d+(, [em]\d+)*")
_FROM_PAPER = {"fresh": "../results/cells", "recorded": "../data/recorded"}
_WHAT = {
    "train": "speed of training",
    "gains": "gains of ways to run a step",
    "steps": "steps on two platforms",
    "xla_ways": "XLA's ways",
    "pack": "speed of packing",
    "audit": "graphs of training steps",
}


def names(cells: pd.DataFrame) -> dict[str, str]:
    """Cell -> the name of its group, for every cell of cells.csv that has evidence."""
    run = cells[cells["status"] != NOT_RUN]
    numbered = enumerate((some for _, some in run.groupby(_GROUP, sort=False)), start=1)
    return {cell: f"e{number}" for number, some in numbered for cell in some["cell"]}


def of_cells(read: Results, cells: Iterable[str]) -> str:
    """``e1, e4``: the names behind ``cells``, in order, each once; empty when none has evidence."""
    known = names(read.cells)
    found = {known[cell] for cell in cells if cell in known}
    return ", ".join(sorted(found, key=lambda name: int(name[1:])))


def of_group(read: Results, *group: str) -> str:
    """The names behind dataset, architecture and platform (or the first of these)."""
    keys = ["dataset", "architecture", "platform"][: len(group)]
    same = (read.cells[keys] == group).all(axis=1)
    return of_cells(read, read.cells.loc[same & (read.cells["status"] == "ok"), "cell"])


def of_files(recorded: Path, name: str, host: str | None = None) -> str:
    """``m1``: the names of the measurement files called ``name`` (of one ``host``)."""
    found = [
        f"m{number}"
        for number, path in enumerate(_files(recorded), start=1)
        if path.stem == name and host in (None, path.parent.name)
    ]
    return ", ".join(found)


def cells_by_status(read: Results) -> Table:
    """Cells per group with status, origin, date, device and commit; the rows that names lead to."""
    known = names(read.cells)
    rows = []
    for group, some in read.cells.groupby(_GROUP, sort=False, dropna=False):
        run = group[3] != NOT_RUN
        rows.append(
            {
                COLUMN: known.get(some["cell"].iloc[0], ""),
                "Dataset": group[0],
                "Architecture": group[1],
                "Platform": group[2],
                "Seeds": ", ".join(str(seed) for seed in some["seed"]),
                "Status": ", ".join(part for part in group[3:] if isinstance(part, str) and part),
                "Run on": listed(some["ended"].str[:10]) if run else "",
                "Machine": _machines(some) if run else "",
                "Commit": listed(some["commit"].str[:7]) if run else "",
            }
        )
    return pd.DataFrame(rows), "lllllllp{3cm}l"


def _machines(some: pd.DataFrame) -> str:
    """The machines of some cells, each with the seeds that ran on it where there are several; busy ones."""
    found = {
        machine: ", ".join(str(seed) for seed in rows["seed"])
        for machine, rows in some.groupby("machine", sort=False)
    }
    texts = (
        short_processor(name) + (f" (seeds {seeds})" if len(found) > 1 else "")
        for name, seeds in found.items()
    )
    busy = ", ".join(str(seed) for seed in some.loc[some["busy"].astype(str) == "True", "seed"])
    return "; ".join(texts) + (f"; busy: seeds {busy}" if busy else "")


def measured_files(read: Results) -> Table:
    """Recorded measurements that are not cells: what, where, when, at which commit; and the file's hash."""
    rows = []
    for number, path in enumerate(_files(read.recorded), start=1):
        kept = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else []
        table = pd.DataFrame(kept, columns=["measured", "commit"]).astype("string")
        rows.append(
            {
                COLUMN: f"m{number}",
                "What": _WHAT.get(path.stem, path.stem),
                "Machine": path.parent.name if path.suffix == ".json" else "any: counted, not timed",
                "Measured": listed(table["measured"].str[:10]),
                "Commit": listed(table["commit"].str[:7]),
                "File": path.relative_to(read.recorded).name,
                "SHA-256": sha256_file(path)[:12],
            }
        )
    return pd.DataFrame(rows), "lllllll"


def linked(table: pd.DataFrame, read: Results, name: str) -> pd.DataFrame:
    """``table`` of LaTeX texts with names of evidence as links, or as the places that links lead to."""
    table = table.copy()
    if name in EXPLAINED:
        table[COLUMN] = [rf"\hypertarget{{{one}}}{{{one}}}" if one else "" for one in table[COLUMN]]
        if name == "cells":
            table["Seeds"] = _seeds_with_records(read)
        return table
    if COLUMN in table:
        table[COLUMN] = table[COLUMN].map(_link)
    below = table.iloc[:, 0] == COLUMN
    table[below] = table[below].map(_link)
    return table


def values(read: Results) -> dict[str, str]:
    """``evidence/<name>``: a sentence for the caption of each table and figure that names its evidence."""
    items = [*tables().values(), *figures().values()]
    return {f"evidence/{item.name}": _sentence(behind(item, read)) for item in items if item.evidence}


def behind(item: Item, read: Results) -> str:
    """Return the names of the evidence behind a table or figure, as its ``evidence`` says."""
    kind, _, file = item.evidence.partition(" ")
    if kind == "file":
        return of_files(read.recorded, file)
    ok = read.cells[read.cells["status"] == "ok"]
    of_main = ok[ok["dataset"] == read.main()]
    compared = parity_drawn(read.parity)
    ends = pd.concat(
        [compared.rename(columns={f"platform_{side}": "platform"}) for side in "ab"], ignore_index=True
    )
    cells = {
        "cells": read.cells["cell"],
        "scored": ok["cell"],
        "first": of_main.drop_duplicates(["architecture", "platform"])["cell"],
        "compared": ok.merge(ends[["dataset", "architecture", "platform"]])["cell"],
        "priced": read.cost["cell"],
    }
    return of_cells(read, cells[kind])


def _sentence(found: str) -> str:
    """``Evidence: e1, e2.``, every name a link to the row that says where, when and at which commit."""
    return f"Evidence: {_link(found)}." if found else r"Evidence: \emph{none}."


def _link(text: str) -> str:
    if not _NAMES.fullmatch(text):
        return text
    return ", ".join(rf"\hyperlink{{{name}}}{{{name}}}" for name in text.split(", "))


def _seeds_with_records(read: Results) -> list[str]:
    """The seeds of each row of :func:`cells_by_status`, each a link to its record, beside the paper."""
    rows = []
    for group, some in read.cells.groupby(_GROUP, sort=False, dropna=False):
        root = _FROM_PAPER.get(str(group[4]))
        seeds = [
            rf"\href{{{root}/{cell.cell}/{RECORD}}}{{{cell.seed}}}" if root else f"{cell.seed}"
            for cell in some.itertuples()
        ]
        rows.append(", ".join(seeds))
    return rows


def _files(recorded: Path) -> list[Path]:
    return sorted([*(recorded / "bench").glob("*/*.json"), *(recorded / "audit").glob("*.csv")])
