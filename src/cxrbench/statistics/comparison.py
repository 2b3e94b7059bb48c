"""Do two sets of runs score the same? Difference of the means, interval, verdict, and what would settle it.

Each side is one training repeated with other seeds and scored on the same test images. The interval of the
difference counts patients and runs together (:mod:`cxrbench.statistics.components`): runs with the same
number are compared with each other, others are independent; images and patients are paired in any case. One
run on each side is a clustered paired test of two networks (DeLong et al. 1988; Obuchowski 1997), which says
nothing about other seeds. With two runs on a side an interval has one degree of freedom.

A row is *equivalent* when its 90 % interval lies inside the margin (two one-sided tests, Schuirmann 1987),
even if it excludes zero; else *different* when its 95 % interval excludes zero and, of several findings,
Holm's p is below 5 %; else *inconclusive*; *cannot_tell* without an interval. Only AUROC is judged.

One run can be compared with a *reference* of several: it is *outside* when zero is outside the 95 % interval
of its difference from their mean, as one more of them would be in one case of twenty, else *inside*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate, mean_value
from cxrbench.statistics.components import (
    FEWEST_PATIENTS,
    MIN_SEEDS,
    Difference,
    between_networks,
    between_platforms,
    from_reference,
    verdict_of,
)
from cxrbench.statistics.errors import UserError
from cxrbench.statistics.estimates import CERTAIN, ENDPOINT, FEWEST_POSITIVE, CellEstimate, estimate
from cxrbench.statistics.parity import compared_seeds, holm
from cxrbench.statistics.pilot import Needs, VarianceParts, needs, variance_parts
from cxrbench.statistics.runs import Runs, RunsSource, aligned_runs, read_runs, same_files
from cxrbench.statistics.sample import sample_of, validation_of

MARGIN, LABEL_MARGIN = 0.01, 0.02
_RANKED = ("auroc", "average_precision")
METRICS_OF_RUNS = (*_RANKED, "f1_macro", "f1_micro")
_MEANS = (ENDPOINT, "macro", "all")
MEAN_NAMES = {
    (ENDPOINT, "auroc"): "mean AUROC",
    ("macro", "auroc"): "macro AUROC",
    ("macro", "average_precision"): "macro average precision",
    ("macro", "f1_macro"): "macro F1",
    ("all", "f1_micro"): "micro F1",
}
_THREADS = 2


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare_runs` found.

    ``rows``: a dictionary per metric and label with the same keys in all, None where undefined; the first is
    the main row. ``notes`` are for the reader. ``variances``: the parts of a mean's, by metric and label,
    where each side has two runs. ``reference``: whether A is one run and B is a reference.

    >>> row = {"metric": "auroc", "label": "macro", "verdict": "different"}
    >>> Comparison([row], notes=[]).verdict
    'different'
    """

    rows: list[dict[str, Any]]
    notes: list[str]
    variances: Mapping[tuple[str, str], VarianceParts] = field(default_factory=dict)
    reference: bool = False

    @property
    def main(self) -> dict[str, Any]:
        """The row that decides: mean AUROC of the endpoint, else the first mean that has a value."""
        return self.rows[0]

    @property
    def verdict(self) -> str:
        """The verdict of the main row."""
        return str(self.main["verdict"])

    @property
    def main_variance(self) -> VarianceParts | None:
        """The variance of the main difference; None with one run on a side."""
        return self.variances.get((self.main["metric"], self.main["label"]))

    @property
    def variance(self) -> list[dict[str, Any]]:
        """The same as rows of source, variance and fraction of their sum."""
        return self.main_variance.rows() if self.main_variance else []

    @property
    def needs(self) -> Needs | None:
        """What would settle the main row; None with one run on a side."""
        return needs(self.main_variance, self.main["margin"]) if self.main_variance else None


