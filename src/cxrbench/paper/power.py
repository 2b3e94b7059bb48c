"""What the recorded spread can show, and what the planned comparison needs: table, numbers, words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import chi2

from cxrbench.analysis.components import POWER
from cxrbench.analysis.power import (
    COLUMNS,
    FEWEST_SEEDS,
    Design,
    Spread,
    answers,
    power_equivalent,
    seeds_needed,
)
from cxrbench.paper import provenance
from cxrbench.paper.latex import escape
from cxrbench.study.config import Margins

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

PREPRINT = {"cuda": 0.8027, "trainium": 0.8007}  # its F1 of ConvNeXt-Pico (claim P02)
PREPRINT_NETWORK = "convnext_pico"
DIFFERENCE = round(PREPRINT["cuda"] - PREPRINT["trainium"], 4)
SHARES = (0.0, 0.2, 0.5, 1.0)
METRICS = {"auroc": "AUROC, macro", "f1_macro": "F1, macro", "f1_micro": "F1, micro"}
GROUP = ["dataset", "architecture", "platform", "metric"]
REPRODUCTIONS = ("arnoweng_reproduction", "jrzech_reproduction")  # of one network on one split
ACCURACY = 0.2  # one minus the level of the upper limit of a seed spread (Browne 1995 uses 80 %)


def power_table(spread: pd.DataFrame, margins: Margins) -> pd.DataFrame:
    """One row per group of spread.csv, metric and share of the seed variance that a platform makes anew."""
    rows = []
    for named, known, seeds in recorded_spreads(spread):
        margin = margins.auroc_macro if named["metric"] == "auroc" else margins.f1
        difference = None if named["metric"] == "auroc" else DIFFERENCE
        for share in SHARES:
            design = Design(known.patients, max(seeds, FEWEST_SEEDS), share)
            rows.append(named | answers(known, design, margin, difference))
    return pd.DataFrame(rows, columns=[*GROUP, *COLUMNS]).convert_dtypes()


def recorded_spreads(
    spread: pd.DataFrame, fixed: bool = False
) -> Iterator[tuple[dict[str, str], Spread, int]]:
    """The groups of spread.csv whose seeds and patients are known apart: names, spread, number of seeds.

    A network's own part of the patients' error is what is left of it when that of the mean over the seeds,
    which they have in common, is taken off (:func:`cxrbench.analysis.components.patient_luck`). ``fixed``:
    with the thresholds of F1 taken as fixed.
    """
    end = "_fixed" if fixed else ""
    wanted = spread["label"].isin(["macro", "all"]) & spread["metric"].isin(list(METRICS))
    for row in spread[wanted & (spread["n_seeds"] > 1)].itertuples():
        errors = (getattr(row, f"patient_se{end}"), getattr(row, f"patient_se_of_mean{end}"))
        luck = row.n_seeds / (row.n_seeds - 1) * (errors[0] ** 2 - errors[1] ** 2)
        if luck > 0 and np.isfinite(row.seed_sd_beyond_patients):
            named = {name: str(getattr(row, name)) for name in GROUP}
            yield named, Spread(luck**0.5, row.n_patients, row.seed_sd_beyond_patients), row.n_seeds


def typeset(read: Results) -> tuple[pd.DataFrame, str]:
    """What these patients and seeds can show on the main dataset, and what a verdict would need.

    Share: of the seeds' variance, what a platform makes anew. Could show: the margin shown four times in
    five by equal platforms. Power: of the verdict equivalent at the declared margin when they are equal.
    Needed: by seeds with these patients, by patients with these seeds, for a power of 80 %. To see: the
    preprint's difference in F1; by patients at best, as if its variance were known. Single findings are not
    sized. No row is a test.
    """
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
    """What the prose may name: ``power/...`` of the main dataset, ``margin/...``."""
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
        values["power/preprint/patients fixed"] = _range(_patients_at_fixed_thresholds(read), "{:,.0f}", -3)
        values["power/preprint/seeds"] = _range(anew["seeds_to_see"], "{:,.0f}")
    anew = table[(table["metric"] != "auroc") & (table["share"] == SHARES[-1])]
    values["power/plan/f1"] = _count(anew["seeds_needed"].max())
    return values | _plan(whole, margins.auroc_macro)


def _patients_at_fixed_thresholds(read: Results) -> pd.Series:
    """Return the patients at best that show the preprint's difference in F1 with thresholds as they are."""
    found = []
    for named, known, seeds in recorded_spreads(read.spread, fixed=True):
        network = named["dataset"], named["architecture"]
        if named["metric"] != "auroc" and network == (read.main(), PREPRINT_NETWORK):
            design = Design(known.patients, max(seeds, FEWEST_SEEDS), SHARES[0])
            found.append(answers(known, design, read.study.margins.f1, DIFFERENCE)["patients_to_see"])
    return pd.Series(found, dtype=float)


def planned_seeds(table: pd.DataFrame, dataset: str) -> dict[str, int]:
    """Architecture -> seeds on each platform with which equal platforms are shown to be equivalent in macro
    AUROC four times in five, though seeds have nothing in common on the two."""
    whole = table[
        (table["dataset"] == dataset) & (table["metric"] == "auroc") & (table["share"] == SHARES[-1])
    ]
    return {
        str(name): int(count) for name, count in whole.groupby("architecture")["seeds_needed"].max().items()
    }


def _plan(whole: pd.DataFrame, margin: float) -> dict[str, str]:
    """What the planned comparison needs in seeds, also where the true seed spread is at its upper limit."""
    values = {}
    needed = planned_seeds(whole, str(whole["dataset"].iloc[0]))
    for network, seeds in needed.items():
        row = whole[(whole["architecture"] == network) & (whole["share"] == SHARES[-1])].iloc[0]
        spread = Spread(row["patient_se"], int(row["measured_on"]), row["seed_sd"])
        values[f"power/plan/{network}"] = str(seeds)
        values[f"power/plan/{network}/upper"] = _count(_upper(spread, int(row["seeds"]), margin))
    said = [f"{seeds} for \\code{{{escape(name)}}}" for name, seeds in needed.items()]
    return values | {"power/plan": ", ".join(said)}


def _upper(spread: Spread, seeds: int, margin: float) -> int | None:
    """Seeds needed where the variance between networks is at its upper limit, given so few ``seeds``."""
    factor = (seeds - 1) / chi2.ppf(ACCURACY, seeds - 1)
    luck = spread.patient_se**2
    larger = replace(spread, seed_sd=float(np.sqrt(factor * (luck + spread.seed_sd**2) - luck)))
    design = Design(spread.patients, FEWEST_SEEDS)
    return seeds_needed(lambda other: power_equivalent(larger, other, margin), design)


def _reproductions(literature: pd.DataFrame) -> dict[str, str]:
    """How far two published reproductions of one network on one split lie apart."""
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
    """The rows of the dataset that the paper speaks of."""
    return read.power[read.power["dataset"] == read.main()]


def _count(value: Any, missing: str = "none") -> str:
    return missing if pd.isna(value) else f"{value:,.0f}"


def _range(values: pd.Series, form: str, digits: int | None = None) -> str:
    """``10,000 to 13,000``, or one number where both ends are alike; rounded to ``digits``."""
    known = values.dropna() if digits is None else values.dropna().astype(float).round(digits)
    if known.empty:
        return r"\emph{none would do}"
    ends = [form.format(end) for end in (known.min(), known.max())]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
