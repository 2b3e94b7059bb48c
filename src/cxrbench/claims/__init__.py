"""Claims and verdicts: sentences with a number, ours or somebody else's, tested by computation.

``data/claims.yaml`` holds them as data; :func:`read_claims` checks it, :func:`check_claims` computes the
ledger. No verdict is ever copied from the file.
"""

from cxrbench.claims.evidence import Context, read_context
from cxrbench.claims.file import read_claims
from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.claims.ledger import LEDGER_COLUMNS, VERDICTS, broken, check_claims, drifted
from cxrbench.claims.model import Check, Claim, Claims, Experiment, Source

__all__ = [
    "LEDGER_COLUMNS",
    "VERDICTS",
    "Check",
    "Claim",
    "Claims",
    "Context",
    "Experiment",
    "Formula",
    "FormulaError",
    "Source",
    "broken",
    "check_claims",
    "drifted",
    "read_claims",
    "read_context",
]