def compare_runs(
    a: RunsSource,
    b: RunsSource,
    margin: float = MARGIN,
    label_margin: float = LABEL_MARGIN,
    *,
    common: bool = False,
    columns: Mapping[str, str] | None = None,
    columns_of_b: Mapping[str, str] | None = None,
    logits: bool = False,
    findings: Collection[str] = (),
    positive_patients: int = FEWEST_POSITIVE,
    names: tuple[str, str] = ("A", "B"),
    reference: bool = False,
) -> Comparison:
    """The comparison of the runs of ``a`` with those of ``b``: a folder, a pattern, a file or {seed: table}.

    ``margin``: of means and of an only finding; ``label_margin``: of each of several; ``common``: of the
    images that all runs share; ``columns`` maps our columns to the files', ``columns_of_b`` to those of ``b``
    if they differ; with ``logits`` scores are any finite numbers; ``findings`` are those to compare. The main
    row is the mean AUROC over findings with ``positive_patients`` positive test patients or more.
    ``reference``: could ``a``, one run, be one of ``b``? Raises UserError for what cannot be compared.

    >>> from cxrbench.statistics.examples import predictions
    >>> a, b = ({seed: predictions(10 * side + seed) for seed in range(3)} for side in (0, 1))
    >>> found = compare_runs(a, b, margin=0.05)
    >>> found.verdict, round(found.main['difference'], 4), found.main['runs_a'], found.main['paired']
    ('inconclusive', 0.0406, 3, True)
    """
    for name, value in (("margin", margin), ("label_margin", label_margin)):
        if not 0 < value < 0.5:
            raise UserError(f"{name} {value:g}: a margin is above 0 and below 0.5; give such a number")
    of_b = columns if columns_of_b is None else columns_of_b
    mapped = zip((a, b), names, (columns, of_b), strict=True)
    sides = [read_runs(source, name, of_side, logits, findings) for source, name, of_side in mapped]
    _must_be_two(*sides)
    chosen, notes = _against(*sides) if reference else _compared(*sides)
    first, second, more = aligned_runs(*chosen, common)
    scored = _scored(first, positive_patients), _scored(second, positive_patients)
    pairs = [[side[k].sample.scores for side in scored] for k in scored[0].keys() & scored[1].keys()]
    if pairs and all(np.array_equal(of_a, of_b) for of_a, of_b in pairs):
        more.append(f"all scores of {first.name} and {second.name} are equal: was one folder copied?")
    numbered = first.numbered and second.numbered
    return judged(*scored, (margin, label_margin), [*notes, *more], numbered, reference)


def _against(run: Runs, reference: Runs) -> tuple[tuple[Runs, Runs], list[str]]:
    """The run and its reference, and notes; UserError where they are not one run and enough of them."""
    if len(run.tables) != 1:
        raise UserError(
            f"--reference compares one run with several; {run.name} has {len(run.tables)}: name one file, or "
            "leave out --reference to compare two sets"
        )
    if (count := len(reference.tables)) < MIN_SEEDS:
        raise UserError(
            f"a reference takes {MIN_SEEDS} runs, better ten; {reference.name} has {count}: add runs"
        )
    return (run, reference), [*run.notes, *reference.notes]


def _compared(a: Runs, b: Runs) -> tuple[tuple[Runs, Runs], list[str]]:
    """The runs of each side that are compared, and notes on those left out."""
    notes = [*a.notes, *b.notes]
    if not (a.numbered and b.numbered):
        if max(len(a.tables), len(b.tables)) > 1:
            notes.append("unpaired: not every file's name has a number; write it as seedN to pair the runs")
        return (a, b), notes
    tables_a, tables_b = compared_seeds(a.tables, b.tables)
    if len(tables_a) < len(a.tables) or len(tables_b) < len(b.tables):
        numbers = ", ".join(map(str, tables_a))
        notes.append(f"paired by the {len(tables_a)} runs that both have: {numbers}; the others are left out")
    elif tables_a.keys() != tables_b.keys() and max(len(tables_a), len(tables_b)) > 1:
        notes.append(f"unpaired: {a.name} and {b.name} have fewer than three numbers of runs in common")
    return (a.only(tables_a), b.only(tables_b)), notes


def _must_be_two(a: Runs, b: Runs) -> None:
    """UserError where both sides are the same files, or some of them are."""
    if not (same := same_files(a, b)):
        return
    if len(same) == len(a.files) == len(b.files):
        named = f"{a.name} and {b.name} are the same files, so nothing is compared"
    else:
        run_a, run_b = same[0]
        named = f"{a.sources[run_a]}: run {run_a} of {a.name} is run {run_b} of {b.name} too"
    raise UserError(f"{named}; give each side its own runs")


