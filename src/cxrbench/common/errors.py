"""The error of a user's mistake, and what is said of a wrong name.

The room of statistics imports nothing of ours, so most of it stands there.
"""

from collections.abc import Collection

from cxrbench.statistics.errors import UserError as UserError
from cxrbench.statistics.errors import and_more as and_more
from cxrbench.statistics.errors import counted as counted
from cxrbench.statistics.errors import nearest as nearest
from cxrbench.statistics.errors import printable as printable
from cxrbench.statistics.errors import shortened as shortened

_LISTED = 12  # names that a message lists


def suggestion(word: str, names: Collection[str], count: int = 3) -> str:
    """The nearest of ``names``, or the first of them when none is near."""
    listed = list(map(str, names))
    choices = ", ".join(listed[:_LISTED]) + and_more(max(0, len(listed) - _LISTED))
    return nearest(word, names, count) or f"; known: {choices}"
