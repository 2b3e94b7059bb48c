"""Reviewed outcomes: data/expected_status.csv against what happened. Worse and better both fail."""

import fnmatch
from pathlib import Path
from typing import Annotated, ClassVar, get_args

from cxrbench.common.files import write_csv
from cxrbench.common.readers import Row, Text, one_of, read_rows
from cxrbench.evidence.record import Status

EXPECTED = Path("data/expected_status.csv")
NOT_RUN = "not run"  # a status
REFUSED = "refused"  # an origin: recorded evidence that is not used (status 'not run', why in `failure`)


class Expected(Row):
    """A line of the file: the cells that a shell pattern names have this status, and why."""

    KEY: ClassVar = ("cell",)
    cell: Text
    status: Annotated[str, one_of(get_args(Status))]
    reason: str


def read_expected(path: Path) -> list[tuple[str, str, str]]:
    """(cell or shell pattern, status, reason) per line; UserError naming a wrong line."""
    return [(row.cell, row.status, row.reason) for row in read_rows(path, Expected).values()]


def expected_status(cell: str, expected: list[tuple[str, str, str]]) -> str:
    """The status that ``cell`` should have: that of the last line that names it, else 'ok'."""
    named = [status for pattern, status, _ in expected if fnmatch.fnmatchcase(cell, pattern)]
    return named[-1] if named else "ok"


def unexpected(statuses: dict[str, str], expected: list[tuple[str, str, str]]) -> list[str]:
    """A message for each cell whose status is worse or better than expected."""
    messages = []
    for cell, status in statuses.items():
        if (wanted := expected_status(cell, expected)) != status:
            change = "better" if status == "ok" else "worse" if wanted == "ok" else "other"
            messages.append(f"{cell}: {status}, {change} than expected ({wanted})")
    return messages


def accept(path: Path, statuses: dict[str, str], reason: str) -> None:
    """Write what happened into ``path``: a line for each cell that no other line of the file expects so."""
    kept = [line for line in read_expected(path) if line[0] not in statuses]  # in order: the last one decides
    changed = {cell: status for cell, status in statuses.items() if status != expected_status(cell, kept)}
    added = [(cell, status, reason) for cell, status in sorted(changed.items())]
    import pandas as pd  # slow, and nothing else here needs it

    write_csv(path, pd.DataFrame(kept + added, columns=Expected.columns()))