def _scored(side: Runs, positive_patients: int) -> dict[int, CellEstimate]:
    """The estimates of each run, on two threads: numpy leaves the lock while it sorts."""

    def score(table: pd.DataFrame) -> CellEstimate:
        val = validation_of(table)
        wanted = (*_RANKED, "f1", "f1_micro") if val is not None else _RANKED
        return estimate(sample_of(table), val, positive_patients, wanted).only(*METRICS_OF_RUNS)

    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(side.tables, pool.map(score, side.tables.values()), strict=True))


def judged(
    a: Mapping[int, CellEstimate],
    b: Mapping[int, CellEstimate],
    margins: tuple[float, float] = (MARGIN, LABEL_MARGIN),
    notes: Sequence[str] = (),
    numbered: bool = True,
    reference: bool = False,
) -> Comparison:
    """The comparison of two sides that scored the same images; the runs of each are by number.

    ``margins``: of means, of each of several findings. ``numbered``: runs with one number belong together.
    ``reference``: ``a`` is one run, ``b`` its reference.

    >>> from cxrbench.statistics.examples import predictions
    >>> one, two = ({0: estimate(sample_of(predictions(k)), None, metrics=["auroc"])} for k in (0, 1))
    >>> judged(one, two).verdict, judged(one, two, margins=(0.1, 0.2)).verdict
    ('inconclusive', 'equivalent')
    """
    cell = next(iter(a.values()))
    sample, unit = cell.sample, cell.scope.unit
    if sample.n_clusters < FEWEST_PATIENTS:
        raise UserError(
            f"{sample.n_clusters} test {unit}s: an interval takes {FEWEST_PATIENTS} or more; score more"
        )
    paired = numbered and a.keys() == b.keys() and not reference
    if not paired:  # numbers that no run of a has: equal ones would pair the runs
        b = dict(enumerate(b.values(), 1 + max(a)))
    sides = [{number: run.estimate for number, run in side.items()} for side in (a, b)]
    rows = _rows(cell, sides, _same_scores(a, b, paired), margins, reference)
    design = {
        **{"runs_a": len(a), "runs_b": len(b), "paired": paired},
        "patients": sample.n_clusters if sample.by_patient else None,
    }
    rows = [row | design for row in rows]
    main = next((row for row in rows[:2] if row["difference"] is not None), rows[0])
    rows.insert(0, rows.pop(rows.index(main)))
    variances = {
        (metric, label): variance_parts(sides[0], sides[1], k, sample.n_clusters, paired)
        for k, (label, metric) in enumerate(cell.keys)
        if label not in sample.names and min(len(a), len(b)) > 1
    }
    return Comparison(rows, list(dict.fromkeys([*_about(cell, rows, a, b), *notes])), variances, reference)


def difference_of(a: Mapping[int, Estimate], b: Mapping[int, Estimate]) -> Difference:
    """The difference (K,) of the means over each side's runs; of one run against several, without a variance.

    >>> from cxrbench.statistics.auroc import auroc
    >>> from cxrbench.statistics.examples import predictions
    >>> a, b = ({s: auroc(sample_of(predictions(10 * k + s))) for s in range(3)} for k in (0, 1))
    >>> difference_of(a, b).value.round(4).tolist()
    [0.058, 0.0232]
    """
    fewest, most = sorted((len(a), len(b)))
    if most == 1:
        (first,), (second,) = a.values(), b.values()
        pair = between_networks(first, second)
        return Difference(pair.value, pair.error**2, np.zeros_like(pair.value), pair.degrees)
    if fewest == 1:
        value = mean_value(a.values()) - mean_value(b.values())
        unknown = np.full_like(value, np.nan)
        return Difference(value, unknown, unknown, unknown)
    difference = between_platforms(a, b)
    if fewest == 2:  # two values say little of their spread: their one degree of freedom is all there is
        difference = replace(difference, freedom=np.minimum(difference.freedom, 1.0))
    return difference


