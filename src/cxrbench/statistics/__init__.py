"""How good scores are and whether they differ, from tables of predictions; needs nothing else of cxrbench.

``from cxrbench.statistics import compare_runs`` compares two sets of runs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cxrbench.statistics.comparison import compare_runs

__all__ = ["compare_runs"]


def __getattr__(name: str) -> Any:
    """What the room offers, loaded when it is asked for: pandas and scipy take a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from cxrbench.statistics import comparison

    return getattr(comparison, name)
