"""The paper's tables of data and scores."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os.path import commonprefix
from typing import Any

import pandas as pd

from cxrbench.paper.formats import (
    UNDEFINED,
    Columns,
    Fields,
    Judgement,
    Parts,
    Range,
    Table,
    WithInterval,
    first_of,
    kinds_of,
    listed,
    of_kinds,
    row,
    table,
    words,
)
from cxrbench.paper.results import (
    Group,
    Results,
    difference,
    processors_differ,
    range_of_seeds,
    real_contrasts,
    seeds_of,
)
from cxrbench.results.pairs import PRECISION
from cxrbench.results.subgroups import NO_CLAIM, WIDEST
from cxrbench.statistics.f1_search import OTHERS
from cxrbench.statistics.metrics import ENDPOINT, EVERY, MACRO, in_words
from cxrbench.statistics.parity import Cause, family
from cxrbench.study.names import GROUP
from cxrbench.study.recipe import SPLITS

_INTERVAL_OF = "Interval of"  # the row or column that says what an interval speaks of
_PROCESSORS = "Run on"  # the row that says over which processors a column pools


def dataset_counts(read: Results) -> Table:
    """Images, patients, positive images per finding and split; datasets of the same images together, without
    folds of cross-fitting."""
    names = read.cells["dataset"].unique()
    shown = [name for name in names if not read.study.set_apart(name)] or names
    identities = {name: facts for name in shown if (facts := read.identity(name))}
    findings = list(dict.fromkeys(name for facts in identities.values() for name in facts.positive_images))
    same: dict[tuple[Any, ...], list[str]] = {}
    for dataset, identity in identities.items():
        for split in SPLITS:
            counts = (identity.positive_images.get(finding) for finding in findings)
            positive = (count[split] if count else UNDEFINED for count in counts)
            sizes = identity.images[split], identity.patients[split] or "unknown"
            same.setdefault((split, *sizes, *positive), []).append(dataset)
    columns = {f"{_same_images(datasets)} {split}": counts for (split, *counts), datasets in same.items()}
    rows = pd.DataFrame({"": ["Images", "Patients", *map(words, findings)]} | columns, dtype=object)
    return Table(rows, dict.fromkeys(columns, "count"))


def _same_images(datasets: list[str]) -> str:
    """A dataset, or what the names of several begin with and a star."""
    shared = commonprefix(datasets)  # noqa: RUF071 (names, not paths)
    return f"{shared}*" if len(datasets) > 1 and len(shared) > 2 else first_of(datasets)


def auroc_per_label(read: Results) -> Table:
    """Test AUROC per finding on the main dataset."""
    return _per_label(read, read.scored(main=True), "auroc")


def auroc_elsewhere(read: Results) -> Table:
    """Test AUROC per finding on other images: of the datasets that share images, the first."""
    packed = read.cells.groupby("dataset", sort=False)["packed"].first()
    first = packed[packed != packed.get(read.main())].drop_duplicates().index
    groups = [group for group in read.scored() if group[0] in first and not read.study.set_apart(group[0])]
    return _per_label(read, groups, "auroc")


@of_kinds(dict.fromkeys(("Main endpoint", "All findings", "Each patient once"), "auroc"))
def main_endpoint(read: Results) -> Iterator[Fields]:
    """The main endpoint of every network beside the mean over all findings, and with each patient once."""
    for group in _real(read):
        yield {
            "Dataset": group[0],
            "Network": ", ".join(group[1:]),
            "Main endpoint": read.mean(group, "auroc", ENDPOINT),
            "All findings": read.mean(group, "auroc", MACRO),
            "Each patient once": read.mean(group, "auroc_patient_weighted", ENDPOINT),
            _INTERVAL_OF: read.interval_of(group),
        }


def _real(read: Results) -> list[Group]:
    """The groups that were scored on real radiographs and are not set apart; all where there are none."""
    apart = [group for group in read.scored() if read.study.set_apart(group[0])]
    shown = [group for group in read.scored() if group[0] not in read.drawn and group not in apart]
    return shown or read.scored()


def average_precision(read: Results) -> Table:
    """Average precision per finding on the main dataset, beside the prevalence."""
    groups = read.scored(main=True)
    shown = _per_label(read, groups, "average_precision")
    if not groups:
        return shown
    shares = read.prevalence(groups[0])
    shown.rows.insert(1, "Prevalence", [*shares, shares.mean()])
    foot = shown.foot.head(1).assign(Prevalence="")
    return Table(shown.rows, {**shown.kinds, "Prevalence": "score"}, foot)


def f1_by_definition(read: Results) -> Table:
    """Test F1 on the main dataset by definition."""
    kinds = {"macro": "macro", "micro": "micro", "support-weighted": "weighted", "samples": "samples"}
    rows = {name: partial(read.f1, definition=f"f1_{kind}") for name, kind in kinds.items()}
    return _by_group(read, read.scored(main=True), "F1", rows)


def _per_label(read: Results, groups: list[Group], metric: str) -> Table:
    findings = dict.fromkeys(finding for group in groups for finding in read.findings(*group))
    labels = {words(label): label for label in findings}
    labels |= {"Main endpoint": ENDPOINT} if metric == "auroc" else {}
    labels |= {"Macro": MACRO}
    rows = {name: partial(read.mean, metric=metric, label=label) for name, label in labels.items()}
    return _by_group(read, groups, "Finding", rows)


def _by_group(
    read: Results, groups: list[Group], first: str, rows: Mapping[str, Callable[[Group], WithInterval]]
) -> Table:
    """One column per group; below them what their intervals are of, and their processors."""
    columns = {" ".join(group): [value(group) for value in rows.values()] for group in groups}
    below = {_INTERVAL_OF: read.interval_of, _PROCESSORS: read.processors}
    foot = [
        {first: name} | {" ".join(group): word(group) for group in groups} for name, word in below.items()
    ]
    values = pd.DataFrame({first: [*rows]} | columns, dtype=object) if groups else pd.DataFrame()
    return Table(values, dict.fromkeys(columns, "auroc"), pd.DataFrame(foot if groups else []))


_CALIBRATION = ("Calibration error", "By chance", "In the large, %", "Brier score", "Average precision")


@of_kinds({**dict.fromkeys(_CALIBRATION, "auroc"), "Prevalence": "score"})
def calibration(read: Results) -> Iterator[Fields]:
    """Calibration of every network on real radiographs (of all where there are none), means over findings."""
    for group in _real(read):
        chance = read.of(group, "calibration_error_by_chance", MACRO)["value"]
        yield {
            "Network": " ".join(group),
            "Calibration error": range_of_seeds(read.of(group, "calibration_error", MACRO)["value"]),
            "By chance": range_of_seeds(chance),
            "In the large, %": read.mean(group, "calibration_in_the_large", "macro", scale=100),
            "Brier score": read.mean(group, "brier", MACRO),
            "Average precision": read.mean(group, "average_precision", MACRO),
            "Prevalence": read.prevalence(group).mean(),
            _INTERVAL_OF: read.interval_of(group),
        }


_F1 = (
    *("Validation thresholds", "Threshold 0.5", "Best threshold", "No skill", "Prevalence here"),
    "Prevalence needed",
)


@of_kinds(dict.fromkeys(_F1, "score"))
def what_f1_could_be(read: Results) -> Iterator[Fields]:
    """Each definition of F1 for the best network of the main dataset, and the prevalence for its target."""
    best = read.best()
    if best is None:
        return
    for definition, seeds in read.rows_of_cells(read.f1_search, best).groupby("definition", sort=False):
        other = definition in OTHERS
        yield {
            "Definition": words(definition.removeprefix("f1_")),
            "Validation thresholds": range_of_seeds(seeds["value"]) if other else read.f1(best, definition),
            "Threshold 0.5": range_of_seeds(seeds["value_at_half"]),
            "Best threshold": "-" if other else range_of_seeds(seeds["value_at_best"]),
            "No skill": range_of_seeds(seeds["value_no_skill"]),
            "Prevalence here": "-" if other else range_of_seeds(seeds["prevalence"]),
            "Prevalence needed": "-" if other else _needed(seeds["prevalence_needed"]),
        }


def _needed(seeds: pd.Series) -> Parts:
    """The prevalence that seeds need: a range, none, or any; with counts where seeds differ."""
    parts: list[Any] = []
    answered = {"": seeds[seeds > 0], "any": seeds[seeds == 0], "none": seeds[seeds.isna()]}
    for word, answers in answered.items():
        note = f"{len(answers)} of {len(seeds)} seeds" if len(answers) < len(seeds) else ""
        worded = f"{word} ({note})" if note else word
        if len(answers):
            parts.append(worded if word else Range(answers.min(), answers.max(), note))
    return Parts(tuple(parts), ", ")


def published_beside_ours(read: Results) -> Table:
    """Published AUROC of the same split beside our best on the largest images, on the main dataset if those
    have none; the table of AUROC has the others of the main dataset."""
    if (best := read.best()) is None or read.literature.empty:
        return Table(pd.DataFrame())
    rows = read.rows_of_cells(read.literature, best)
    labels = list(rows["label"].unique())  # a source may lack findings, or list them in another order
    ours = read.largest() or best
    columns = {" ".join(ours): [read.mean(ours, "auroc", label) for label in labels]}
    for source, values in rows.groupby("source", sort=False):
        repository = re.search(r"github\.com/([\w.-]+/[\w.-]+)", values["citation"].iloc[0])
        name = repository[1] if repository else words(source)
        columns[name] = [*values.groupby("label")["published"].mean().reindex(labels).fillna("")]
    values = pd.DataFrame({"Finding": [*map(words, labels)]} | columns, dtype=object)
    return Table(values, dict.fromkeys(columns, "auroc"))


def what_settings_are_worth(read: Results) -> Table:
    """A network under two settings of the study, on the same real radiographs, by the main endpoint."""
    columns: Columns = {
        "Network": ("name", lambda row: f"{row.architecture} {row.platform}"),
        "Settings": ("name", lambda row: f"{row.dataset_a} - {row.dataset_b}"),
        "They differ in": "differs",
        "First": "mean_a:score",
        "Second": "mean_b:score",
        "Difference": ("difference", difference),
        "Verdict": ("verdict", _verdict_on_settings),
    }
    return table(real_contrasts(read), columns)


def precisions(read: Results) -> Table:
    """A network in two precisions and nothing else changed, by the main endpoint, with its verdict."""
    columns: Columns = {
        "Network": "architecture",
        "Datasets": ("name", lambda row: f"{row.dataset_a} - {row.dataset_b}"),
        "Seeds": ("count", seeds_of),
        "Difference": ("difference", lambda row: difference(row, "ci90")),
        "p, corrected": "p_family:p",
        "Verdict": ("verdict", lambda row: Judgement(row.verdict, starred=processors_differ(row))),
    }
    rows = real_contrasts(read)
    return table(rows[rows["differs"] == PRECISION], columns)


@of_kinds({"Images": "count", "Patients": "count", "Macro AUROC": "auroc"})
def subgroups_of_cells(read: Results) -> Iterator[Fields]:
    """Macro AUROC by sex and view on real radiographs; no difference is tested."""
    rows = read.subgroups
    rows = rows[(rows["label"] == MACRO) & ~rows["drawn"]]
    cells = rows["cell"].str.rsplit("/", n=1).str[0]
    for (name, kind, value), seeds in rows.groupby([cells, "group", "value_of_group"], sort=False):
        group: Group = tuple(name.split("/"))  # type: ignore[assignment]
        if read.study.set_apart(group[0]):
            continue
        mean = read.of_mean(group, "auroc", f"macro, {kind} {value}", seeds)
        narrow = (mean["ci_high"] - mean["ci_low"] <= WIDEST).all()  # false for an unknown interval too
        without = f"without {names}" if (names := listed(seeds["left_out"])) else ""
        patients = seeds["n_patients"].iloc[0]
        yield {
            "Cells": " ".join(group),
            "Subgroup": f"{kind} {value}",
            "Images": seeds["n_images"].iloc[0],
            "Patients": patients if patients > 0 else "unknown",  # also where it is missing
            "Macro AUROC": read.mean(group, "auroc", f"macro, {kind} {value}", seeds),
            _INTERVAL_OF: read.interval_of(group),
            "Note": "; ".join(filter(None, [without, "" if narrow else NO_CLAIM])),
        }


def _parity_rows(read: Results, drawn: bool | None, floors: bool = False) -> Table:
    """Rows of pairs, one where no metric has an interval; of noise floors the main endpoint's size."""
    rows = read.not_set_apart(read.parity)
    rows = rows[(rows["kind"] == "noise floor") == floors]
    if drawn is not None:
        rows = rows[rows["drawn"] == drawn]
    rows = rows[rows["label"].isin([ENDPOINT] if floors else [ENDPOINT, MACRO, EVERY])]
    rows = rows.assign(p_family=family(rows)["p_family"])
    columns: Columns = {
        "Dataset": "dataset",
        "Network": "architecture",
        "Platforms": ("name", lambda row: f"{row.platform_a} - {row.platform_b}"),
        "Seeds": (
            "name",
            lambda row: " - ".join(
                dict.fromkeys(words(names) or "none" for names in (row.seeds_a, row.seeds_b))
            ),
        ),
        "Metric": ("name", lambda row: in_words(row.label, row.metric)),
        "Difference": ("difference", lambda row: difference(row, "ci90")),
        "Margin": "margin:given",
        **({"Could show": "smallest_margin:margin"} if floors else {"p, corrected": "p_family:p"}),
        "Verdict": ("verdict", _verdict_on_pair),
    }
    shown = []
    for _, pair in rows.groupby(
        [*GROUP[:2], "platform_a", "platform_b", "seeds_a", "seeds_b"], sort=False, dropna=False
    ):
        reasons = pair["reason"].dropna().unique()
        if pair["ci_low"].isna().all() and len(reasons) == 1:
            of_pair = row(next(pair.itertuples()), dict(list(columns.items())[:4]))
            verdict = Judgement("inconclusive", reason=reasons[0])
            values = [dict.fromkeys(columns, "") | of_pair | {"Metric": "all", "Verdict": verdict}]
        else:
            values = [row(metric, columns) for metric in pair.itertuples()]
        shown += values
    return Table(pd.DataFrame(shown, dtype=object), kinds_of(columns))


