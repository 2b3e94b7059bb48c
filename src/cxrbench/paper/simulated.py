"""What simulation says of the intervals, for the paper's prose and docs/statistics.md.

``python -m cxrbench.paper.simulated RECORDED DOCS`` (`make coverage`) simulates, records and renews DOCS.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pandas as pd

from cxrbench.analysis import coverage, mean_coverage, verdicts
from cxrbench.evidence.sums import updated_sums
from cxrbench.paper.blocks import as_markdown, renewed
from cxrbench.paper.results import Results
from cxrbench.study.files import write_csv, write_text

NOT_SIMULATED = r"\emph{not simulated}"
MANY = 15  # positive patients from which on an interval is to be trusted


def numbers(read: Results) -> dict[str, str]:
    """Coverage of intervals (``coverage/...``) and errors of verdicts (``verdicts/...``), all settings."""
    rows = read_simulated(read.recorded, coverage)
    made = read_simulated(read.recorded, verdicts).set_index("what")["rate"]
    findings = rows[rows["what"] == coverage.FINDING]
    fewest = findings["positive_patients"].str.split().str[0].astype(int)
    chosen = {
        "many": findings[fewest >= MANY],
        "ten": findings[fewest == 10],
        "few": findings[fewest == 2],
        "macro": rows[rows["what"] == coverage.MACRO],
    }
    means = read_simulated(read.recorded, mean_coverage)
    whole = means[means["positive_patients"] == ""]
    fixed = whole["what"].str.endswith(mean_coverage.FIXED)
    f1 = whole["metric"].str.startswith("F1")
    alone = whole["what"].str.startswith(mean_coverage.ONE)
    values = {f"coverage/{name}": _percent(some["rate"]) for name, some in chosen.items()}
    return values | {
        "coverage/f1": _percent(whole.loc[f1 & ~fixed, "rate"]),
        "coverage/f1 fixed": _percent(whole.loc[f1 & fixed & alone, "rate"]),
        "coverage/precision": _percent(whole.loc[whole["metric"].str.startswith("average"), "rate"]),
        "coverage/brier": _percent(whole.loc[~f1 & ~whole["metric"].str.startswith("average"), "rate"]),
        "coverage/seeds": _percent(made[made.index == verdicts.MEAN_HOLDS]),
        "verdicts/different": _percent(made[made.index == verdicts.SOME_DIFFERENT]),
        "verdicts/equivalent": _percent(made[made.index == verdicts.EVERY_EQUIVALENT]),
    }


def read_simulated(recorded: Path, module: ModuleType) -> pd.DataFrame:
    """The recorded table that ``module`` simulates; empty where nothing is recorded."""
    path = recorded / module.FILE
    if not path.is_file():
        return pd.DataFrame(columns=module.COLUMNS)
    return pd.read_csv(path, keep_default_na=False)


def blocks(recorded: Path) -> dict[str, str]:
    """The tables of docs/statistics.md, by the names of their places."""
    covered, erred, held = (
        read_simulated(recorded, module) for module in (coverage, verdicts, mean_coverage)
    )
    covered["auroc"] = covered["auroc"].map("AUROC {}".format)
    erred["platform_share"] = erred["platform_share"].map("share {}".format)
    names = {"what": "Statement", "positive_patients": "Positive patients", "seeds": "Seeds"}
    names["metric"] = "Metric"
    return {
        "coverage": _markdown(covered, ["what", "positive_patients"], "auroc", names),
        "means": _markdown(held, ["metric", "positive_patients"], "what", names),
        "verdicts": _markdown(erred, ["what", "seeds"], "platform_share", names),
    }


def _markdown(rows: pd.DataFrame, index: list[str], columns: str, names: dict[str, str]) -> str:
    shown = rows["rate"].map("{:.1%}".format) + " ± " + rows["monte_carlo_error"].map("{:.1%}".format)
    wide = rows.assign(rate=shown).pivot_table("rate", index, columns, aggfunc="first", sort=False)
    return as_markdown(wide.fillna("").reset_index().rename(columns=names))


def _percent(rates: pd.Series) -> str:
    if rates.empty:
        return NOT_SIMULATED
    low, high = (rf"\SI{{{100 * rate:.1f}}}{{\percent}}" for rate in (rates.min(), rates.max()))
    return low if low == high else f"{low} to {high}"


def renew(recorded: Path, docs: Path) -> None:
    """Put the recorded tables into the file ``docs``."""
    write_text(docs, renewed(docs.read_text(encoding="utf-8"), blocks(recorded), str(docs)))


def record(recorded: Path) -> None:
    """Simulate, write the tables below ``recorded`` and list them in SHA256SUMS."""
    with updated_sums(recorded):
        write_csv(recorded / coverage.FILE, coverage.simulate())
        write_csv(recorded / verdicts.FILE, verdicts.simulate_verdicts())
        write_csv(recorded / mean_coverage.FILE, mean_coverage.simulate_means())


if __name__ == "__main__":
    record(Path(sys.argv[1]))
    renew(Path(sys.argv[1]), Path(sys.argv[2]))
