"""The claims: the preprint's and ours one by one, and tables of verdicts, sources and facts."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from cxrbench.claims.file import OURS, read_claims
from cxrbench.claims.inputs import show
from cxrbench.claims.ledger import AGAINST, VERDICTS, against
from cxrbench.paper.formats import Columns, Fields, Range, Table, missing, of_kinds, table
from cxrbench.paper.results import CLAIMS, Results

UNNAMED = "not named"  # an author in claims.yaml
PRINTED = ("preprint", OURS)  # sources whose claims stand in the PDF


def claims_by_verdict(read: Results) -> Table:
    """How many claims of each source, and of all others', have which verdict."""
    ours = read.claims["source"] == OURS
    groups = {name: claims for name, claims in read.claims[~ours].groupby("source")}
    groups |= {"all texts of others": read.claims[~ours], OURS: read.claims[ours]}
    verdicts = [verdict for verdict in VERDICTS if verdict in set(read.claims["verdict"])]
    rows = [
        {"Source": name, "claims": len(claims)}
        | {str(verdict): (claims["verdict"] == verdict).sum() for verdict in verdicts}
        | {"against it": len(against(claims)), "of these, if assumed": len(against_if_assumed(claims))}
        for name, claims in groups.items()
        if len(claims)
    ]
    shown = pd.DataFrame(rows)
    return Table(shown, dict.fromkeys(shown.columns[1:], "plain"))


def against_text(read: Results) -> pd.DataFrame:
    """The claims of others that fail their test."""
    return against(read.claims[read.claims["source"] != OURS])


def against_if_assumed(claims: pd.DataFrame) -> pd.DataFrame:
    """The claims that fail their test only if a text means what the test assumes."""
    rows = against(claims)
    return rows[~rows["verdict"].isin(AGAINST)]


def computed_range(claim: pd.DataFrame) -> Range:
    """What was computed for the claim of a row."""
    return Range(claim["computed_low"].iloc[0], claim["computed_high"].iloc[0])


@of_kinds()
def sources_of_claims(read: Results) -> Iterator[Fields]:
    """Who says what is tested: author, title, place, and what they may gain by it."""
    for key, source in read_claims(CLAIMS).sources.items():
        if key in set(read.claims["source"]):
            yield {"Source": key} | {name.capitalize(): text for name, text in source}


def facts(read: Results) -> Table:
    """Facts that several claims rest on, so that those claims stand or fall together."""
    rows = read.claims[read.claims["rests_on"] != ""]
    joined = rows.groupby(["rests_on", "fact"], sort=False)["id"].agg(", ".join).reset_index()
    return Table(joined.set_axis(["Name", "Fact", "Claims"], axis=1))


def claims_one_by_one(claims: pd.DataFrame) -> Table:
    """The :data:`PRINTED` rows of claims.csv (read with empty texts, not NaN)."""
    columns: Columns = {
        "Id": "id",
        "Claim, in our words": ("text", claimed),
        "Tested as": ("name", stated),
        "Computed": ("name", computed),
        "Verdict": (
            "name",
            lambda row: f"{row.verdict}: {row.if_assumed}" if row.if_assumed else row.verdict,
        ),
    }
    shown = claims[claims["source"].isin(PRINTED)]
    return table(shown.sort_values(["source", "id"], ascending=[False, True]), columns)


def claimed(row: Any) -> str:
    """A claim in our words, and what its test assumes."""
    return f"{row.says} Tested if {row.assumes}." if row.assumes else str(row.says)


def stated(row: Any) -> str:
    """The value that the claim states, with its unit."""
    return f"{row.stated} {row.unit}".strip()


def computed(row: Any) -> str:
    """What was computed; where newer prices change it, that value follows."""
    then = _range_in_words(row.computed_low, row.computed_high, row.yes_no)
    newest = _range_in_words(row.now_low, row.now_high, row.yes_no)
    return then if newest == then else f"{then}; now {newest}"


def _range_in_words(low: float, high: float, yes_no: bool) -> str:
    return "" if missing(low) else show((low, high), yes_no, digits=4)
