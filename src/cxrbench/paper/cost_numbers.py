"""Every number about money that the paper's prose may name, as text for a macro."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from cxrbench.cost.costs import EXCLUDED
from cxrbench.cost.porting import CASES, SCENARIOS, reservations
from cxrbench.cost.projection import SPREAD
from cxrbench.cost.tables import SENTENCES
from cxrbench.paper.cost_tables import in_range, money_csv, words
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results, listed

_NONE = "none"


def cost_values(read: Results) -> dict[str, str]:
    """Every number that the paper's section on cost may name."""
    sentences = (read.folder / "tables" / SENTENCES).read_text(encoding="utf-8").splitlines()
    regimes, prices = money_csv(read, "regimes"), money_csv(read, "prices")
    target = read.cost["target_auroc"].dropna()
    return {
        "cost/regime sentence": escape(sentences[0], 1000),
        "cost/regimes sentence": escape(sentences[1], 1000),
        "cost/ranking sentence": escape("; ".join(sentences[2:]) + ".", 2000),
        "cost/regimes": escape(listed(regimes.get("regime", pd.Series()).map(words)) or _NONE),
        "cost/excluded": escape(EXCLUDED),
        "cost/load": _load(read.cost),
        "cost/target": f"{target.iloc[0]:g}" if len(target) else r"\emph{none}",
        "cost/ratio rows": str(len(money_csv(read, "ratios"))),
        "price/rows": str(len(prices)),
        "price/date": prices["as_of"].dropna().max(),
        "price/sources": escape(_price_sources(prices), 2000),
        **_reservation_values(prices),
        **_case_values(money_csv(read, "break_even")),
        **_decision_values(money_csv(read, "decisions")),
        **_projection_values(money_csv(read, "projection"), money_csv(read, "backtest")),
    }


def _load(costs: pd.DataFrame) -> str:
    """What is known of the load of the machines, in one clause."""
    unknown, busy = costs["others_share"].isna().sum(), int(costs["busy"].sum())
    known = "none of the others was busy" if len(costs) > unknown else ""
    marked = f"{busy} on a busy machine {'is' if busy == 1 else 'are'} marked" if busy else known
    return f"of {unknown} of {len(costs)} runs the load was not recorded" + (f", {marked}" if marked else "")


def _reservation_values(prices: pd.DataFrame) -> dict[str, str]:
    """``cost/<basis> pays``: per cent of the hours from which each reservation in the table pays."""
    table = reservations(prices.fillna({"as_of": ""}))
    values = {"cost/reserved instance": escape(listed(table["instance"]) or _NONE)}
    for basis in ("reserved_1y", "reserved_3y"):
        shares = [f"{100 * share:.1f}" for share in table.loc[table["basis"] == basis, "utilisation"]]
        values[f"cost/{basis} pays"] = ", ".join(shares) or _NONE
    return values


def _case_values(cases: pd.DataFrame) -> dict[str, str]:
    """Published comparisons, one per source, by whether a port pays at all, some or none of the prices."""
    published = cases[cases["kind"] == "published"]
    never = np.isinf(published["runs"]).groupby(published["source"]).agg(["all", "any"])
    first = published[published["case"] == CASES[0].name]
    paid = (first["basis"].map(words) + ", " + first["as_of"])[np.isfinite(first["runs"])]
    pays = published.loc[np.isfinite(published["runs"]) & (published["case"] == CASES[-1].name), "runs"]
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
        "cost/tuning runs": in_range(pays.min(), pays.max(), "{:,.0f}") or _NONE,
    }


def _decision_values(decided: pd.DataFrame) -> dict[str, str]:
    """Rows of the decision table by verdict, and the prices at which it depends."""
    depends = decided[decided["verdict"] == "depends"]
    values = {
        "cost/decisions": str(len(decided)),
        "cost/scenarios": str(len(SCENARIOS)),
        "cost/ranges": str(len(decided[["ratio_low", "ratio_high"]].drop_duplicates())),
        "cost/depends at": escape(listed(depends["region"] + " " + depends["basis"].map(words)) or _NONE),
        "cost/ongoing": in_range(decided["ongoing"].min(), decided["ongoing"].max(), "{:,.0f}") or _NONE,
    }
    for verdict in ("port", "stay", "depends"):
        values[f"cost/decisions {verdict}"] = str(int((decided["verdict"] == verdict).sum()))
    return values


def _projection_values(projection: pd.DataFrame, backtest: pd.DataFrame) -> dict[str, str]:
    """What was projected, under which assumptions, and how far the same arithmetic was off."""
    assumed = dict.fromkeys(
        part for row in projection["assumptions"].dropna() for part in str(row).split("; ")
    )
    tested = backtest.dropna(subset="error")
    inside = tested["measured"].between(tested["low"], tested["high"])
    shares = backtest.groupby(["device", "kind", "precision"])["share"].agg(["min", "max"])
    apart = (shares["max"] / shares["min"]).max()
    return {
        "cost/projected": str(projection.loc[projection["why_not"].isna(), "architecture"].nunique()),
        "cost/not audited": str(int(projection["instance"].isna().sum())),
        "cost/precisions": escape(listed(projection["precision"])),
        "cost/projection assumptions": escape("; ".join(assumed), 1000) if assumed else r"\emph{none}",
        "cost/factor": f"{SPREAD:g}",
        "cost/factor measured": _NONE if math.isnan(apart) else f"{apart:.1f}",
        "cost/tested": str(len(tested)),
        "cost/tested inside": str(int(inside.sum())),
    }


def _price_sources(prices: pd.DataFrame) -> str:
    """``owner/repository file (3 rows); ...``: where prices are from, versions of one file together."""
    counts = prices["source"].str.split(r" @| \(", n=1, regex=True).str[0].value_counts()
    return "; ".join(f"{source} ({rows})" for source, rows in counts.items())
