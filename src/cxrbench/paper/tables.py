"""The paper's tables of data and scores."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from cxrbench.analysis.estimates import ENDPOINT
from cxrbench.analysis.pairs import JUDGED
from cxrbench.analysis.parity import Cause
from cxrbench.analysis.subgroups import NO_CLAIM, WIDEST
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Columns, Row, Table
from cxrbench.paper.results import PHANTOM, Group, Results, is_phantom, processors_differ, range_of_seeds
from cxrbench.study.recipe import SPLITS

INTERVAL_OF = "Interval of"  # the row or column that says what an interval speaks of
PROCESSORS = "Run on"  # the row that says over which processors a column pools


def dataset_counts(read: Results) -> Table:
    """Images, patients, positive images per finding and split; datasets of the same images together."""
    identities = {name: found for name in read.cells["dataset"].unique() if (found := read.identity(name))}
    findings = list(dict.fromkeys(name for found in identities.values() for name in found.positive_images))
    same: dict[tuple[str, ...], list[str]] = {}
    for dataset, identity in identities.items():
        for split in SPLITS:
            known = (identity.positive_images.get(finding) for finding in findings)
            positive = (f"{counts[split]:,}" if counts else fmt.UNDEFINED for counts in known)
            images = f"{identity.images[split]:,}", fmt.counted(identity.patients[split])
            same.setdefault((split, *images, *positive), []).append(dataset)
    columns = {"": ["Images", "Patients", *map(fmt.words, findings)]}
    for (split, *texts), datasets in same.items():
        columns[f"{fmt.first_of(datasets)} {split}"] = texts
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def auroc_per_label(read: Results) -> Table:
    """Test AUROC per finding on the main dataset."""
    return _per_label(read, read.scored(main=True), "auroc")


def auroc_elsewhere(read: Results) -> Table:
    """Test AUROC per finding on other images: of the datasets that share images, the first."""
    packed = read.cells.groupby("dataset", sort=False)["packed"].first()
    first = packed[packed != packed.get(read.main())].drop_duplicates().index
    return _per_label(read, [group for group in read.scored() if group[0] in first], "auroc")


@fmt.table("lrrrl")
def main_endpoint(read: Results) -> Iterator[Row]:
    """The main endpoint of every network beside the mean over all findings, and with each patient once."""
    for group in [group for group in read.scored() if not group[0].startswith(PHANTOM)] or read.scored():
        yield {
            "Network": " ".join(group),
            "Main endpoint": read.mean(group, "auroc", ENDPOINT),
            "All findings": read.mean(group, "auroc", "macro"),
            "Main endpoint, each patient once": read.mean(group, "auroc_patient_weighted", ENDPOINT),
            INTERVAL_OF: read.interval_of(group),
        }


def average_precision(read: Results) -> Table:
    """Average precision per finding on the main dataset, beside the prevalence."""
    groups = read.scored(main=True)
    table, _ = _per_label(read, groups, "average_precision")
    if groups:
        shares = _prevalence(read, groups[0])
        table = table[table["Finding"] != PROCESSORS]
        table.insert(1, "Prevalence", [*map(fmt.number, shares), fmt.number(shares.mean()), ""])
    return table, "lr" + "c" * len(groups)


def f1_by_definition(read: Results) -> Table:
    """Test F1 on the main dataset by definition."""
    kinds = {"macro": "macro", "micro": "micro", "support-weighted": "weighted", "samples": "samples"}
    rows = {name: partial(read.f1, definition=f"f1_{kind}") for name, kind in kinds.items()}
    return _by_group(read, read.scored(main=True), "F1", rows)


def _per_label(read: Results, groups: list[Group], metric: str) -> Table:
    findings = dict.fromkeys(finding for group in groups for finding in read.findings(*group))
    labels = {fmt.words(label): label for label in findings}
    labels |= {"Main endpoint": ENDPOINT} if metric == "auroc" else {}
    labels |= {"Macro": "macro"}
    rows = {name: partial(read.mean, metric=metric, label=label) for name, label in labels.items()}
    return _by_group(read, groups, "Finding", rows)


def _by_group(
    read: Results, groups: list[Group], first: str, rows: Mapping[str, Callable[[Group], str]]
) -> Table:
    """Return one column per group: ``rows``, what their intervals are of, processors."""
    below = {INTERVAL_OF: read.interval_of, PROCESSORS: read.processors}
    texts = {**rows, **below}
    columns = {" ".join(group): [text(group) for text in texts.values()] for group in groups}
    return pd.DataFrame({first: [*texts], **columns} if groups else {}), "l" + "c" * len(groups)


def _prevalence(read: Results, group: Group) -> pd.Series:
    """Return the share of positive test images of each finding."""
    rows = {label: read.of(group, "average_precision", label) for label in read.findings(*group)}
    return pd.Series({label: (r["n_positive"] / r["n_images"]).mean() for label, r in rows.items()})


@fmt.table("lrrrrrrl")
def calibration(read: Results) -> Iterator[Row]:
    """Calibration of every network on real radiographs (of all where there are none), means over findings."""
    for group in [group for group in read.scored() if not group[0].startswith(PHANTOM)] or read.scored():
        chance = read.of(group, "calibration_error_by_chance", "macro")["value"]
        yield {
            "Network": " ".join(group),
            "Calibration error": range_of_seeds(read.of(group, "calibration_error", "macro")["value"]),
            "By chance": range_of_seeds(chance),
            "In the large, %": read.mean(group, "calibration_in_the_large", "macro", scale=100),
            "Brier score": read.mean(group, "brier", "macro"),
            "Average precision": read.mean(group, "average_precision", "macro"),
            "Prevalence": fmt.number(_prevalence(read, group).mean()),
            INTERVAL_OF: read.interval_of(group),
        }


@fmt.table("lrrrrrr")
def what_f1_could_be(read: Results) -> Iterator[Row]:
    """Each definition of F1 for the best network of the main dataset, and the prevalence for its target."""
    best = read.best()
    if best is None:
        return
    for definition, seeds in read.rows_of_cells(read.f1_search, best).groupby("definition", sort=False):
        yield {
            "Definition": fmt.words(definition.removeprefix("f1_")),
            "Validation thresholds": read.f1(best, definition),
            "Threshold 0.5": range_of_seeds(seeds["value_at_half"]),
            "Best threshold": range_of_seeds(seeds["value_at_best"]),
            "No skill": range_of_seeds(seeds["value_no_skill"]),
            "Prevalence here": range_of_seeds(seeds["prevalence"]),
            "Prevalence needed": _needed(seeds["prevalence_needed"]),
        }


def _needed(seeds: pd.Series) -> str:
    """Return the prevalence that seeds need: a range, none, or any; with counts where seeds differ."""
    answers = {"": seeds[seeds > 0], "any": seeds[seeds == 0], "none": seeds[seeds.isna()]}
    counts = {word or range_of_seeds(some): len(some) for word, some in answers.items() if len(some)}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{answer} ({count} of {len(seeds)} seeds)" for answer, count in counts.items())


def published_beside_ours(read: Results) -> Table:
    """Published AUROC of the same split beside our best on the main dataset and on the largest images."""
    best = read.best()
    if best is None or read.literature.empty:
        return pd.DataFrame(), ""
    table = read.rows_of_cells(read.literature, best)
    labels = list(table["label"].unique())  # a source may lack findings, or list them in another order
    columns = {"Finding": [*map(fmt.words, labels)]}
    for group in dict.fromkeys((best, read.largest() or best)):
        columns[" ".join(group)] = [read.mean(group, "auroc", label) for label in labels]
    for source, some in table.groupby("source", sort=False):
        published = some.groupby("label")["published"].mean().reindex(labels)
        repository = re.search(r"github\.com/([\w.-]+/[\w.-]+)", some["citation"].iloc[0])
        name = repository[1] if repository else fmt.words(source)
        columns[name] = [fmt.number(value, missing="") for value in published]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


@fmt.table("lllrrrl")
def what_settings_are_worth(read: Results) -> Iterator[Row]:
    """A network under two settings of the study, on the same real radiographs, by the main endpoint."""
    table = read.contrasts
    shown = table[(table["label"] == ENDPOINT) & ~is_phantom(table["dataset_a"])]
    for row in shown.itertuples():
        yield {
            "Network": f"{row.architecture} {row.platform}",
            "Settings": f"{row.dataset_a} - {row.dataset_b}",
            "They differ in": row.differs,
            "First": f"{row.mean_a:.3f}",
            "Second": f"{row.mean_b:.3f}",
            "Difference": fmt.difference(row),
            "Verdict": _judged(row),
        }


@fmt.table("llrrrl")
def precisions(read: Results) -> Iterator[Row]:
    """A network in two precisions and nothing else changed, by the main endpoint, with its verdict."""
    table = read.contrasts
    table = table[(table["label"] == ENDPOINT) & ~is_phantom(table["dataset_a"])]
    columns: Columns = {
        "Network": "{architecture}",
        "Datasets": "{dataset_a} - {dataset_b}",
        "Seeds": lambda row: str(len(str(row.seeds_a).split(","))),
        "Difference": lambda row: fmt.difference(row, "ci90"),
        "Margin": "{margin:g}",
        "Verdict": lambda row: f"{row.verdict}{' *' if processors_differ(row) else ''}",
    }
    return iter(fmt.rows(table[table["differs"] == JUDGED], columns))


@fmt.table("llrrlll")
def subgroups_of_cells(read: Results) -> Iterator[Row]:
    """Macro AUROC by sex and view on real radiographs; no difference is tested."""
    table = read.subgroups
    table = table[(table["label"] == "macro") & ~is_phantom(table["cell"])]
    cells = table["cell"].str.rsplit("/", n=1).str[0]
    for (name, kind, value), some in table.groupby([cells, "group", "value_of_group"], sort=False):
        group: Group = tuple(name.split("/"))  # type: ignore[assignment]
        shown = read.of_mean(group, "auroc", f"macro, {kind} {value}", some)
        narrow = (shown["ci_high"] - shown["ci_low"] <= WIDEST).all()  # false for an unknown interval too
        without = f"without {names}" if (names := fmt.listed(some["left_out"])) else ""
        yield {
            "Cells": " ".join(group),
            "Subgroup": f"{kind} {value}",
            "Images": f"{some['n_images'].iloc[0]:,.0f}",
            "Patients": fmt.counted(some["n_patients"].iloc[0]),
            "Macro AUROC": read.mean(group, "auroc", f"macro, {kind} {value}", some),
            INTERVAL_OF: read.interval_of(group),
            "Note": "; ".join(filter(None, [without, "" if narrow else NO_CLAIM])),
        }


def _parity(read: Results, drawn: bool | None, floors: bool = False) -> Iterator[Row]:
    """Yield rows of pairs, one where no metric has an interval; of noise floors the main endpoint's size."""
    table = read.parity[(read.parity["kind"] == "noise floor") == floors]
    if drawn is not None:
        table = table[is_phantom(table["dataset"]) == drawn]
    columns: Columns = {
        "Metric": lambda row: (
            "auroc, main endpoint" if row.label == ENDPOINT else f"{row.metric}, {row.label}"
        ),
        "Difference": lambda row: fmt.difference(row, "ci90"),
        "Margin": "{margin:g}",
        "Could show": lambda row: fmt.number(row.smallest_margin, f".{fmt.digits(row.smallest_margin)}f", ""),
        "Verdict": _verdict,
    }
    shown = table["label"].isin([ENDPOINT] if floors else [ENDPOINT, "macro", "every"])
    pairs = ["dataset", "architecture", "platform_a", "platform_b", "seeds_a", "seeds_b"]
    for (dataset, network, a, b, *seeds), some in table[shown].groupby(pairs, sort=False, dropna=False):
        ran_with = " - ".join("none" if pd.isna(names) else str(names) for names in seeds)
        first = {"Cells": f"{dataset} {network}", "Platforms": f"{a} - {b}", "Seeds": ran_with}
        reasons = some["reason"].dropna().unique()
        if some["ci_low"].isna().all() and len(reasons) == 1:
            rows = [dict.fromkeys(columns, "") | {"Metric": "all", "Verdict": f"inconclusive: {reasons[0]}"}]
        else:
            rows = fmt.rows(some, columns)
        yield from (first | row for row in rows)


