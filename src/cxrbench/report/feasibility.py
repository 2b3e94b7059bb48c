"""Which network trains where: what was run here, what is recorded, what nobody ran, what others report."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.report.cells import NOT_RUN
from cxrbench.report.provenance import COLUMN, of_cells
from cxrbench.report.results import Results, Table
from cxrbench.report.states import State, in_words, matrix, tally

REPORTED = Path("data/reported.csv")


def read_reported(path: Path = REPORTED) -> pd.DataFrame:
    """Public reports: architecture, platform, status, source, words; several per network are possible."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def status_matrix(read: Results) -> Table:
    """By architecture and platform: states of our cells, then what others report, marked as cited.

    What nobody ran is "not run": with a number it is that many cells of the study, without one it is in none.
    """
    reported = read_reported()
    platforms = list(dict.fromkeys([*read.cells["platform"], *reported["platform"]]))
    networks = list(dict.fromkeys([*read.cells["architecture"], *reported["architecture"]]))
    ours, rows = matrix(read.cells, in_words(read.cells)), []
    for network in networks:
        shown = {"Architecture": network}
        for platform in platforms:
            entries = (row.platforms.get(platform, {}) for row in ours if row.architecture == network)
            theirs = reported[(reported["architecture"] == network) & (reported["platform"] == platform)]
            shown[platform] = _words(tally(entries), theirs)
        shown[COLUMN] = of_cells(read, read.cells.loc[read.cells["architecture"] == network, "cell"])
        rows.append(shown)
    cited = set(reported["platform"])  # these cells have more words
    widths = ("p{5.2cm}" if platform in cited else "p{3.1cm}" for platform in platforms)
    return pd.DataFrame(rows), "l" + "".join(widths) + "l"


def _words(ours: dict[State, int], theirs: pd.DataFrame) -> str:
    states = [f"{count} {state}" for state, count in ours.items()] or [NOT_RUN]
    return "; ".join([*states, *(f"{status} (cited)" for status in dict.fromkeys(theirs["status"]))])


def reports(read: Results) -> Table:
    """What others report, with the source of each."""
    shown = read_reported().rename(columns=str.capitalize)
    return shown, "lllp{4cm}p{5.5cm}"
