"""The paper's tables: a DataFrame of texts and the preamble of its LaTeX tabular."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.report.cells import NOT_RUN
from cxrbench.report.results import (
    UNDEFINED,
    Results,
    counted,
    finding_name,
    group_name,
    listed,
    with_interval,
)

Table = tuple[pd.DataFrame, str]
F1_NAMES = {
    "f1_macro": "macro",
    "f1_micro": "micro",
    "f1_weighted": "support-weighted",
    "f1_samples": "samples",
}


def cells_by_status(read: Results) -> Table:
    """Cells per group with status, origin, date, device and commit."""
    rows = []
    for group, cells in read.cells.groupby(["dataset", "architecture", "platform"], sort=False):
        for status, some in cells.groupby("status", sort=False):
            run = status != NOT_RUN
            rows.append(
                {
                    "Dataset": group[0],
                    "Architecture": group[1],
                    "Platform": group[2],
                    "Seeds": len(some),
                    "Status": f"{status}, {listed(some['origin'])}" if run else status,
                    "Run on": listed(some["ended"].str[:10]) if run else "",
                    "Device": listed(some["device"]) if run else "",
                    "Commit": listed(some["commit"].str[:7]) if run else "",
                }
            )
    return pd.DataFrame(rows), "lllrllp{3cm}l"


def dataset_counts(read: Results) -> Table:
    """Images, patients and positive images per finding and split, one column per dataset and split."""
    columns: dict[str, list[str]] = {"": ["Images", "Patients", *map(finding_name, FINDINGS)]}
    for dataset in dict.fromkeys(read.cells["dataset"]):
        if identity := read.identity(dataset):
            for split in SPLITS:
                positive = [identity.positive_images[finding][split] for finding in FINDINGS]
                columns[f"{dataset} {split}"] = [
                    f"{identity.images[split]:,}",
                    counted(identity.patients[split]),
                    *(f"{count:,}" for count in positive),
                ]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def auroc_per_label(read: Results) -> Table:
    """Test AUROC per finding and group: mean over seeds with the mean patient-clustered interval."""
    columns = {"Finding": [*map(finding_name, FINDINGS), "Macro"]}
    for group in read.scored():
        columns[group_name(group)] = [
            with_interval(read.of(group, "auroc", label)) for label in (*FINDINGS, "macro")
        ]
    return pd.DataFrame(columns), "l" + "c" * (len(columns) - 1)


def f1_by_definition(read: Results) -> Table:
    """Test F1 by definition, thresholds from validation."""
    columns: dict[str, list[str]] = {"F1": list(F1_NAMES.values())}
    for group in read.scored():
        columns[group_name(group)] = [
            with_interval(read.of(group, metric, "macro" if metric == "f1_macro" else "all"))
            for metric in F1_NAMES
        ]
    return pd.DataFrame(columns), "l" + "c" * (len(columns) - 1)


def parity_of_platforms(read: Results) -> Table:
    """Macro AUROC, macro F1 and all labels at once, for platforms and for each platform's noise floor.

    Where nothing can be concluded for one and the same reason, one row says so for all metrics.
    """
    table = read.parity[~read.parity["dataset"].str.startswith("phantom")]
    shown = table["label"].isin(["macro", "every"])
    rows = []
    pairs = ["dataset", "architecture", "platform_a", "platform_b", "seeds_a", "seeds_b"]
    for pair, some in table[shown].groupby(pairs, sort=False, dropna=False):
        seeds = " - ".join("none" if pd.isna(one) else str(one) for one in pair[4:])
        name = {"Cells": f"{pair[0]} {pair[1]}", "Platforms": f"{pair[2]} - {pair[3]}", "Seeds": seeds}
        same = some["reason"].dropna().unique()
        if (some["verdict"] == "inconclusive").all() and len(same) == 1:
            rows.append(name | _parity_values("all", None, f"inconclusive: {same[0]}"))
            continue
        for row in some.itertuples():
            reason = "" if pd.isna(row.reason) else f": {row.reason}"
            rows.append(name | _parity_values(f"{row.metric}, {row.label}", row, row.verdict + reason))
    return pd.DataFrame(rows), "llllrrp{5cm}"


def _parity_values(metric: str, row: Any, verdict: str) -> dict[str, str]:
    difference = margin = ""
    if row is not None:
        margin = f"{row.margin:g}"
        if pd.notna(row.difference):
            difference = f"{row.difference:+.4f}"
        if pd.notna(row.ci_low):
            difference += f" ({row.ci_low:+.3f} to {row.ci_high:+.3f})"
    return {"Metric": metric, "Difference": difference, "Margin": margin, "Verdict": verdict}


def what_f1_could_be(read: Results) -> Table:
    """Each definition of F1 for the cells on real radiographs, and what it would take to reach 0.80."""
    table = read.f1_search[~read.f1_search["cell"].str.startswith("phantom")]
    rows = [
        {
            "Cell": row.cell,
            "Definition": row.definition.removeprefix("f1_").replace("_", " "),
            "Validation thresholds": _number(row.value),
            "Threshold 0.5": _number(row.value_at_half),
            "Best threshold": _number(row.value_at_best),
            "Prevalence here": _number(row.prevalence),
            "Prevalence needed": _number(row.prevalence_needed, "none"),
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "llrrrrr"


def published_beside_ours(read: Results) -> Table:
    """Published AUROC of the same split beside ours; training data and size differ, and are said."""
    table = read.literature
    table = table[table["cell"].str.endswith("seed0")] if len(table) else table
    columns: dict[str, list[str]] = {}
    for (cell, source), some in table.groupby(["cell", "source"], sort=False):
        some = some.set_index("label")
        columns.setdefault("Finding", [finding_name(label) for label in some.index])
        columns[cell] = [_number(value) for value in some["value"]]
        columns[source] = [_number(value) for value in some["published"]]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def subgroups_of_cells(read: Results) -> Table:
    """Macro AUROC by sex and view for the cells on real radiographs, with sizes."""
    table = read.subgroups
    table = table[(table["label"] == "macro") & ~table["cell"].str.startswith("phantom")]
    rows = [
        {
            "Cell": row.cell,
            "Subgroup": f"{row.group} {row.value_of_group}",
            "Images": f"{row.n_images:,.0f}",
            "Patients": counted(row.n_patients),
            "Macro AUROC": _number(row.value)
            + (f" ({row.ci_low:.3f} to {row.ci_high:.3f})" if pd.notna(row.ci_low) else ""),
            "Note": "" if pd.isna(row.note) else row.note,
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "llrrlp{5cm}"


def throughput(read: Results) -> Table:
    """Training speed beside timm's and the device's limit, as recorded on each machine."""
    rows = [
        {
            "Machine": row.host,
            "Platform": row.platform,
            "Network": row.architecture,
            "Pixels": f"{row.pixels}",
            "Batch": f"{row.batch}",
            "Precision": row.precision,
            "Images/s": f"{row.ours:.0f}",
            "timm": f"{row.timm:.0f}",
            "timm, best flags": f"{row.timm_best:.0f}",
            "Limit": f"{row.limit:.0f}",
            "Ours/timm": f"{row.ratio_to_timm:.2f}",
            "Ours/best": f"{row.ratio_to_timm_best:.2f}",
            "Share of limit": f"{row.share_of_limit:.3f}",
        }
        for row in read.throughput.itertuples()
    ]
    return pd.DataFrame(rows), "lllrrlrrrrrrr"


def claims_by_verdict(read: Results) -> Table:
    """How many claims of each source were confirmed, contradicted and so on."""
    counted = pd.crosstab(read.claims["source"], read.claims["verdict"])
    counted.insert(0, "claims", counted.sum(axis=1))
    shown = counted.astype(str).reset_index().rename(columns={"source": "Source"})
    return shown, "l" + "r" * (len(shown.columns) - 1)


def _number(value: float, missing: str = UNDEFINED) -> str:
    return f"{value:.3f}" if pd.notna(value) else missing
