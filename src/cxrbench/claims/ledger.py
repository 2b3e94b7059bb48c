"""The ledger: one computed verdict per claim. The file's own ``verdict`` is only compared, never shown.

How a verdict follows. The computation agrees with what is stated, within the tolerance: the claim **adds
up** when every input is from its own text, and is **confirmed** when something outside it agrees; **stale**
if it agrees at the prices or documents of its date and not at the newest. It disagrees: **inconsistent** if
every input is from its own text, else **contradicted**. A claim whose test assumes what its source does not
say is **conditional**, and ``if_assumed`` has its verdict under the assumption. No evidence: **not testable
here**. Our own claims **follow** or **do not follow**, at the inputs and the dates of prices that they name.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pandas as pd

from cxrbench.claims.file import OURS, Check, Claim, Claims, Stated
from cxrbench.claims.formula import Ends, FormulaError
from cxrbench.claims.inputs import ClaimBasis, Context, InputValue, NotHere, Undecided, show
from cxrbench.common.errors import UserError
from cxrbench.common.files import read_csv
from cxrbench.cost.prices import read_prices


class ClaimVerdict(StrEnum):
    """What a claim is found to be; the words that people are shown."""

    ADDS_UP = "adds up"
    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    INCONSISTENT = "inconsistent"
    STALE = "stale"
    CONDITIONAL = "conditional"
    NOT_TESTABLE = "not testable here"
    FOLLOWS = "follows"
    DOES_NOT_FOLLOW = "does not follow"


VERDICTS = tuple(ClaimVerdict)
# They speak against a text.
AGAINST = (ClaimVerdict.CONTRADICTED, ClaimVerdict.INCONSISTENT, ClaimVerdict.STALE)
LEDGER_COLUMNS = (
    "id", "source", "where", "says", "stated", "computed_low", "computed_high", "now_low", "now_high", "unit",
    "yes_no", "tolerance", "verdict", "basis", "rests_on", "fact", "assumes", "if_assumed", "reviewed", "why",
    "inputs", "note",
)  # fmt: skip


def read_context(prices: Path | str, tables: Path | str) -> Context:
    """The prices, and the result tables below the folder ``tables`` that have been made."""
    made = {}
    for name in ("metrics", "cost", "cells", "parity", "contrasts", "sources"):
        path = Path(tables) / f"{name}.csv"
        try:
            if path.exists():
                made[name] = _read_metrics(path) if name == "metrics" else read_csv(path)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path}: not a readable table ({error}); delete it and run again") from None
    return Context(read_prices(prices), **made)


def _read_metrics(path: Path) -> pd.DataFrame:
    from cxrbench.results.scoring import read_metrics  # it loads scipy: not for a ledger without scores

    return read_metrics(path)


def check_claims(claims: Claims, context: Context) -> pd.DataFrame:
    """One row per claim (:data:`LEDGER_COLUMNS`), in the file's order.

    ``computed_*`` is the computation at the date of the claim, ``now_*`` at the newest prices, NaN where
    there is none; equal ends are a single value. UserError with file, line and column when a formula
    fails on its inputs.
    """
    rows = [_row(claim, context) | {"fact": claims.facts.get(claim.rests_on, "")} for claim in claims.claims]
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS))


def broken(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows of our own claims that no longer follow from the evidence."""
    return ledger[ledger["verdict"] == ClaimVerdict.DOES_NOT_FOLLOW]


