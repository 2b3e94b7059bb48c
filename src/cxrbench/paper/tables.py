"""The paper's tables: a DataFrame of texts and the preamble of its LaTeX tabular."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd

from cxrbench.analysis.parity import Cause, checks_software
from cxrbench.claims.ledger import VERDICTS, findings
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.paper import provenance
from cxrbench.paper.results import (
    INTERVAL_OF,
    PHANTOM,
    UNDEFINED,
    Group,
    Results,
    Table,
    counted,
    finding_name,
    group_name,
    listed,
    processors_differ,
    range_of_seeds,
)

PROCESSORS = "Run on"  # the row that says over which processors a column pools
F1_NAMES = {
    "f1_macro": "macro",
    "f1_micro": "micro",
    "f1_weighted": "support-weighted",
    "f1_samples": "samples",
}


def dataset_counts(read: Results) -> Table:
    """Images, patients, positive images per finding and split; datasets of the same images together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for dataset in dict.fromkeys(read.cells["dataset"]):
        if identity := read.identity(dataset):
            for split in SPLITS:
                positive = [identity.positive_images[finding][split] for finding in FINDINGS]
                counts = f"{identity.images[split]:,}", counted(identity.patients[split])
                same.setdefault((split, *counts, *(f"{count:,}" for count in positive)), []).append(dataset)
    columns = {"": ["Images", "Patients", *map(finding_name, FINDINGS), provenance.COLUMN]}
    for (split, *texts), datasets in same.items():
        evidence = provenance.of_cells(read, read.cells.loc[read.cells["dataset"].isin(datasets), "cell"])
        columns[f"{', '.join(datasets)} {split}"] = [*texts, evidence]
    broad = any("," in name for name in columns)  # such names take two lines
    return pd.DataFrame(columns), "l" + ("R{2.6cm}" if broad else "r") * (len(columns) - 1)


def auroc_per_label(read: Results) -> Table:
    """Test AUROC per finding, main dataset: mean over seeds with its interval over patients and seeds."""
    return _auroc(read, [group for group in read.scored() if group[0] == read.main()])


def auroc_elsewhere(read: Results) -> Table:
    """The same for all other datasets."""
    return _auroc(read, [group for group in read.scored() if group[0] != read.main()])


def _auroc(read: Results, groups: list[Group]) -> Table:
    columns = {"Finding": [*map(finding_name, FINDINGS), "Macro", INTERVAL_OF, PROCESSORS, provenance.COLUMN]}
    for group in groups:
        columns[group_name(group)] = [
            *(read.mean(group, "auroc", label) for label in (*FINDINGS, "macro")),
            read.interval_of(group),
            read.processors(group),
            provenance.of_group(read, *group),
        ]
    return pd.DataFrame(columns if groups else {}), "l" + "c" * (len(columns) - 1)


def f1_by_definition(read: Results) -> Table:
    """Test F1 of the main dataset by definition, means over seeds with the interval of that mean.

    Thresholds come from validation; intervals include what other validation patients would make of them.
    """
    columns: dict[str, list[str]] = {"F1": [*F1_NAMES.values(), INTERVAL_OF, PROCESSORS, provenance.COLUMN]}
    for group in [group for group in read.scored() if group[0] == read.main()]:
        columns[group_name(group)] = [
            *(read.mean(group, metric, _label_of(metric)) for metric in F1_NAMES),
            read.interval_of(group),
            read.processors(group),
            provenance.of_group(read, *group),
        ]
    return pd.DataFrame(columns), "l" + "c" * (len(columns) - 1)


def _label_of(definition: str) -> str:
    return "macro" if definition == "f1_macro" else "all"


def parity_of_platforms(read: Results) -> Table:
    """Parity of platforms on real radiographs: macro AUROC, macro F1 and all labels at once.

    Family: the labels of one pair, different after Holm's correction, equivalent when each one is. Macro
    AUROC and F1 are a claim each, uncorrected (F1's thresholds are chosen anew in its interval), and so are
    the pairs among each other: of many verdicts at five percent some are false by chance. A pair without an
    accelerator is a check of the software.
    """
    return _parity(read, read.parity[~read.parity["dataset"].str.startswith(PHANTOM)])


def parity_on_phantoms(read: Results) -> Table:
    """The same on phantoms, which say nothing about patients, with the same families and corrections."""
    return _parity(read, read.parity[read.parity["dataset"].str.startswith(PHANTOM)])


