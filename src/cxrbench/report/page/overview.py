"""What the page opens with: how many cells are in which state."""

from __future__ import annotations

from collections import Counter

from cxrbench.report.cells import NOT_RUN, REFUSED
from cxrbench.report.states import State


def counts(states: dict[str, State]) -> dict[str, int]:
    """Cells by kind of state, also where there is none; refused ones are counted only when there are any."""
    known = ("recorded", "fresh", "failed", NOT_RUN, REFUSED)
    kinds = Counter("failed" if state.failed else state.word for state in states.values())
    return {kind: kinds[kind] for kind in known if kinds[kind] or kind != REFUSED}