def outdated(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows of our own claims that newer prices than those they name would change."""
    moved = (ledger["computed_low"] != ledger["now_low"]) | (ledger["computed_high"] != ledger["now_high"])
    return ledger[(ledger["source"] == OURS) & ledger["now_low"].notna() & moved]


def against(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows that speak against a text, if only under the assumption of a conditional one."""
    return ledger[ledger["verdict"].isin(AGAINST) | ledger["if_assumed"].isin(AGAINST)]


def drifted(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows whose verdict is not that of the last review of the claims file."""
    return ledger[(ledger["reviewed"] != "") & (ledger["reviewed"] != ledger["verdict"])]


def _row(claim: Claim, context: Context) -> dict[str, object]:
    if claim.verdict and claim.verdict not in VERDICTS:
        choice = f"use one of {', '.join(VERDICTS)}, or none"
        raise claim.wrong(f"unknown verdict '{claim.verdict}'; {choice}", "verdict")
    row: dict[str, object] = dict.fromkeys(LEDGER_COLUMNS, "")
    row |= dict.fromkeys(("computed_low", "computed_high", "now_low", "now_high", "tolerance"), float("nan"))
    copied = ("id", "source", "where", "says", "unit", "note", "rests_on", "assumes")
    row |= {key: getattr(claim, key) for key in copied} | {"reviewed": claim.verdict, "yes_no": False}
    check = claim.check
    if check is None:
        return row | {"verdict": ClaimVerdict.NOT_TESTABLE, "why": f"missing: {claim.missing}"}
    row |= {"stated": check.stated.shown, "tolerance": check.tolerance, "yes_no": check.stated.yes_no}
    try:
        values = {name: _find(claim, name, context) for name in claim.inputs}
    except NotHere as error:
        refuted = claim.source == OURS and isinstance(error, Undecided)  # ours says on which side it lies
        verdict = ClaimVerdict.DOES_NOT_FOLLOW if refuted else ClaimVerdict.NOT_TESTABLE
        return row | {"verdict": verdict, "why": str(error)}
    then = _value(claim, check, {name: value.then for name, value in values.items()})
    now = _value(claim, check, {name: value.now for name, value in values.items()})
    basis = _basis(check, values)
    verdict = _verdict(claim.source == OURS, check, basis, then, now)
    return row | {
        "computed_low": then[0], "computed_high": then[1], "now_low": now[0], "now_high": now[1],
        "verdict": ClaimVerdict.CONDITIONAL if claim.assumes else verdict, "basis": basis,
        "if_assumed": verdict if claim.assumes else "", "why": _why(claim, check, verdict, then, now),
        "inputs": "; ".join(f"{name} = {value.shown}" for name, value in values.items()),
    }  # fmt: skip


def _find(claim: Claim, name: str, context: Context) -> InputValue:
    try:
        return claim.inputs[name].find(context)
    except UserError as error:
        raise claim.wrong(f"input '{name}': {error}", "inputs", name) from None


def _value(claim: Claim, check: Check, inputs: Mapping[str, Ends]) -> Ends:
    try:
        return check.computation.value(inputs)
    except FormulaError as error:
        fault = f"computation '{check.computation.text}' fails: {error}; correct the formula or its inputs"
        raise claim.wrong(fault, "computation") from None


def _basis(check: Check, values: Mapping[str, InputValue]) -> ClaimBasis:
    """The basis farthest from the text; a document where its statement is all that is compared."""
    farthest = max(
        (value.basis for value in values.values()), key=list(ClaimBasis).index, default=ClaimBasis.OWN
    )
    bare = check.computation.text.strip() in values
    return ClaimBasis.DOCUMENT if bare and farthest is ClaimBasis.SOURCE else farthest


def _verdict(ours: bool, check: Check, basis: ClaimBasis, then: Ends, now: Ends) -> ClaimVerdict:
    agrees = _agrees(then, check.stated, check.tolerance)
    if ours:
        return ClaimVerdict.FOLLOWS if agrees else ClaimVerdict.DOES_NOT_FOLLOW
    own = basis is ClaimBasis.OWN
    if not agrees:
        return ClaimVerdict.INCONSISTENT if own else ClaimVerdict.CONTRADICTED
    if not _agrees(now, check.stated, check.tolerance):
        return ClaimVerdict.STALE
    return ClaimVerdict.ADDS_UP if own else ClaimVerdict.CONFIRMED


def _agrees(computed: Ends, stated: Stated, tolerance: float) -> bool:
    low, high = computed
    slack = tolerance + 1e-9 * max(abs(low), abs(high))  # decimal fractions are not exact in binary
    if stated.low != stated.high and stated.is_finite and low != high:
        return abs(low - stated.low) <= slack and abs(high - stated.high) <= slack
    if stated.low == stated.high and low != high:  # one number stated, a range computed
        return low - slack <= stated.low <= high + slack
    return stated.low - slack <= low and high <= stated.high + slack


def _why(claim: Claim, check: Check, verdict: ClaimVerdict, then: Ends, now: Ends) -> str:
    yes_no = check.stated.yes_no
    computed = f"{check.computation.text} = {show(then, yes_no)}"
    if then != now:
        computed += f" then, {show(now, yes_no)} now"
    agreeing = (ClaimVerdict.ADDS_UP, ClaimVerdict.CONFIRMED, ClaimVerdict.FOLLOWS)
    relation = "as stated" if verdict in agreeing else "stated"
    condition = f"if {claim.assumes}, {verdict}: " if claim.assumes else ""
    near = f" ± {check.tolerance:g}" if check.tolerance and claim.source == OURS else ""
    stated = f"{check.stated.shown}{near}"
    return f"{condition}{computed}; {relation}: {stated}{' ' + claim.unit if claim.unit else ''}"
