"""The claims: the whole ledger over several pages, and tables of verdicts, sources and facts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.claims.file import read_claims
from cxrbench.claims.inputs import show
from cxrbench.claims.ledger import VERDICTS, findings
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Columns, Row, Table
from cxrbench.paper.latex import escape, listing
from cxrbench.paper.results import Results
from cxrbench.study.files import write_text

CLAIMS = Path("data/claims.yaml")


def claims_by_verdict(read: Results) -> Table:
    """How many claims of each source have which verdict, and how many findings against it they are."""
    counts = pd.crosstab(read.claims["source"], read.claims["verdict"])
    counts = counts[[verdict for verdict in VERDICTS if verdict in counts]]
    counts.insert(0, "claims", counts.sum(axis=1))
    counts["findings"] = [findings(read.claims[read.claims["source"] == name]) for name in counts.index]
    shown = counts.astype(str).reset_index().rename(columns={"source": "Source"})
    return shown, "l" + "r" * (len(shown.columns) - 1)


@fmt.table("lllll")
def sources(read: Results) -> Iterator[Row]:
    """Who says what is tested: author, title, place, and what they may gain by it."""
    for key, source in read_claims(CLAIMS).sources.items():
        if key in set(read.claims["source"]):
            yield {"Source": key} | {name.capitalize(): text for name, text in source}


def facts(read: Results) -> Table:
    """Facts that several entries rest on: those entries are one finding."""
    rows = read.claims[read.claims["rests_on"] != ""]
    table = rows.groupby(["rests_on", "fact"], sort=False)["id"].agg(", ".join).reset_index()
    return table.set_axis(["Name", "Fact", "Entries"], axis=1), "lll"


def write_ledger(claims: pd.DataFrame, out: Path) -> None:
    """Write ``out``/ledger.tex: every row of claims.csv (read with empty texts, not NaN) as a longtable."""
    columns: Columns = {
        "Id": "{id}",
        "Source": "{source}",
        "Claim, in our words": claimed,
        "Stated": stated,
        "Computed": computed,
        "Verdict": lambda row: f"{row.verdict}: {row.if_assumed}" if row.if_assumed else row.verdict,
        "Rests on": "{rests_on}",
    }
    table = pd.DataFrame(fmt.rows(claims, columns), columns=list(columns))
    texts = table.map(lambda text: escape(text, longest=400))
    write_text(out / "ledger.tex", listing(texts))


def claimed(row: Any) -> str:
    """Return a claim in our words, and what its test assumes."""
    return f"{row.says} Tested if {row.assumes}." if row.assumes else str(row.says)


def stated(row: Any) -> str:
    """Return what the claim states, with its unit."""
    return f"{row.stated} {row.unit}".strip()


def computed(row: Any) -> str:
    """Return what was computed; where newer prices change it, that value follows."""
    then = _range(row.computed_low, row.computed_high, row.yes_no)
    newest = _range(row.now_low, row.now_high, row.yes_no)
    return then if newest == then else f"{then}; now {newest}"


def _range(low: Any, high: Any, yes_no: bool) -> str:
    return "" if low == "" else show((float(low), float(high)), yes_no, digits=4)
