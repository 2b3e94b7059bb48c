"""Which network trains where: what was run here, what is recorded, what nobody ran, what others report."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from cxrbench.analysis.matrix import NOT_RUN, state_of
from cxrbench.paper.fmt import Table, Values, listed, number, words
from cxrbench.paper.provenance import COLUMN, of_cells
from cxrbench.paper.results import Results
from cxrbench.study.readers import OR_NONE, Row, Text, one_of, read_rows

REPORTED = Path("data/reported.csv")


class Report(StrEnum):
    """What somebody else reports of a network: of its training, or of its forward pass alone."""

    WORKS = "reported to work"
    FAILS = "reported to fail"
    FORWARD = "forward reported to run"  # inference: it says nothing about the training step


class Reported(Row):
    """What a source reports of a network on a platform, with its words."""

    KEY: ClassVar = ("architecture", "platform", "source")
    architecture: Text
    platform: Text
    status: Annotated[str, one_of(tuple(Report))]
    images_per_second: Annotated[Annotated[float, Field(gt=0)] | None, OR_NONE]
    source: Text
    source_was: Annotated[str, one_of(("read", "second hand"))]  # the source itself, or an account of it
    words: Text


def read_reported(path: Path = REPORTED) -> pd.DataFrame:
    """Return public reports, several per network; speeds in images per second, NaN where none is given."""
    rows = [row.model_dump() for row in read_rows(path, Reported).values()]
    return pd.DataFrame(rows, columns=Reported.columns()).astype({"images_per_second": "float64"})


def numbers(read: Results | None = None) -> Values:
    """Return speeds that others published, for the prose: ``reported/<network>/<status>``."""
    rows = read_reported().dropna(subset="images_per_second").itertuples()
    return {f"reported/{row.architecture}/{row.status}": f"{row.images_per_second:,.0f}" for row in rows}


def status_matrix(read: Results) -> Table:
    """States of our cells by architecture and platform, then what others report, marked as cited.

    Networks of others of which the same is known are one row; "not run" without a number is no cell of ours.
    """
    cells, reported = read.cells, read_reported()
    platforms = list(dict.fromkeys([*cells["platform"], *reported["platform"]]))
    trained = reported.loc[reported["status"] != Report.FORWARD, "architecture"]
    rows = []
    for network in dict.fromkeys([*cells["architecture"], *trained]):
        ours, theirs = (some[some["architecture"] == network] for some in (cells, reported))
        shown = {"Architecture": network, "own": network if len(ours) else ""}
        for platform in platforms:
            ran, reports = (some[some["platform"] == platform] for some in (ours, theirs))
            states = Counter(state_of(row).word for row in ran.itertuples())
            entry = [f"{count} {state}" for state, count in states.items()] or [NOT_RUN]
            cited = [f"{listed(reports['status'])} (cited)"] if len(reports) else []
            shown[platform] = "; ".join(entry + cited)
        rows.append(shown | {COLUMN: of_cells(read, ours["cell"])})
    known = ["own", *platforms, COLUMN]  # a network of the study has a row of its own
    table = pd.DataFrame(rows).groupby(known, sort=False)["Architecture"].agg(", ".join).reset_index()
    wide = set(reported["platform"])  # these cells have more words
    widths = ("p{5.6cm}" if platform in wide else "p{2.4cm}" for platform in platforms)
    return table[["Architecture", *known[1:]]], "p{5.4cm}" + "".join(widths) + "l"


def reports(read: Results) -> Table:
    """What others report, with the source of each, and whether we read it ourselves."""
    table = read_reported()
    table["images_per_second"] = [number(speed, ".10g", "") for speed in table["images_per_second"]]
    return table.rename(columns=lambda name: words(name).capitalize()), "lllrp{4.6cm}lp{6cm}"
