"""The paper's tables of data, scores and claims: texts, and the preamble of the LaTeX tabular."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from cxrbench.analysis.parity import Cause
from cxrbench.claims import read_claims
from cxrbench.claims.ledger import VERDICTS, findings
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.paper.ledger import CLAIMS
from cxrbench.paper.multiplicity import checks_software
from cxrbench.paper.provenance import COLUMN, of_cells, of_group
from cxrbench.paper.results import (
    INTERVAL_OF,
    PHANTOM,
    Columns,
    Group,
    Results,
    Table,
    counted,
    group_name,
    is_phantom,
    listed,
    number,
    processors_differ,
    range_of_seeds,
    row_texts,
    words,
)

PROCESSORS = "Run on"  # the row that says over which processors a column pools
F1_NAMES = {
    "f1_macro": "macro",
    "f1_micro": "micro",
    "f1_weighted": "support-weighted",
    "f1_samples": "samples",
}


# -- data ------------------------------------------------------------------------------------------


def dataset_counts(read: Results) -> Table:
    """Images, patients, positive images per finding and split; datasets of the same images together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for dataset in read.cells["dataset"].unique():
        if identity := read.identity(dataset):
            for split in SPLITS:
                positive = (f"{identity.positive_images[finding][split]:,}" for finding in FINDINGS)
                counts = f"{identity.images[split]:,}", counted(identity.patients[split])
                same.setdefault((split, *counts, *positive), []).append(dataset)
    columns = {"": ["Images", "Patients", *map(words, FINDINGS), COLUMN]}
    for (split, *texts), datasets in same.items():
        evidence = of_cells(read, read.cells.loc[read.cells["dataset"].isin(datasets), "cell"])
        columns[f"{', '.join(datasets)} {split}"] = [*texts, evidence]
    broad = any("," in name for name in columns)  # such names take two lines
    return pd.DataFrame(columns), "l" + ("R{2.6cm}" if broad else "r") * (len(columns) - 1)


# -- scores ----------------------------------------------------------------------------------------

Metrics = dict[str, tuple[str, str]]  # name of a row: metric and label


def auroc_per_label(read: Results) -> Table:
    """Test AUROC per finding on the main dataset."""
    return _by_group(read, read.scored(main=True), "Finding", _per_label("auroc"))


def auroc_elsewhere(read: Results) -> Table:
    """Test AUROC per finding on all other datasets."""
    groups = [group for group in read.scored() if group[0] != read.main()]
    return _by_group(read, groups, "Finding", _per_label("auroc"))


def f1_by_definition(read: Results) -> Table:
    """Test F1 on the main dataset by definition."""
    metrics = {name: (metric, _label_of(metric)) for metric, name in F1_NAMES.items()}
    return _by_group(read, read.scored(main=True), "F1", metrics)


def average_precision(read: Results) -> Table:
    """Average precision per finding on the main dataset, beside the prevalence."""
    groups = read.scored(main=True)
    table, _ = _by_group(read, groups, "Finding", _per_label("average_precision"), processors=False)
    if groups:
        shares = _prevalence(read, groups[0])
        table.insert(1, "Prevalence", [*map(number, shares), number(shares.mean()), "", ""])
    return table, "lr" + "c" * len(groups)


def _per_label(metric: str) -> Metrics:
    return {words(label): (metric, label) for label in FINDINGS} | {"Macro": (metric, "macro")}


def _label_of(definition: str) -> str:
    return "macro" if definition == "f1_macro" else "all"


def _by_group(
    read: Results, groups: list[Group], first: str, metrics: Metrics, processors: bool = True
) -> Table:
    """Return one column per group: means over seeds, what their intervals are of, processors, evidence."""
    below: dict[str, Callable[[Group], str]] = {INTERVAL_OF: read.interval_of}
    below |= {PROCESSORS: read.processors} if processors else {}
    below |= {COLUMN: lambda group: of_group(read, *group)}
    columns = {
        group_name(group): [
            *(read.mean(group, *metric) for metric in metrics.values()),
            *(text(group) for text in below.values()),
        ]
        for group in groups
    }
    return pd.DataFrame({first: [*metrics, *below], **columns} if groups else {}), "l" + "c" * len(groups)


def _prevalence(read: Results, group: Group) -> pd.Series:
    """Return the share of positive test images of each finding."""
    rows = {label: read.of(group, "average_precision", label) for label in FINDINGS}
    return pd.Series({label: (r["n_positive"] / r["n_images"]).mean() for label, r in rows.items()})


