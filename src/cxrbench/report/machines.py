"""How tables name a machine and its load, and write dollars with their spread over seeds."""

from __future__ import annotations

import math

import pandas as pd

from cxrbench.machine import GROUP, short_processor

MACHINE = ["machine", "origin", "busy"]  # runs that differ in one of these are never averaged
_SOFTWARE = ("torch ", "torch_xla ", "torch_neuronx ", "driver ")


def machine_names(runs: pd.DataFrame) -> pd.Series:
    """What a table calls the machine of each run: processor and cores, also the software where a group of
    cells has machines that differ in that alone; then that it is fresh, and that it was busy."""
    if runs.empty:
        return pd.Series(dtype=str)
    names = runs["machine"].map(short)
    alike = [runs[column] for column in GROUP]
    machines = runs["machine"].groupby([*alike, names]).transform("nunique")
    names = names.where(machines == 1, runs["machine"].map(short_processor))
    marks = [mark(run.origin, run.busy, run.others_share) for run in runs.itertuples()]
    return pd.Series(["; ".join([name, *some]) for name, some in zip(names, marks, strict=True)], runs.index)


def mark(origin: str, busy: bool, others_share: float) -> list[str]:
    """What is said beside a speed or a cost: ``fresh``, and the load of a busy machine."""
    fresh = ["fresh"] if origin != "recorded" else []
    return fresh + ([f"busy ({others_share:.0%} used by others)".replace("%", " %")] if busy else [])


def short(machine: str) -> str:
    """Device, processor and cores of a machine, without marks of trade and without its software."""
    return ", ".join(part for part in short_processor(machine).split(", ") if not part.startswith(_SOFTWARE))


def usd(value: float, missing: str = "none") -> str:
    """Dollars in four digits, from a thousand on in whole ones."""
    if pd.isna(value):
        return missing
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def spread(value: float, deviation: float, missing: str = "none") -> str:
    """``0.0304 ± 0.0033``: dollars and their standard deviation over seeds; of one seed that it is one."""
    if pd.isna(value):
        return missing
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2
    if pd.isna(deviation):
        return f"{value:,.{places}f} (1 seed)"
    return f"{value:,.{places}f} ± {deviation:,.{places}f}"
