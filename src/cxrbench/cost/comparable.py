"""Which runs of several platforms may be compared: one machine, one load, one origin."""

from __future__ import annotations

import pandas as pd

from cxrbench.evidence.machine import headline, short_processor
from cxrbench.study.platform_names import ACCELERATED, GPU, TRAINIUM


def both_sides(costs: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, str], list[str]]:
    """Return the usable rows of a network on GPU and Trainium, the two platforms, and which has no row."""
    usable = costs[costs["status"] == "ok"]
    there = set(usable["platform"])
    sides = (GPU, next((name for name in TRAINIUM if name in there), TRAINIUM[0]))
    return usable[usable["platform"].isin(sides)], sides, [name for name in sides if name not in there]


def comparable(runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of one data set and network that compare its platforms, and what differs between them.

    Platforms that run on the processor itself are compared on a processor that all of them ran on: quiet
    before busy, recorded before fresh, then where there are most runs. Where they share none, and for
    accelerators, whose host is part of what is bought, each platform's headline stands.
    """
    chosen = runs[headline(runs)]
    hosts = runs[~runs["platform"].isin(ACCELERATED)]
    wanted = set(hosts["platform"])
    groups = hosts.groupby(["busy", "origin", "processor"], sort=False)
    shared = [some for _, some in groups if set(some["platform"]) == wanted]
    if len(wanted) > 1 and shared:
        best = min(shared, key=_rank)
        same = best[headline(best)]  # one software stack per platform
        chosen = pd.concat([same, chosen[chosen["platform"].isin(ACCELERATED)]])
    return chosen, _differences(chosen)


def _rank(runs: pd.DataFrame) -> tuple[bool, bool, int]:
    first = runs.iloc[0]
    return bool(first["busy"]), first["origin"] != "recorded", -len(runs)


def _differences(chosen: pd.DataFrame) -> str:
    """Return what differs between platforms beside the platform, in words; empty: nothing."""
    runs = chosen.drop_duplicates("platform").set_index("platform").sort_index()
    hosts = runs.loc[~runs.index.isin(ACCELERATED), "processor"]
    found = []
    if hosts.nunique() > 1:
        found.append("processors differ: " + _each(hosts.map(short_processor)))
    if runs["origin"].nunique() > 1:
        found.append("origins differ: " + _each(runs["origin"]))
    if busy := list(runs.index[runs["busy"].astype(bool)]):
        found.append("busy machine: " + ", ".join(busy))
    return "; ".join(found)


def _each(values: pd.Series) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
