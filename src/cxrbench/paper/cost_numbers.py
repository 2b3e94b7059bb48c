"""Every number about money that the paper's prose may name, as text for a macro."""

import json

import numpy as np
import pandas as pd

from cxrbench.cost.costs import EXCLUDED
from cxrbench.cost.porting import CASES, SCENARIOS, WEEK_USD
from cxrbench.cost.prices import unversioned
from cxrbench.cost.write import SENTENCES
from cxrbench.paper.fmt import listed, number, span, words
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results
from cxrbench.study.platform_names import ACCELERATED

_NONE = "none"
_EMPHASISED = r"\emph{none}"


def cost_values(read: Results) -> dict[str, str]:
    """Return every number that the paper's section on cost may name."""
    sentences = json.loads((read.folder / "tables" / SENTENCES).read_text(encoding="utf-8"))
    prices, load = read.csv("prices"), read.cost["others_share"]
    sources = unversioned(prices["source"]).value_counts()
    return {
        "cost/excluded": escape(EXCLUDED),
        "cost/runs": str(len(load)),
        "cost/runs/load unknown": str(load.isna().sum()),
        "cost/runs/load known": str(load.notna().sum()),
        "cost/runs/busy": str(read.cost["busy"].sum()),
        "cost/target": number(read.cost["target_auroc"].max(), "g", _EMPHASISED),
        "cost/ratio rows": str(len(read.csv("ratios"))),
        "cost/ratio sources": escape(sentences["ratio_sources"], 2000),
        "price/date": prices["as_of"].dropna().max(),
        "price/sources": escape("; ".join(f"{name} ({rows})" for name, rows in sources.items()), 2000),
        **_day_values(read),
        **_case_values(read.csv("break_even")),
        **_decision_values(read.csv("decisions")),
    }


def _day_values(read: Results) -> dict[str, str]:
    """Return ``day/<platform>/...``: the instance of each accelerator and its price of a day on demand."""
    pricing, prices = read.study.prices, read.csv("prices").fillna({"as_of": ""})
    demand = prices[prices["basis"] == "on_demand"].sort_values("as_of").set_index("instance")
    newest = demand["usd_per_hour"].groupby("instance").last() * 24
    values: dict[str, str] = {}
    for platform in sorted(ACCELERATED & pricing.instances.keys()):
        instance = pricing.instances[platform]
        values[f"day/{platform}/instance"] = escape(instance)
        values[f"day/{platform}/usd"] = number(newest.get(instance, float("nan")), ".2f", _NONE)
    return values


def _case_values(cases: pd.DataFrame) -> dict[str, str]:
    """Return how many comparisons of published runs, one per source, pay at all, some or no prices."""
    published = cases[cases["case"].isin([case.case for case in CASES])]
    never = np.isinf(published["runs"]).groupby(published["source"]).agg(["all", "any"])
    first, last = (published[published["case"] == case.case] for case in (CASES[0], CASES[-1]))
    paid = (first["basis"].map(words) + ", " + first["as_of"])[np.isfinite(first["runs"])]
    tuning = last.loc[np.isfinite(last["runs"]), "runs"]
    demand = first[first["basis"] == "on_demand"].sort_values("as_of")
    cut = demand.loc[demand["usd_here"] < demand["usd_here"].cummax(), "as_of"]
    return {
        "cost/cut date": escape(next(iter(cut), _NONE)),
        "cost/porting": f"{published['porting'].iloc[0]:,.0f}",
        "cost/comparisons": str(len(never)),
        "cost/comparisons always": str((~never["any"]).sum()),
        "cost/comparisons never": str(never["all"].sum()),
        "cost/comparisons depend": str((never["any"] & ~never["all"]).sum()),
        "cost/pays at": escape("; ".join(paid) or _NONE),
        "cost/tuning runs": span(tuning.min(), tuning.max(), "{:,.0f}", _NONE),
    }


def _decision_values(decided: pd.DataFrame) -> dict[str, str]:
    """Return rows of the decision table by verdict over the horizon, and the prices at which it depends."""
    depends = decided[decided["verdict"] == "depends"]
    verdicts = ("port", "stay", "depends")
    return {
        "cost/decisions": str(len(decided)),
        "cost/scenarios": str(len(SCENARIOS)),
        "cost/week": f"{WEEK_USD:,.0f}",
        "cost/ranges": str(len(decided[["ratio_low", "ratio_high"]].drop_duplicates())),
        "cost/depends at": escape(listed(depends["region"] + " " + depends["basis"].map(words)) or _NONE),
        "cost/ongoing": span(decided["ongoing"].min(), decided["ongoing"].max(), "{:,.0f}", _NONE),
        **{f"cost/decisions {verdict}": str((decided["verdict"] == verdict).sum()) for verdict in verdicts},
    }