def calibration(read: Results) -> Table:
    """Calibration of every network on real radiographs (of all where there are none), means over findings."""
    groups = [group for group in read.scored() if not group[0].startswith(PHANTOM)] or read.scored()
    rows = []
    for group in groups:
        error, chance = (
            range_of_seeds(read.of(group, name, "macro")["value"])
            for name in ("calibration_error", "calibration_error_by_chance")
        )
        rows.append(
            {
                "Network": group_name(group),
                "Calibration error": error,
                "By chance": chance,
                "In the large, %": read.mean(group, "calibration_in_the_large", "macro", scale=100),
                "Brier score": read.mean(group, "brier", "macro"),
                "Average precision": read.mean(group, "average_precision", "macro"),
                "Prevalence": number(_prevalence(read, group).mean()),
                INTERVAL_OF: read.interval_of(group),
                COLUMN: of_group(read, *group),
            }
        )
    return pd.DataFrame(rows), "lrrrrrrll"


def what_f1_could_be(read: Results) -> Table:
    """Each definition of F1 for the best network of the main dataset, and the prevalence for its target.

    At validation thresholds the mean over seeds with its interval; else from the lowest seed to the highest.
    """
    best = read.best()
    if best is None or best[0].startswith(PHANTOM):
        return pd.DataFrame(), ""
    table = read.f1_search[read.f1_search["cell"].str.startswith(f"{'/'.join(best)}/")]
    columns = {
        "Threshold 0.5": "value_at_half",
        "Best threshold": "value_at_best",
        "No skill": "value_no_skill",
        "Prevalence here": "prevalence",
    }
    rows = [
        {
            "Definition": words(definition.removeprefix("f1_")),
            "Validation thresholds": read.mean(best, definition, _label_of(definition)),
            **{head: range_of_seeds(seeds[name]) for head, name in columns.items()},
            "Prevalence needed": _needed(seeds["prevalence_needed"]),
            COLUMN: of_group(read, *best),
        }
        for definition, seeds in table.groupby("definition", sort=False)
    ]
    return pd.DataFrame(rows), "lrrrrrrl"


def _needed(seeds: pd.Series) -> str:
    """Return the prevalence that seeds need; none where no prevalence would do, any where each would.

    Where seeds differ in that, each answer has its number of seeds.
    """
    answers = {"": seeds[seeds > 0], "any": seeds[seeds == 0], "none": seeds[seeds.isna()]}
    counts = {word or range_of_seeds(some): len(some) for word, some in answers.items() if len(some)}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{answer} ({count} of {len(seeds)} seeds)" for answer, count in counts.items())


def published_beside_ours(read: Results) -> Table:
    """Published AUROC of the same split beside our best network's of the main dataset."""
    best, table = read.best(), read.literature
    if best is None or table.empty:
        return pd.DataFrame(), ""
    table = table[table["cell"].str.startswith(f"{'/'.join(best)}/")]
    labels = list(table["label"].unique())  # a source may lack findings, or list them in another order
    ours = [read.mean(best, "auroc", label) for label in labels]
    columns = {
        "Finding": [*map(words, labels), COLUMN],
        group_name(best): [*ours, of_group(read, *best)],
    }
    for source, some in table.groupby("source", sort=False):
        published = some.groupby("label")["published"].mean().reindex(labels)
        name = repository(some["citation"].iloc[0]) or words(source)
        columns[name] = [*(number(value, missing="") for value in published), "published"]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def repository(citation: str) -> str:
    """Return the GitHub repository that a citation names, as owner/name; empty when it names none."""
    found = re.search(r"github\.com/([\w.-]+/[\w.-]+)", citation)
    return found[1] if found else ""


def subgroups_of_cells(read: Results) -> Table:
    """Macro AUROC by sex and view on real radiographs; no difference is tested."""
    table = read.subgroups
    table = table[(table["label"] == "macro") & ~is_phantom(table["cell"])]
    cells = table["cell"].str.rsplit("/", n=1).str[0]
    rows = []
    for (name, kind, value), some in table.groupby([cells, "group", "value_of_group"], sort=False):
        dataset, architecture, platform = name.split("/")
        group = dataset, architecture, platform
        rows.append(
            {
                "Cells": group_name(group),
                "Subgroup": f"{kind} {value}",
                "Images": f"{some['n_images'].iloc[0]:,.0f}",
                "Patients": counted(some["n_patients"].iloc[0]),
                "Macro AUROC": read.mean(group, "auroc", f"macro, {kind} {value}", some),
                INTERVAL_OF: read.interval_of(group),
                "Note": listed(some["note"]),
                COLUMN: of_group(read, *group),
            }
        )
    return pd.DataFrame(rows), "llrrllp{5cm}l"


# -- parity ----------------------------------------------------------------------------------------


def parity_of_platforms(read: Results) -> Table:
    """Parity of platforms on real radiographs: macro AUROC, macro F1 and all labels at once."""
    return _parity(read, read.parity[~is_phantom(read.parity["dataset"])])