def _rows(
    cell: CellEstimate,
    sides: Sequence[Mapping[int, Estimate]],
    same: np.ndarray,
    margins: tuple[float, float],
    reference: bool,
) -> list[dict[str, Any]]:
    """A row per (label, metric): AUROC of the endpoint, macro and findings first, then other metrics.

    ``same`` (L,): findings whose scores are equal on both sides.
    """
    names = cell.sample.names
    if reference:
        difference = from_reference(next(iter(sides[0].values())), list(sides[1].values()))
    else:
        difference = difference_of(*sides)
    means = [mean_value(side.values()) for side in sides]
    of_labels = [np.array([label in (name, *_MEANS) for name in names]) for label, _ in cell.keys]
    known = (difference.error == 0) & np.array([same[mask].all() for mask in of_labels])
    # Where nothing was seen to vary though scores differ, there is no error, and no proof of agreement.
    # A finding with too few patients has no interval: its variance is a guess.
    few = cell.too_few & ~known
    judgeable = ((difference.error > 0) & ~few) | known
    ends = [np.where(judgeable, end, np.nan) for end in difference.ends()]
    fewest = len(sides[1]) if reference else min(map(len, sides))
    many = fewest > 1 and len(names) > 1
    p = np.where(known, 1.0, difference.p_among_many(fewest) if many else difference.p_different())
    corrected = np.full(len(p), np.nan)
    for metric in METRICS_OF_RUNS:
        family = [k for k, (label, measure) in enumerate(cell.keys) if measure == metric and label in names]
        corrected[family] = holm(p[family])
    rows = []
    for k in sorted(range(len(cell.keys)), key=lambda k: _place(*cell.keys[k])):
        label, metric = cell.keys[k]
        if metric.startswith("f1") and not np.isfinite([mean[k] for mean in means]).all():
            continue
        margin = None if metric != "auroc" or reference else margins[label in names and len(names) > 1]
        verdict = verdict_of([e[k] for e in ends], margin, corrected[k] if label in names else 0)
        values = {
            **{"value_a": means[0][k], "value_b": means[1][k], "difference": difference.value[k]},
            **dict(
                zip(("ci90_low", "ci90_high", "ci95_low", "ci95_high"), (end[k] for end in ends), strict=True)
            ),
            "p_holm": corrected[k] if judgeable[k] else np.nan,  # one of its family all the same
            "noticeable": difference.noticeable()[k] if reference and judgeable[k] else np.nan,
        }
        rows.append(
            {
                **{"metric": metric, "label": label},
                **{name: float(value) if np.isfinite(value) else None for name, value in values.items()},
                "margin": margin,
                "verdict": None if margin is None and not reference else str(verdict),
                "images": int(cell.sample.counts[:, of_labels[k]].any(axis=1).sum()),
                "note": "; ".join(filter(None, [cell.note[k], cell.few_note * bool(few[k])])) or None,
            }
        )
    return rows


def _place(label: str, metric: str) -> tuple[int, int]:
    """Where a row stands: by metric, the endpoint and means before findings, which keep their order."""
    return METRICS_OF_RUNS.index(metric), _MEANS.index(label) if label in _MEANS else len(_MEANS)


def _same_scores(a: Mapping[int, CellEstimate], b: Mapping[int, CellEstimate], paired: bool) -> np.ndarray:
    """A mask of the findings (L,) with equal scores on both sides, run by run; none where they are not
    paired."""
    scores_a, scores_b = ([run.sample.scores for run in side.values()] for side in (a, b))
    if not paired and (len(scores_a), len(scores_b)) != (1, 1):
        return np.zeros(scores_a[0].shape[1], dtype=bool)
    return np.all([(x == y).all(axis=0) for x, y in zip(scores_a, scores_b, strict=True)], axis=0)


def _about(
    cell: CellEstimate,
    rows: Sequence[Mapping[str, Any]],
    a: Mapping[int, CellEstimate],
    b: Mapping[int, CellEstimate],
) -> list[str]:
    """Notes on what the intervals cover, what means leave out, and scores that have no error."""
    unit, fewest, notes = cell.scope.unit, min(len(a), len(b)), []
    if unit == "image":
        notes.append(
            "no patient column: every image counts as its own patient, so intervals are too narrow where "
            "patients have several images"
        )
    if max(len(a), len(b)) == 1:
        notes.append("one run on each side: other seeds are not covered; a new seed may change the answer")
    elif fewest == 2:
        notes.append("two runs on a side: their spread has one degree of freedom, so intervals are wide")
    for name, side in (("A", a), ("B", b)):
        certain = Counter(why for run in side.values() for why in run.certain().values())
        notes += [
            f"{name}: {why} in {count} of {len(side)} runs: {CERTAIN}" for why, count in certain.items()
        ]
    noted = [row for row in rows if row["label"] in _MEANS and row["note"]]
    return notes + [f"{MEAN_NAMES[row['label'], row['metric']]}: {row['note']}" for row in noted]