def _parity(read: Results, table: pd.DataFrame) -> Table:
    """Rows of pairs of platforms, and of macro AUROC for the noise floors, which count for their size only.

    Where no interval exists for one and the same reason, one row says so for all metrics.
    """
    floor = (table["kind"] == "noise floor") & ((table["metric"] != "auroc") | (table["label"] != "macro"))
    shown = table["label"].isin(["macro", "every"]) & ~floor
    rows = []
    pairs = ["dataset", "architecture", "platform_a", "platform_b", "seeds_a", "seeds_b"]
    for pair, some in table[shown].groupby(pairs, sort=False, dropna=False):
        seeds = " - ".join("none" if pd.isna(one) else str(one) for one in pair[4:])
        name = {"Cells": f"{pair[0]} {pair[1]}", "Platforms": f"{pair[2]} - {pair[3]}", "Seeds": seeds}
        both = [
            provenance.of_group(read, pair[0], pair[1], platform) for platform in dict.fromkeys(pair[2:4])
        ]
        evidence = {provenance.COLUMN: ", ".join(filter(None, both))}
        same = some["reason"].dropna().unique()
        if some["ci_low"].isna().all() and len(same) == 1:
            rows.append(name | _parity_values("all", None, f"inconclusive: {same[0]}") | evidence)
            continue
        for row in some.itertuples():
            check = "check of software" if row.kind != "noise floor" and checks_software(row) else ""
            verdict = "; ".join(filter(None, [_verdict(row), check, _processors(row)]))
            rows.append(name | _parity_values(f"{row.metric}, {row.label}", row, verdict) | evidence)
    return pd.DataFrame(rows), "llllrrrp{3.4cm}l"


def _verdict(row: Any) -> str:
    """The verdict on a pair and its reason; a platform beside itself has none, unless its size is unknown."""
    if row.kind == "noise floor" and pd.notna(row.ci_low):
        return "noise floor"
    said = pd.isna(row.reason) or row.cause == Cause.MARGIN  # by the smallest margin
    return row.verdict if said else f"{row.verdict}: {row.reason}"


def _processors(row: Any) -> str:
    """That the two sides of a row ran on different processors; empty where they did not."""
    if not processors_differ(row):
        return ""
    return f"processors differ: {row.processors_a} against {row.processors_b}"


def _parity_values(metric: str, row: Any, verdict: str) -> dict[str, str]:
    difference = margin = smallest = ""
    if row is not None:
        margin = f"{row.margin:g}"
        least = row.smallest_margin
        smallest = f"{least:.{_digits(least)}f}" if pd.notna(least) else ""
        if pd.notna(row.ci_low):
            digits = _digits((row.ci_high - row.ci_low) / 2)
            ends = (f"{end:+.{digits}f}" for end in (row.difference, row.ci_low, row.ci_high))
            difference = "{} ({} to {})".format(*ends)
        elif pd.notna(row.difference):
            difference = f"{row.difference:+.4f}"
    margins = {"Margin": margin, "Could show": smallest}
    return {"Metric": metric, "Difference": difference, **margins, "Verdict": verdict}


def _digits(half_width: float) -> int:
    """Decimals that show two digits of an interval's half-width, three at least."""
    return max(3, 1 - math.floor(math.log10(half_width))) if half_width > 0 else 3


def what_f1_could_be(read: Results) -> Table:
    """Each definition of F1 for the best network of the main dataset, and what it would take to reach 0.80.

    At validation thresholds the mean over seeds with its interval, thresholds chosen anew; else from the
    lowest seed to the highest. Where only some seeds would reach it, how many. The CSV of every cell is
    f1_search.csv.
    """
    best = read.best()
    table = read.f1_search[~read.f1_search["cell"].str.startswith(PHANTOM)]
    if best is None or table.empty:
        return pd.DataFrame(), ""
    table = table[table["cell"].str.startswith("/".join(best) + "/")]
    rows = [
        {
            "Definition": str(definition).removeprefix("f1_").replace("_", " "),
            "Validation thresholds": read.mean(best, str(definition), _label_of(str(definition))),
            "Threshold 0.5": range_of_seeds(seeds["value_at_half"]),
            "Best threshold": range_of_seeds(seeds["value_at_best"]),
            "No skill": range_of_seeds(seeds["value_no_skill"]),
            "Prevalence here": range_of_seeds(seeds["prevalence"]),
            "Prevalence needed": _needed(seeds["prevalence_needed"]),
            provenance.COLUMN: provenance.of_group(read, *best),
        }
        for definition, seeds in table.groupby("definition", sort=False)
    ]
    return pd.DataFrame(rows), "lrrrrrrl"