def parity_of_platforms(read: Results) -> Table:
    """Pairs of platforms on real radiographs."""
    return _parity_rows(read, drawn=False)


def parity_on_phantoms(read: Results) -> Table:
    """Pairs of platforms on phantoms."""
    return _parity_rows(read, drawn=True)


def noise_floors(read: Results) -> Table:
    """Each platform against itself under other seeds."""
    return _parity_rows(read, drawn=None, floors=True)


def _verdict_on_pair(row: Any) -> str | Judgement:
    """The verdict on a pair and its reason, or only ``noise floor`` for one that has an interval; empty where
    no margin is declared."""
    if not row.verdict or pd.isna(row.verdict):
        return ""
    if row.kind == "noise floor" and pd.notna(row.ci_low):
        return Judgement("noise floor", note=_mixed(row), starred=processors_differ(row))
    # A margin too small stands in a column of its own.
    reason = row.reason if pd.notna(row.reason) and row.cause != Cause.MARGIN else ""
    return Judgement(row.verdict, reason=reason, note=_mixed(row), starred=processors_differ(row))


def _mixed(row: Any) -> str:
    mixed = getattr(row, "mixed_updates", False)  # the same mathematics (platforms/adamw.py)
    return "seeds of one side with updates that round differently" if mixed else ""


def _verdict_on_settings(row: Any) -> str | Judgement:
    """The verdict on two settings with the interval that it rests on; empty where none was
    declared."""
    if not row.verdict or pd.isna(row.verdict):
        return ""
    interval = Range(row.ci90_low, row.ci90_high)
    return Judgement(row.verdict, row.margin, interval, starred=processors_differ(row))
