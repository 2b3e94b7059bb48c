"""What simulation shows of the intervals, for the paper's prose and docs/statistics.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.analysis import simulated
from cxrbench.paper.blocks import as_markdown
from cxrbench.paper.results import Results

NOT_SIMULATED = r"\emph{not simulated}"
MANY = 15  # positive patients from which on an interval is to be trusted


def numbers(read: Results) -> dict[str, str]:
    """Return coverage of intervals (``coverage/...``) and errors of verdicts (``verdicts/...``)."""
    rows = simulated.COVERAGE.read(read.recorded)
    findings = rows[rows["what"] == simulated.FINDING]
    fewest = findings["positive_patients"].str.split().str[0].astype(int)
    made = simulated.VERDICTS.read(read.recorded).set_index("what")["rate"]
    means = simulated.MEANS.read(read.recorded)
    whole = means[means["positive_patients"] == ""].set_index("metric")
    refit = whole.loc[~whole["what"].str.endswith(simulated.FIXED), "rate"]
    fixed = whole.loc[whole["what"] == simulated.ONE + simulated.FIXED, "rate"]
    rates = {
        "coverage/many": findings.loc[fewest >= MANY, "rate"],
        "coverage/ten": findings.loc[fewest == 10, "rate"],
        "coverage/few": findings.loc[fewest == 2, "rate"],
        "coverage/macro": rows.loc[rows["what"] == simulated.MACRO, "rate"],
        "coverage/f1": _of(refit, simulated.F1_WHOLE),
        "coverage/f1 fixed": _of(fixed, simulated.F1_WHOLE),
        "coverage/precision": _of(refit, simulated.PRECISION_WHOLE),
        "coverage/brier": _of(refit, simulated.CALIBRATION_WHOLE),
        "coverage/seeds": made[made.index == simulated.MEAN_HOLDS],
        "verdicts/different": made[made.index == simulated.SOME_DIFFERENT],
        "verdicts/equivalent": made[made.index == simulated.EVERY_EQUIVALENT],
    }
    return {name: _percent(each) for name, each in rates.items()}


def _of(rates: pd.Series, metrics: dict[tuple[str, str], str]) -> pd.Series:
    return rates[rates.index.isin(list(metrics.values()))]


def blocks(recorded: Path) -> dict[str, str]:
    """Return the tables of docs/statistics.md, by the names of their places."""
    tables = simulated.COVERAGE, simulated.VERDICTS, simulated.MEANS
    covered, erred, held = (table.read(recorded) for table in tables)
    covered["auroc"] = covered["auroc"].map("AUROC {}".format)
    erred["platform_share"] = erred["platform_share"].map("share {}".format)
    return {
        "coverage": _markdown(covered, ["what", "positive_patients"], "auroc"),
        "means": _markdown(held, ["metric", "positive_patients"], "what"),
        "verdicts": _markdown(erred, ["what", "seeds"], "platform_share"),
    }


def _markdown(rows: pd.DataFrame, index: list[str], columns: str) -> str:
    names = {"what": "Statement", "positive_patients": "Positive patients", "seeds": "Seeds"}
    shown = rows["rate"].map("{:.1%}".format) + " ± " + rows["monte_carlo_error"].map("{:.1%}".format)
    wide = rows.assign(rate=shown).pivot_table("rate", index, columns, aggfunc="first", sort=False)
    return as_markdown(wide.fillna("").reset_index().rename(columns={**names, "metric": "Metric"}))


def _percent(rates: pd.Series) -> str:
    if rates.empty:
        return NOT_SIMULATED
    low, high = (rf"\SI{{{100 * rate:.1f}}}{{\percent}}" for rate in (rates.min(), rates.max()))
    return low if low == high else f"{low} to {high}"
