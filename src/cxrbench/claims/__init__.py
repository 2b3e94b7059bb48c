"""Claims and verdicts: sentences with a number, ours or somebody else's, tested by computation.

``data/claims.yaml`` holds them as data; :func:`read_claims` checks it, :func:`check_claims` computes the
ledger. No verdict is ever copied from the file.
"""

from cxrbench.claims.evidence import Basis, Context, read_context
from cxrbench.claims.file import read_claims
from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.claims.ledger import (
    LEDGER_COLUMNS,
    VERDICTS,
    Verdict,
    broken,
    check_claims,
    drifted,
    findings,
    outdated,
)
from cxrbench.claims.model import Check, Claim, Claims, Experiment, Source

__all__ = [
    "LEDGER_COLUMNS",
    "VERDICTS",
    "Basis",
    "Check",
    "Claim",
    "Claims",
    "Context",
    "Experiment",
    "Formula",
    "FormulaError",
    "Source",
    "Verdict",
    "broken",
    "check_claims",
    "drifted",
    "findings",
    "outdated",
    "read_claims",
    "read_context",
]
