"""Every value about money that the paper's prose may name."""

import numpy as np
import pandas as pd

from cxrbench.cost.costs import EXCLUDED
from cxrbench.cost.porting import CASES, WEEK_USD
from cxrbench.paper.formats import listed, words
from cxrbench.paper.prose import Filled, Value, Values, range_or
from cxrbench.paper.results import Results
from cxrbench.study.platforms import ACCELERATED

_NONE = "none"


def cost_values(read: Results) -> Values:
    """Return every value that the paper's section on cost may name."""
    prices, ratios, load = read.csv("prices"), read.csv("ratios"), read.cost["others_share"]
    sources = _unversioned(prices["source"]).value_counts()
    runs, unknown = len(load), int(load.isna().sum())
    return {
        "cost/excluded": EXCLUDED,
        "cost/runs": runs,
        "cost/runs/load unknown": unknown,
        "cost/runs/load sentence": load_sentence(runs, unknown, int(read.cost["busy"].sum())),
        "cost/ratio rows": len(ratios),
        "cost/ratio sources": _ratio_sources(ratios),
        "price/date": prices["as_of"].dropna().max(),
        "price/sources": "; ".join(f"{name} ({rows})" for name, rows in sources.items()),
        **_day_values(read),
        **_case_values(read.csv("break_even")),
        "cost/week": Value(WEEK_USD, "count"),
        "cost/depends at": _depends_at(read.csv("decisions")),
    }


def _unversioned(sources: pd.Series) -> pd.Series:
    """Return sources without their version: several versions of a file are one source."""
    return sources.str.split(r" @| \(", n=1, regex=True).str[0]


def _ratio_sources(ratios: pd.DataFrame) -> str:
    """Return every source of the prices behind the ratios, with regions and bases."""
    both = pd.concat([ratios, ratios.assign(source=ratios["source_other"])], ignore_index=True)
    where = both["region"] + " " + both["basis"].map(words)
    places = where.groupby(_unversioned(both["source"]), sort=False).unique()
    return "; ".join(f"{name} ({', '.join(at)})" for name, at in places.items())


def load_sentence(runs: int, unknown: int, busy: int) -> str:
    """Return of how many runs the load of the machine is known, and how many ran on a busy one."""
    of_load = "known how busy the machine was otherwise."
    parts = []
    if unknown:
        parts = [
            f"For {unknown} of the {runs} runs it is not {of_load}"
            if unknown < runs
            else f"For none of the {runs} runs is it {of_load}"
        ]
    if busy:
        parts.append(f"Marked: {busy} on a busy machine.")
    elif unknown < runs:
        parts.append("Where it is known, no machine was busy.")
    return " ".join(parts)


def _day_values(read: Results) -> Values:
    """Return ``day/<platform>/...``: the instance of each accelerator and its price of a day on demand."""
    pricing, prices = read.study.prices, read.csv("prices").fillna({"as_of": ""})
    demand = prices[prices["basis"] == "on_demand"].sort_values("as_of").set_index("instance")
    newest = demand["usd_per_hour"].groupby("instance").last() * 24
    values: Filled = {}
    for platform in sorted(ACCELERATED & pricing.instances.keys()):
        instance = pricing.instances[platform]
        values[f"day/{platform}/instance"] = instance
        values[f"day/{platform}/usd"] = Value(newest.get(instance, _NONE), "ratio")
    return values


def _case_values(cases: pd.DataFrame) -> Values:
    """Return what a port of published runs takes, and when the price of the GPU was cut."""
    first, last = (cases[cases["case"] == case.case] for case in (CASES[0], CASES[-1]))
    demand = first[first["basis"] == "on_demand"].sort_values("as_of")
    cut = demand.loc[demand["usd_here"] < demand["usd_here"].cummax(), "as_of"]
    return {
        "cost/cut date": next(iter(cut), _NONE),
        "cost/porting": Value(first["porting"].iloc[0], "count"),
        "cost/tuning runs": range_or(last.loc[np.isfinite(last["runs"]), "runs"], "count", _NONE),
    }


def _depends_at(decided: pd.DataFrame) -> str:
    """Return the prices at which a decision of the table depends on the rest of the ratio's range."""
    depends = decided[decided["verdict"] == "depends"]
    return listed(depends["region"] + " " + depends["basis"].map(words)) or _NONE
