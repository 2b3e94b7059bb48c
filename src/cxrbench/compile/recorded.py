"""Recorded audits: data/recorded/audit/audit.csv, from ``cxrbench audit --record``. Imports no torch."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.compile.facts import facts_of
from cxrbench.evidence.sums import updated_sums
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_csv

FILE = Path("audit/audit.csv")
_TEXTS = dict.fromkeys(("kernels", "torch", "torch_xla", "timm"), str)  # "3" and "2.9" are not numbers here
KEY = ["pixels", "batch", "precision", "architecture"]


def read_audit(recorded: Path) -> pd.DataFrame:
    """Read the table below ``recorded``, one row per network and setting; empty when nothing was recorded."""
    path = recorded / FILE
    if not path.exists():
        return pd.DataFrame(columns=KEY)
    try:
        table = pd.read_csv(path, keep_default_na=False, dtype=_TEXTS)
        for row in table.to_dict("records"):
            facts_of({str(key): value for key, value in row.items()})
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: {error}; restore it with git, or record it again") from None
    if missing := [name for name in KEY if name not in table]:
        raise UserError(f"{path}: columns are missing: {', '.join(missing)}; restore it with git")
    return table


def record_audit(table: pd.DataFrame, recorded: Path) -> Path:
    """Put the rows of ``table`` into the recorded table, in place of equal keys, and update the sums."""
    before = read_audit(recorded)
    if len(before):
        table = pd.concat([before, table]).drop_duplicates(KEY, keep="last")
    with updated_sums(recorded):
        write_csv(recorded / FILE, table.sort_values(KEY, ascending=[False, True, True, True]))
    return recorded / FILE
