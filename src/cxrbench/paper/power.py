"""What the recorded spread can show, and what the planned comparison needs: table, numbers, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from cxrbench.analysis.components import POWER
from cxrbench.analysis.power import (
    DIFFERENCE,
    SHARES,
    patients_at_fixed_thresholds,
    planned_seeds,
    seeds_at_upper_limit,
)
from cxrbench.paper import provenance
from cxrbench.paper.latex import escape

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

PREPRINT_NETWORK = "convnext_pico"
METRICS = {"auroc": "AUROC, macro", "f1_macro": "F1, macro", "f1_micro": "F1, micro"}
REPRODUCTIONS = ("arnoweng_reproduction", "jrzech_reproduction")  # of one network on one split


def typeset(read: Results) -> tuple[pd.DataFrame, str]:
    """Return what these patients and seeds can show on the main dataset, and what a verdict would need."""
    table = _main(read)
    rows = [
        {
            "Network": f"{row.architecture} {row.platform}",
            "Metric": METRICS[row.metric],
            "Error": f"{row.patient_se:.4f}",
            "SD": f"{row.seed_sd:.4f}",
            "Share": f"{row.share:g}",
            "Could show": f"{row.smallest_margin:.3f}",
            "Power": f"{row.power_at_zero:.0%}",
            "Seeds needed": _count(row.seeds_needed),
            "Patients needed": _count(row.patients_needed),
            "Seeds to see": _count(row.seeds_to_see, ""),
            "Patients to see": "" if pd.isna(row.difference) else _count(row.patients_to_see),
            provenance.COLUMN: provenance.of_group(read, row.dataset, row.architecture, row.platform),
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "llrrrrrrrrrl"


def numbers(read: Results) -> dict[str, str]:
    """Return what the prose may name: ``power/...`` of the main dataset, ``margin/...``."""
    margins, table = read.study.margins, _main(read)
    values = {"margin/auroc": f"{margins.auroc_macro:g}", "margin/label": f"{margins.auroc_label:g}"}
    values |= {"margin/f1": f"{margins.f1:g}", "power/difference": f"{DIFFERENCE:g}"}
    values |= {"power/level": f"{POWER:.0%}".replace("%", r"\%"), **_reproductions(read.literature)}
    if table.empty:
        return values
    whole = table[table["metric"] == "auroc"]
    values["power/could show"] = _range(whole["smallest_margin"], "{:.3f}")
    values["power/seeds"], values["power/patients"] = (
        _range(whole[name], "{:,.0f}") for name in ("seeds", "patients")
    )
    values["power/shares"] = ", ".join(f"{share:g}" for share in SHARES)
    for network, some in whole.groupby("architecture"):
        powers = [f"{value:.0%}".replace("%", r"\%") for value in some["power_at_zero"]]
        values[f"power/{network}/at zero"] = ", ".join(powers)
        values[f"power/{network}/ends"] = f"{powers[0]} to {powers[-1]}"
    preprint = table[(table["architecture"] == PREPRINT_NETWORK) & table["difference"].notna()]
    if len(preprint):
        alike, anew = (preprint[preprint["share"] == share] for share in (SHARES[0], SHARES[-1]))
        values["power/preprint/patients"] = _range(alike["patients_to_see"], "{:,.0f}", -3)
        single = alike["patients_to_see"] * alike["seeds"]
        values["power/preprint/patients of one seed"] = _range(single, "{:,.0f}", -3)
        fixed = patients_at_fixed_thresholds(read.spread, margins, read.main(), PREPRINT_NETWORK)
        values["power/preprint/patients fixed"] = _range(fixed, "{:,.0f}", -3)
        values["power/preprint/seeds"] = _range(anew["seeds_to_see"], "{:,.0f}")
    anew = table[(table["metric"] != "auroc") & (table["share"] == SHARES[-1])]
    values["power/plan/f1"] = _count(anew["seeds_needed"].max())
    return values | _plan(whole, margins.auroc_macro)


def _plan(whole: pd.DataFrame, margin: float) -> dict[str, str]:
    """Return the seeds of the planned comparison, also with the true seed spread at its upper limit."""
    values = {}
    needed = planned_seeds(whole, str(whole["dataset"].iloc[0]))
    for network, seeds in needed.items():
        row = whole[(whole["architecture"] == network) & (whole["share"] == SHARES[-1])].iloc[0]
        values[f"power/plan/{network}"] = str(seeds)
        values[f"power/plan/{network}/upper"] = _count(seeds_at_upper_limit(row, margin))
    words = [f"{seeds} for \\code{{{escape(name)}}}" for name, seeds in needed.items()]
    return values | {"power/plan": ", ".join(words)}


def _reproductions(literature: pd.DataFrame) -> dict[str, str]:
    """Return how far two published reproductions of one network on one split lie apart."""
    published = literature.drop_duplicates(["source", "label"]).pivot(
        index="label", columns="source", values="published"
    )
    if not set(REPRODUCTIONS) <= set(published):
        return {}
    apart = (published[REPRODUCTIONS[0]] - published[REPRODUCTIONS[1]]).abs()
    labels = apart.drop("macro")
    return {
        "margin/reproductions": f"{apart['macro']:.4f}",
        "margin/reproductions/label": f"{labels.median():.3f}",
        "margin/reproductions/largest": f"{labels.max():.3f}",
    }


def _main(read: Results) -> pd.DataFrame:
    """Return the rows of the dataset that the paper speaks of."""
    return read.power[read.power["dataset"] == read.main()]


def _count(value: Any, missing: str = "none") -> str:
    return missing if pd.isna(value) else f"{value:,.0f}"


def _range(values: pd.Series, form: str, digits: int | None = None) -> str:
    """Return ``10,000 to 13,000``, or one number where both ends are alike; rounded to ``digits``."""
    known = values.dropna() if digits is None else values.dropna().astype(float).round(digits)
    if known.empty:
        return r"\emph{none would do}"
    ends = [form.format(end) for end in (known.min(), known.max())]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