def parity_on_phantoms(read: Results) -> Table:
    """The same on phantoms, which say nothing about patients."""
    return _parity(read, read.parity[is_phantom(read.parity["dataset"])])


def _parity(read: Results, table: pd.DataFrame) -> Table:
    """Rows of pairs of platforms, and of macro AUROC for the noise floors, which count for their size only.

    Where no interval exists for one and the same reason, one row says so for all metrics.
    """
    columns: Columns = {
        "Metric": "{metric}, {label}",
        "Difference": _difference,
        "Margin": "{margin:g}",
        "Could show": lambda row: number(row.smallest_margin, f".{_digits(row.smallest_margin)}f", ""),
        "Verdict": _verdict,
    }
    floor = (table["kind"] == "noise floor") & ((table["metric"] != "auroc") | (table["label"] != "macro"))
    shown = table["label"].isin(["macro", "every"]) & ~floor
    pairs = ["dataset", "architecture", "platform_a", "platform_b", "seeds_a", "seeds_b"]
    rows = []
    for (dataset, network, a, b, *seeds), some in table[shown].groupby(pairs, sort=False, dropna=False):
        ran_with = " - ".join("none" if pd.isna(names) else str(names) for names in seeds)
        first = {"Cells": f"{dataset} {network}", "Platforms": f"{a} - {b}", "Seeds": ran_with}
        sides = (of_group(read, dataset, network, platform) for platform in dict.fromkeys((a, b)))
        last = {COLUMN: ", ".join(filter(None, sides))}
        texts = [row_texts(row, columns) for row in some.itertuples()]
        reasons = some["reason"].dropna().unique()
        if some["ci_low"].isna().all() and len(reasons) == 1:
            together = {"Metric": "all", "Verdict": f"inconclusive: {reasons[0]}"}
            texts = [dict.fromkeys(columns, "") | together]
        rows += [first | text | last for text in texts]
    return pd.DataFrame(rows), "llllrrrp{3.4cm}l"


def _difference(row: Any) -> str:
    """Return a difference with its interval, or alone where it has none."""
    if pd.isna(row.ci_low):
        return number(row.difference, "+.4f", "")
    digits = _digits((row.ci_high - row.ci_low) / 2)
    limits = (f"{limit:+.{digits}f}" for limit in (row.difference, row.ci_low, row.ci_high))
    return "{} ({} to {})".format(*limits)


def _digits(half_width: float) -> int:
    """Return the decimals that show two digits of an interval's half-width, three at least."""
    return max(3, 1 - math.floor(math.log10(half_width))) if half_width > 0 else 3


def _verdict(row: Any) -> str:
    """Return the verdict on a pair and its reason; a platform beside itself has none if its size is known."""
    floor = row.kind == "noise floor"
    verdict = "noise floor" if floor and pd.notna(row.ci_low) else row.verdict
    if verdict == row.verdict and pd.notna(row.reason) and row.cause != Cause.MARGIN:
        verdict += f": {row.reason}"  # a margin too small stands in a column of its own
    notes = ["check of software"] if not floor and checks_software(row) else []
    if processors_differ(row):
        notes.append(f"processors differ: {row.processors_a} against {row.processors_b}")
    return "; ".join([verdict, *notes])


# -- claims ----------------------------------------------------------------------------------------


def claims_by_verdict(read: Results) -> Table:
    """How many claims of each source have which verdict, and how many findings against it they are."""
    counts = pd.crosstab(read.claims["source"], read.claims["verdict"])
    counts = counts[[verdict for verdict in VERDICTS if verdict in counts]]
    counts.insert(0, "claims", counts.sum(axis=1))
    counts["findings"] = [findings(read.claims[read.claims["source"] == name]) for name in counts.index]
    shown = counts.astype(str).reset_index().rename(columns={"source": "Source"})
    return shown, "l" + "r" * (len(shown.columns) - 1)


def sources(read: Results) -> Table:
    """Who says what is tested: author, title, place, and what they may gain by it."""
    fields = ("author", "title", "where", "interest")
    rows = [
        {"Source": key} | {name.capitalize(): getattr(source, name) for name in fields}
        for key, source in read_claims(CLAIMS).sources.items()
        if key in set(read.claims["source"])
    ]
    return pd.DataFrame(rows), "lp{3cm}p{5cm}p{3.5cm}p{3cm}"


def facts(read: Results) -> Table:
    """Facts that several entries rest on: those entries are one finding."""
    rows = read.claims[read.claims["rests_on"] != ""]
    table = rows.groupby(["rests_on", "fact"], sort=False)["id"].agg(", ".join).reset_index()
    return table.set_axis(["Name", "Fact", "Entries"], axis=1), "lp{9cm}p{4cm}"
