"""The ledger: one computed verdict per claim. The file's own ``verdict`` is only compared, never shown.

How a verdict follows. The computation agrees with what is stated, within the tolerance: **confirmed**;
but **stale** if it agrees at the prices of its date and not at today's. It disagrees: **inconsistent**
if every input is from the claim's own text, else **contradicted**. No evidence: **not testable here**.
Our own claims **follow** or **do not follow**, at the inputs they name.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from cxrbench.claims.evidence import OWN, Context, NotHere, Value, show
from cxrbench.claims.formula import FormulaError, Range
from cxrbench.claims.model import OURS, Check, Claim, Claims, Stated
from cxrbench.errors import UserError

CONFIRMED, CONTRADICTED, INCONSISTENT = "confirmed", "contradicted", "inconsistent"
STALE, NOT_TESTABLE = "stale", "not testable here"
FOLLOWS, DOES_NOT_FOLLOW = "follows", "does not follow"
VERDICTS = (CONFIRMED, CONTRADICTED, INCONSISTENT, STALE, NOT_TESTABLE, FOLLOWS, DOES_NOT_FOLLOW)
LEDGER_COLUMNS = (
    "id", "source", "where", "says", "stated", "computed_low", "computed_high", "now_low", "now_high", "unit",
    "tolerance", "verdict", "reviewed", "why", "inputs", "note", "striking",
)  # fmt: skip


def check_claims(claims: Claims, context: Context) -> pd.DataFrame:
    """One row per claim (:data:`LEDGER_COLUMNS`), in the file's order.

    ``computed_*`` is the computation at the date of the claim, ``now_*`` at today's prices, NaN where
    there is none; equal ends are a single value. UserError with file, line and column when a formula
    fails on its inputs.
    """
    return pd.DataFrame([_row(claim, context) for claim in claims.claims], columns=list(LEDGER_COLUMNS))


def broken(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows of our own claims that no longer follow from the evidence."""
    return ledger[ledger["verdict"] == DOES_NOT_FOLLOW]


def drifted(ledger: pd.DataFrame) -> pd.DataFrame:
    """The rows whose verdict is not the one that the last review of the claims file saw."""
    return ledger[(ledger["reviewed"] != "") & (ledger["reviewed"] != ledger["verdict"])]


def _row(claim: Claim, context: Context) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(LEDGER_COLUMNS, "")
    row |= {key: getattr(claim, key) for key in ("id", "source", "where", "says", "unit", "note", "striking")}
    row |= dict.fromkeys(("computed_low", "computed_high", "now_low", "now_high", "tolerance"), float("nan"))
    row["reviewed"] = _reviewed(claim)
    check = claim.check
    if check is None:
        return row | {"verdict": NOT_TESTABLE, "why": claim.missing}
    row |= {"stated": check.stated.shown, "tolerance": check.tolerance}
    try:
        values = {name: claim.value_of(name, context) for name in claim.inputs}
    except NotHere as error:
        return row | {"verdict": NOT_TESTABLE, "why": str(error)}
    then = _value(claim, check, {name: value.then for name, value in values.items()})
    now = _value(claim, check, {name: value.now for name, value in values.items()})
    verdict = _verdict(claim.source == OURS, check, values, then, now)
    return row | {
        "computed_low": then[0], "computed_high": then[1], "now_low": now[0], "now_high": now[1],
        "verdict": verdict, "why": _why(claim, check, verdict, then, now),
        "inputs": "; ".join(f"{name} = {value.shown}" for name, value in values.items()),
    }  # fmt: skip


def _reviewed(claim: Claim) -> str:
    if claim.verdict and claim.verdict not in VERDICTS:
        raise UserError(
            f"{claim.at['verdict']}: claim {claim.id}: unknown verdict '{claim.verdict}'; "
            f"use one of {', '.join(VERDICTS)}, or none"
        )
    return claim.verdict


def _value(claim: Claim, check: Check, inputs: Mapping[str, float | Range]) -> Range:
    try:
        return check.computation.value(inputs)
    except FormulaError as error:
        raise UserError(
            f"{claim.at['computation']}: claim {claim.id}: computation '{check.computation.text}' fails: "
            f"{error}; correct the formula or its inputs"
        ) from None


def _verdict(ours: bool, check: Check, values: Mapping[str, Value], then: Range, now: Range) -> str:
    agrees = _agrees(then, check.stated, check.tolerance)
    if ours:
        return FOLLOWS if agrees else DOES_NOT_FOLLOW
    if agrees:
        return CONFIRMED if _agrees(now, check.stated, check.tolerance) else STALE
    own = all(value.origin == OWN for value in values.values())
    return INCONSISTENT if own else CONTRADICTED


def _agrees(computed: Range, stated: Stated, tolerance: float) -> bool:
    low, high = computed
    slack = tolerance + 1e-9 * max(abs(low), abs(high))  # decimal fractions are not exact in binary
    if stated.is_range and low != high:
        return abs(low - stated.low) <= slack and abs(high - stated.high) <= slack
    if stated.low == stated.high and low != high:  # one number stated, a range computed: does it hold it?
        return low - slack <= stated.low <= high + slack
    return stated.low - slack <= low and high <= stated.high + slack


def _why(claim: Claim, check: Check, verdict: str, then: Range, now: Range) -> str:
    told = f"{check.computation.text} = {show(then)}"
    if then != now and claim.source != OURS:
        told += f" then, {show(now)} today"
    relation = "as stated" if verdict in (CONFIRMED, FOLLOWS) else "stated"
    return f"{told}; {relation}: {check.stated.shown}{' ' + claim.unit if claim.unit else ''}"
