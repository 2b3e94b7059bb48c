"""Which runs of several platforms may be held against each other: one machine, one load, one origin."""

from __future__ import annotations

import pandas as pd

from cxrbench.machine import headline, short_processor
from cxrbench.platform_names import ACCELERATED

_ALIKE = ["busy", "origin", "processor"]


def comparable(runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of one data set and network that compare its platforms, and what still differs between them.

    Platforms that run on the processor itself are compared on a processor that all of them ran on: quiet
    before busy, recorded before fresh, then where there are most runs. Where they share none, and for
    accelerators, whose host is part of what is bought, each platform's headline stands.
    """
    chosen = runs[headline(runs)]
    hosts = runs[~runs["platform"].isin(ACCELERATED)]
    wanted = set(hosts["platform"])
    shared = [some for _, some in hosts.groupby(_ALIKE, sort=False) if set(some["platform"]) == wanted]
    if len(wanted) > 1 and shared:
        best = min(shared, key=lambda some: (*_rank(some.iloc[0]), -len(some)))
        same = best[headline(best)]  # one software stack per platform
        chosen = pd.concat([same, chosen[chosen["platform"].isin(ACCELERATED)]])
    return chosen, _differences(chosen)


def _rank(run: pd.Series) -> tuple[bool, bool]:
    return bool(run["busy"]), run["origin"] != "recorded"


def _differences(chosen: pd.DataFrame) -> str:
    """What differs between the platforms of ``chosen`` beside the platform, in words; empty: nothing."""
    by_platform = {platform: some.iloc[0] for platform, some in chosen.groupby("platform", sort=True)}
    hosts = {name: run["processor"] for name, run in by_platform.items() if name not in ACCELERATED}
    found = []
    if len(set(hosts.values())) > 1:
        found.append(
            "processors differ: " + _each({name: short_processor(cpu) for name, cpu in hosts.items()})
        )
    origins = {name: run["origin"] for name, run in by_platform.items()}
    if len(set(origins.values())) > 1:
        found.append("origins differ: " + _each(origins))
    if busy := [name for name, run in by_platform.items() if run["busy"]]:
        found.append("busy machine: " + ", ".join(busy))
    return "; ".join(found)


def _each(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