parity_of_platforms = fmt.table("llllrrrl")(partial(_parity, drawn=False))
parity_on_phantoms = fmt.table("llllrrrl")(partial(_parity, drawn=True))
noise_floors = fmt.table("llllrrrl")(partial(_parity, drawn=None, floors=True))


def _verdict(row: Any) -> str:
    """Return the verdict on a pair and its reason, or only ``noise floor`` for one that has an interval."""
    floor = row.kind == "noise floor"
    verdict = "noise floor" if floor and pd.notna(row.ci_low) else row.verdict
    if verdict == row.verdict and pd.notna(row.reason) and row.cause != Cause.MARGIN:
        verdict += f": {row.reason}"  # a margin too small stands in a column of its own
    if getattr(row, "mixed_updates", False):  # the same mathematics (platforms/adamw.py)
        verdict += "; seeds of one side with updates that round differently"
    return f"{verdict} *" if processors_differ(row) else verdict


def _judged(row: Any) -> str:
    """Return the verdict on two settings with the interval that it rests on; empty where none was
    declared."""
    if not row.verdict or pd.isna(row.verdict):
        return ""
    ends = f"{row.verdict} within {row.margin:g}: {row.ci90_low:+.4f} to {row.ci90_high:+.4f}"
    return f"{ends} *" if processors_differ(row) else ends
