"""Which planned cells a machine trains in so many hours: those first that lead to a verdict. No torch.

A verdict on two platforms needs :data:`VERDICT` seeds of one network on each. So seeds of one network come
first, and first of all those networks whose other platform is recorded and whose missing seeds take the
least time. Drawn images come last: they test the way and decide nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping

from cxrbench.evidence.record import Record
from cxrbench.study.config import Study
from cxrbench.study.names import Cell
from cxrbench.training.plan import seconds_of

VERDICT = 3  # seeds, as in cxrbench.statistics.parity
Records = Mapping[Cell, Record]


def minutes_of(cell: Cell, study: Study, records: Records) -> float | None:
    """The time of ``cell`` by runs of its network on its platform, else on any; None: unknown.

    The slowest counts: what took so long on a processor takes an accelerator less.
    """
    epochs = study.recipe(cell.dataset).epochs
    alike = {
        other: run
        for other, run in records.items()
        if (other.dataset, other.architecture) == (cell.dataset, cell.architecture) and run.history
    }
    same_platform = [run for other, run in alike.items() if other.platform == cell.platform]
    return max((seconds_of(run, epochs) / 60 for run in same_platform or alike.values()), default=None)


def in_order(study: Study, records: Records, platform: str) -> list[Cell]:
    """The planned cells of ``platform`` without a record in ``records``, a verdict's soonest first."""
    missing = [cell for cell in study.all_cells() if cell.platform == platform and cell not in records]

    def rank(cell: Cell) -> tuple[bool, bool, bool, float]:
        alike = [o for o in records if (o.dataset, o.architecture) == (cell.dataset, cell.architecture)]
        seeds = Counter(other.platform for other in alike)
        count = seeds.pop(platform, 0)
        minutes = minutes_of(cell, study, records)
        lacking = max(VERDICT - count, 1) * (math.inf if minutes is None else minutes)
        drawn = study.dataset(cell.dataset).source == "phantom"
        return drawn, count >= VERDICT, max(seeds.values(), default=0) < VERDICT, lacking

    return sorted(missing, key=rank)  # stable: in the study's order, seed after seed


def fitting(cells: list[Cell], hours: float, study: Study, records: Records) -> list[Cell]:
    """Those of ``cells`` that fit into ``hours``, in order; where nothing is known, the first one."""
    chosen, left = list[Cell](), 60 * hours
    times = {cell: minutes_of(cell, study, records) for cell in cells}
    if not any(times.values()):
        return cells[:1] if left else []
    for cell, minutes in times.items():
        if minutes is not None and minutes <= left:
            chosen.append(cell)
            left -= minutes
    return chosen
