"""Every number about money that the paper's prose may name, as text for a macro."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cxrbench.cost.costs import EXCLUDED
from cxrbench.cost.porting import CASES, SCENARIOS, reservations
from cxrbench.cost.projection import SPREAD
from cxrbench.cost.write import SENTENCES
from cxrbench.paper.fmt import listed, number, span, words
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results

_NONE = "none"


def cost_values(read: Results) -> dict[str, str]:
    """Return every number that the paper's section on cost may name."""
    first, second, *ranking = (read.folder / "tables" / SENTENCES).read_text(encoding="utf-8").splitlines()
    regimes, prices = read.csv("regimes"), read.csv("prices")
    target, load = read.cost["target_auroc"].dropna(), read.cost["others_share"]
    return {
        "cost/regime sentence": escape(first, 1000),
        "cost/regimes sentence": escape(second, 1000),
        "cost/ranking sentence": escape("; ".join(ranking) + ".", 2000),
        "cost/regimes": escape(listed(regimes["regime"].map(words)) if len(regimes) else _NONE),
        "cost/excluded": escape(EXCLUDED),
        "cost/runs": str(len(load)),
        "cost/runs/load unknown": str(load.isna().sum()),
        "cost/runs/load known": str(load.notna().sum()),
        "cost/runs/busy": str(read.cost["busy"].sum()),
        "cost/target": f"{target.iloc[0]:g}" if len(target) else r"\emph{none}",
        "cost/ratio rows": str(len(read.csv("ratios"))),
        "price/rows": str(len(prices)),
        "price/date": prices["as_of"].dropna().max(),
        "price/sources": escape(_price_sources(prices), 2000),
        **_reservation_values(prices),
        **_case_values(read.csv("break_even")),
        **_decision_values(read.csv("decisions")),
        **_projection_values(read.csv("projection"), read.csv("backtest")),
    }


def _price_sources(prices: pd.DataFrame) -> str:
    """Return ``owner/repository file (3 rows); ...``: sources of prices, versions of one file together."""
    counts = prices["source"].str.split(r" @| \(", n=1, regex=True).str[0].value_counts()
    return "; ".join(f"{source} ({rows})" for source, rows in counts.items())


def _reservation_values(prices: pd.DataFrame) -> dict[str, str]:
    """Return ``cost/<basis> pays``: per cent of the hours from which each reservation in the table pays."""
    table = reservations(prices.fillna({"as_of": ""}))
    percent = (100 * table["utilisation"]).map("{:.1f}".format)
    pays = {basis: ", ".join(percent[table["basis"] == basis]) for basis in ("reserved_1y", "reserved_3y")}
    values = {f"cost/{basis} pays": text or _NONE for basis, text in pays.items()}
    return values | {"cost/reserved instance": escape(listed(table["instance"]) or _NONE)}


def _case_values(cases: pd.DataFrame) -> dict[str, str]:
    """Return published comparisons, one per source, by whether a port pays at all, some or no prices."""
    published = cases[cases["kind"] == "published"]
    never = np.isinf(published["runs"]).groupby(published["source"]).agg(["all", "any"])
    first = published[published["case"] == CASES[0].name]
    paid = (first["basis"].map(words) + ", " + first["as_of"])[np.isfinite(first["runs"])]
    tuning = published.loc[np.isfinite(published["runs"]) & (published["case"] == CASES[-1].name), "runs"]
    demand = first[first["basis"] == "on_demand"].sort_values("as_of")
    cut = demand.loc[demand["usd_here"] < demand["usd_here"].cummax(), "as_of"]
    return {
        "cost/cut date": escape(cut.iloc[0] if len(cut) else _NONE),
        "cost/porting": f"{published['porting'].iloc[0]:,.0f}",
        "cost/comparisons": str(len(never)),
        "cost/comparisons always": str((~never["any"]).sum()),
        "cost/comparisons never": str(never["all"].sum()),
        "cost/comparisons depend": str((never["any"] & ~never["all"]).sum()),
        "cost/case prices": str(len(published)),
        "cost/pays at": escape("; ".join(paid) or _NONE),
        "cost/tuning runs": span(tuning.min(), tuning.max(), "{:,.0f}") or _NONE,
    }


def _decision_values(decided: pd.DataFrame) -> dict[str, str]:
    """Return rows of the decision table by verdict, and the prices at which it depends."""
    depends = decided[decided["verdict"] == "depends"]
    verdicts = {verdict: (decided["verdict"] == verdict).sum() for verdict in ("port", "stay", "depends")}
    return {
        "cost/decisions": str(len(decided)),
        "cost/scenarios": str(len(SCENARIOS)),
        "cost/ranges": str(len(decided[["ratio_low", "ratio_high"]].drop_duplicates())),
        "cost/depends at": escape(listed(depends["region"] + " " + depends["basis"].map(words)) or _NONE),
        "cost/ongoing": span(decided["ongoing"].min(), decided["ongoing"].max(), "{:,.0f}") or _NONE,
        **{f"cost/decisions {verdict}": str(count) for verdict, count in verdicts.items()},
    }


def _projection_values(projection: pd.DataFrame, backtest: pd.DataFrame) -> dict[str, str]:
    """Return what was projected, under which assumptions, and how far the same arithmetic was off."""
    assumed = dict.fromkeys(part for text in projection["assumptions"].dropna() for part in text.split("; "))
    tested = backtest.dropna(subset="error")
    inside = tested["measured"].between(tested["low"], tested["high"])
    shares = backtest.groupby(["device", "kind", "precision"])["share"].agg(["min", "max"])
    return {
        "cost/projected": str(projection.loc[projection["why_not"].isna(), "architecture"].nunique()),
        "cost/not audited": str(projection["instance"].isna().sum()),
        "cost/precisions": escape(listed(projection["precision"])),
        "cost/projection assumptions": escape("; ".join(assumed), 1000) if assumed else r"\emph{none}",
        "cost/factor": f"{SPREAD:g}",
        "cost/factor measured": number((shares["max"] / shares["min"]).max(), ".1f", _NONE),
        "cost/tested": str(len(tested)),
        "cost/tested inside": str(inside.sum()),
    }