def _needed(seeds: pd.Series) -> str:
    """The prevalence that seeds need, none where no prevalence would do, any where each would; where the
    seeds differ in that, each answer with its number of seeds."""
    answers = {"": seeds[seeds > 0], "any": seeds[seeds == 0], "none": seeds[seeds.isna()]}
    said = {word or range_of_seeds(some): len(some) for word, some in answers.items() if len(some)}
    if len(said) == 1:
        return next(iter(said))
    return ", ".join(f"{answer} ({count} of {len(seeds)} seeds)" for answer, count in said.items())


def published_beside_ours(read: Results) -> Table:
    """Published AUROC of the same split beside our best network's of the main dataset; training data and size
    differ."""
    best, table = read.best(), read.literature
    if best is None or table.empty:
        return pd.DataFrame(), ""
    table = table[table["cell"].str.startswith("/".join(best) + "/")]
    labels = list(table["label"].unique())  # a source may lack findings, or list them in another order
    columns = {
        "Finding": [*map(finding_name, labels), provenance.COLUMN],
        group_name(best): [
            *(read.mean(best, "auroc", label) for label in labels),
            provenance.of_group(read, *best),
        ],
    }
    for source, some in table.groupby("source", sort=False):
        published = some.groupby("label")["published"].mean().reindex(labels)
        name = repository(some["citation"].iloc[0]) or str(source).replace("_", " ")
        columns[name] = [*(_number(value, "") for value in published), "published"]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def repository(citation: str) -> str:
    """The GitHub repository that a citation names, as owner/name; empty when it names none."""
    found = re.search(r"github\.com/([\w.-]+/[\w.-]+)", citation)
    return found[1] if found else ""


def subgroups_of_cells(read: Results) -> Table:
    """Macro AUROC by sex and view on real radiographs, means over seeds with the interval of that mean, or
    of the one network; no difference is tested."""
    table = read.subgroups
    table = table[(table["label"] == "macro") & ~table["cell"].str.startswith(PHANTOM)]
    table = table.assign(cells=table["cell"].str.rsplit("/", n=1).str[0])
    rows = []
    for (cells, kind, value), some in table.groupby(["cells", "group", "value_of_group"], sort=False):
        group: Group = tuple(str(cells).split("/"))  # type: ignore[assignment]
        rows.append(
            {
                "Cells": " ".join(group),
                "Subgroup": f"{kind} {value}",
                "Images": f"{some['n_images'].iloc[0]:,.0f}",
                "Patients": counted(some["n_patients"].iloc[0]),
                "Macro AUROC": read.mean(group, "auroc", f"macro, {kind} {value}", some),
                INTERVAL_OF: read.interval_of(group),
                "Note": listed(some["note"]),
                provenance.COLUMN: provenance.of_group(read, *group),
            }
        )
    return pd.DataFrame(rows), "llrrllp{5cm}l"


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
            "timm, channels last": f"{row.timm_best:.0f}",
            "Limit": f"{row.limit:.0f}",
            "Ours/timm": f"{row.ratio_to_timm:.2f}",
            "Ours/channels last": f"{row.ratio_to_timm_best:.2f}",
            "Share of limit": f"{row.share_of_limit:.3f}",
            provenance.COLUMN: provenance.of_files(read.recorded, "train", row.host),
        }
        for row in read.throughput.itertuples()
    ]
    return pd.DataFrame(rows), "lllrrlrrrrrrrl"


def claims_by_verdict(read: Results) -> Table:
    """How many claims of each source have which verdict, and how many findings against it they are: claims
    that rest on one fact are one finding."""
    counted = pd.crosstab(read.claims["source"], read.claims["verdict"])
    counted = counted[[verdict for verdict in VERDICTS if verdict in counted]]
    counted.insert(0, "claims", counted.sum(axis=1))
    counted["findings"] = [findings(read.claims[read.claims["source"] == name]) for name in counted.index]
    shown = counted.astype(str).reset_index().rename(columns={"source": "Source"})
    return shown, "l" + "r" * (len(shown.columns) - 1)


def _number(value: float, missing: str = UNDEFINED) -> str:
    return f"{value:.3f}" if pd.notna(value) else missing
