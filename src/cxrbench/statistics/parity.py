"""Are two platforms equivalent? A verdict per pair, label and metric, against margins declared before.

One row for every pair of platforms with the same dataset and architecture, and for every platform against
itself (the noise floor: half of its seeds against the rest). Where two platforms share three seeds or more
(two, without a verdict, where one has fewer than three), those are compared one by one and others are left
out. Of the columns:

- ``difference`` of seed means (a - b), ``ci_*`` 95 % and ``ci90_*`` 90 % over patients and seeds
  (:mod:`cxrbench.statistics.components`); ``smallest_margin`` shown with 80 % power at a true
  difference of 0;
- ``p_equivalent``: two one-sided tests (Schuirmann 1987); ``p_tost_seeds``: on the seeds' values alone;
  ``p_holm``: of no difference with at most n - 1 degrees of freedom, n the seeds of a platform, corrected
  over the labels of a pair (Holm 1979), not over pairs; of other metrics ``p_different``;
- ``verdict`` equivalent (even if different from zero), different or inconclusive, and empty of F1;
  ``cause``; ``reason`` in words. Label ``every``: all labels at once, equivalent when each is
  (intersection-union, Berger 1982).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, groupby
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate, mean_influence, mean_value
from cxrbench.statistics.components import (
    ALPHA,
    MIN_SEEDS,
    Difference,
    Verdict,
    between_platforms,
    verdict_of,
    within_platform,
)
from cxrbench.statistics.estimates import CellEstimate, RunT
from cxrbench.statistics.metrics import COMPARED, ENDPOINT, EVERY, MACRO, findings_among

COLUMNS = [
    *("dataset", "architecture", "kind", "platform_a", "platform_b", "seeds_a", "seeds_b", "label", "metric"),
    *("mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("se_patients", "se_seeds", "freedom", "margin", "smallest_margin"),
    *("p_different", "p_holm", "p_equivalent", "p_tost_seeds", "n_images", "n_patients"),
    *("verdict", "cause", "reason"),
]
_ENDS = ("ci90_low", "ci90_high", "ci_low", "ci_high")
# Verdicts of a pair in a table.
_SHOWN = ((ENDPOINT, "auroc"), (MACRO, "auroc"), (EVERY, "auroc"))

T = TypeVar("T")
Seeds = dict[int, CellEstimate]


@dataclass(frozen=True)
class Margins:
    """Differences small enough to call two platforms equivalent, declared before looking: of mean AUROCs and
    of a single finding's AUROC. F1 has none, because no published value says how far reproductions lie apart,
    so no verdict is passed on it."""

    auroc_macro: float = 0.01
    auroc_label: float = 0.02


class Cause(StrEnum):
    """Why a row is inconclusive; empty where it is not."""

    NONE = ""
    SEEDS = "too few seeds"
    IMAGES = "other images"
    UNDEFINED = "undefined"
    MARGIN = "margin too small to be shown"
    BETWEEN = "neither shown"


@dataclass(frozen=True)
class _Pair:
    """Two platforms with the seeds of each that are compared, or a platform against itself."""

    name_a: str
    name_b: str
    a: Seeds
    b: Seeds

    @property
    def floor(self) -> bool:
        return self.name_a == self.name_b

    @property
    def cells(self) -> list[CellEstimate]:
        return [*self.b.values(), *self.a.values()]


def parity(cells: Mapping[RunT, CellEstimate], margins: Margins) -> pd.DataFrame:
    """The table described above (columns ``COLUMNS``).

    What cannot be decided (too few seeds, other images, an undefined label) is a row with the verdict
    inconclusive and the reason.

    >>> from cxrbench.statistics.examples import cells
    >>> row = parity(cells(), Margins()).query("label == 'endpoint'").iloc[0]
    >>> row["platform_a"], row["platform_b"], row["verdict"], round(float(row["smallest_margin"]), 3)
    ('one', 'two', 'inconclusive', 0.027)
    """
    rows: list[dict] = []
    for named, group in groupby(sorted(cells), key=lambda cell: (cell.dataset, cell.architecture)):
        platforms: dict[str, Seeds] = {}
        for cell in group:
            platforms.setdefault(cell.platform, {})[cell.seed] = cells[cell].only(*COMPARED)
        for pair in _pairs(platforms):
            place = dict(zip(("dataset", "architecture"), named, strict=True))
            rows += [place | row for row in _pair_rows(pair, margins)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _pairs(platforms: dict[str, Seeds]) -> Iterator[_Pair]:
    for (name_a, a), (name_b, b) in combinations(platforms.items(), 2):
        yield _Pair(name_a, name_b, *compared_seeds(a, b))
    for name, seeds in platforms.items():
        half, ordered = len(seeds) // 2, list(seeds.items())
        yield _Pair(name, name, dict(ordered[:half]), dict(ordered[half:]))


def compared_seeds(a: Mapping[int, T], b: Mapping[int, T]) -> tuple[dict[int, T], dict[int, T]]:
    """The seeds of each side that are compared: those they share, where these are enough.

    >>> compared_seeds({0: "a", 1: "b", 2: "c", 3: "d"}, {1: "e", 2: "f", 3: "g"})[1]
    {1: 'e', 2: 'f', 3: 'g'}
    >>> [list(side) for side in compared_seeds({0: "a", 1: "b", 2: "c"}, {2: "d", 3: "e", 4: "f"})]
    [[0, 1, 2], [2, 3, 4]]
    """
    shared = a.keys() & b.keys()
    enough = MIN_SEEDS if min(len(a), len(b)) >= MIN_SEEDS else 2  # too few are paired, without a verdict
    if len(shared) < enough:
        return dict(a), dict(b)
    first, second = ({seed: side[seed] for seed in side if seed in shared} for side in (a, b))
    return first, second


def _pair_rows(pair: _Pair, margins: Margins) -> Iterator[dict]:
    cell = pair.cells[0]
    named = {
        "kind": "noise floor" if pair.floor else "platforms",
        "platform_a": pair.name_a,
        "platform_b": pair.name_b,
        "seeds_a": ",".join(map(str, pair.a)),
        "seeds_b": ",".join(map(str, pair.b)),
        "n_images": cell.sample.n_images,
        "n_patients": cell.sample.n_clusters,
    }
    margin = np.array([margin_of(key, margins) for key in cell.keys])
    cause, why = _obstacle(pair)
    columns = {} if cause is Cause.IMAGES else _columns(pair, margin, cell, bare=bool(cause))
    rows = []
    for k, (label, metric) in enumerate(cell.keys):
        row = {**named, "label": label, "metric": metric, "margin": margin[k]}
        row |= {name: float(values[k]) for name, values in columns.items()}
        undefined = next((cell.why[k] for cell in (*pair.a.values(), *pair.b.values()) if cell.why[k]), "")
        reason = (cause, why) if cause or not undefined else (Cause.UNDEFINED, undefined)
        rows.append(row | _verdict(row, *reason))
    yield from rows
    labels = [row for row in rows if row["label"] in cell.sample.names]
    yield {**named, "label": EVERY, "metric": "auroc", "margin": margins.auroc_label, **_every(labels)}


def margin_of(key: tuple[str, str], margins: Margins) -> float:
    """The declared margin of a (label, metric): of the main endpoint that of means of AUROC, of F1 NaN.

    >>> margin_of(("macro", "auroc"), Margins()), margin_of(("Mass", "auroc"), Margins())
    (0.01, 0.02)
    """
    label, metric = key
    if metric != "auroc":
        return np.nan
    return margins.auroc_label if findings_among([label]) else margins.auroc_macro


def verdict_on(difference: Difference, margin: np.ndarray, k: int) -> dict[str, Any]:
    """The p_equivalent, smallest_margin, verdict and reason of column ``k`` of a ``difference``.

    >>> difference = Difference(*(np.array([value]) for value in (0.001, 4e-6, 2e-6, 50.0)))
    >>> found = verdict_on(difference, margin=np.array([0.01]), k=0)
    >>> found["verdict"], round(found["p_equivalent"], 4), round(found["smallest_margin"], 4)
    ('equivalent', 0.0003, 0.0073)
    """
    columns = {
        "difference": difference.value,
        **dict(zip(_ENDS, difference.ends(), strict=True)),
        "se_patients": np.sqrt(difference.patient_variance),
        "se_seeds": np.sqrt(difference.seed_variance),
        "p_holm": difference.p_different(),
        "p_equivalent": difference.p_equivalent(margin),
        "smallest_margin": difference.smallest_margin(),
        "margin": margin,
    }
    row = {name: float(values[k]) for name, values in columns.items()}
    kept = {name: row[name] for name in ("p_equivalent", "smallest_margin")}
    return kept | _verdict(row, Cause.NONE, "")


def _obstacle(pair: _Pair) -> tuple[Cause, str]:
    """The reason nothing can be concluded whatever the values, as a cause and in words."""
    first, *others = pair.cells
    if not all(first.same_images(other) for other in others):
        return Cause.IMAGES, "the cells scored different images, patients or labels: they cannot be paired"
    counts = {pair.name_a: len(pair.a), pair.name_b: len(pair.b)}
    if pair.floor:
        counts = {pair.name_a: len(pair.cells)}
    if min(counts.values()) >= MIN_SEEDS:
        return Cause.NONE, ""
    seeds = " and ".join(f"{count} seed{'s' * (count != 1)} of {name}" for name, count in counts.items())
    return Cause.SEEDS, f"{seeds}: a verdict needs {MIN_SEEDS} seeds of each"


def _columns(pair: _Pair, margin: np.ndarray, cell: CellEstimate, *, bare: bool) -> dict[str, np.ndarray]:
    """Every numeric column, each (K,); ``bare``: without those that need the spread over seeds."""
    if not pair.a:
        return {}
    a, b = ({seed: network.estimate for seed, network in side.items()} for side in (pair.a, pair.b))
    first, second = list(a.values()), list(b.values())
    means = {"mean_a": mean_value(first), "mean_b": mean_value(second)}
    if bare:
        influence = mean_influence(first) - mean_influence(second)
        error = np.sqrt((influence**2).sum(axis=0))
        return means | {"difference": means["mean_a"] - means["mean_b"], "se_patients": error}
    difference = within_platform(first + second) if pair.floor else between_platforms(a, b)
    fewest = len(pair.cells) if pair.floor else min(len(a), len(b))
    p_different = difference.p_different()
    is_label = np.array([label in cell.sample.names for label, _ in cell.keys])
    p_holm = p_different.copy()
    p_holm[is_label] = holm(difference.p_among_many(fewest)[is_label])
    return means | {
        "difference": difference.value,
        **dict(zip(_ENDS, difference.ends(), strict=True)),
        "se_patients": np.sqrt(difference.patient_variance),
        "se_seeds": np.sqrt(difference.seed_variance),
        "freedom": difference.freedom,
        "smallest_margin": difference.smallest_margin(),
        **{"p_different": p_different, "p_holm": p_holm, "p_equivalent": difference.p_equivalent(margin)},
        "p_tost_seeds": np.full(len(margin), np.nan) if pair.floor else _tost_on_seeds(a, b, margin),
    }


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down adjusted p values (K,); NaN stays NaN and is no test.

    >>> holm(np.array([0.01, 0.04, np.nan])).tolist()
    [0.02, 0.04, nan]
    """
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN sorts last
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def _tost_on_seeds(a: dict[int, Estimate], b: dict[int, Estimate], margin: np.ndarray) -> np.ndarray:
    """The p values (K,) of two one-sided t tests on the seeds' values, as if patients were fixed."""
    nobody, many = np.zeros((1, len(margin))), np.full(len(margin), np.inf)
    fixed = [{seed: Estimate(cell.value, nobody, many) for seed, cell in side.items()} for side in (a, b)]
    return between_platforms(*fixed).p_equivalent(margin)


def _verdict(row: dict, cause: Cause, why: str) -> dict[str, str]:
    if not cause and np.isnan(row["difference"]):
        cause, why = Cause.UNDEFINED, "undefined: a run has no value"
    if np.isnan(row["margin"]):
        return _judged("", why or "no margin is declared for it")
    if cause:
        return _judged("inconclusive", why, cause)
    if row["difference"] == 0 and row["se_patients"] == row["se_seeds"] == 0:
        return _judged("equivalent", "the same for every seed and patient")
    verdict = verdict_of([row[name] for name in _ENDS], row["margin"], row["p_holm"])
    if verdict is Verdict.EQUIVALENT:
        return _judged(verdict, "differs from zero, but inside the margin" * (row["p_holm"] < ALPHA))
    if verdict is Verdict.DIFFERENT:
        return _judged(verdict)
    if (smallest := row["smallest_margin"]) > row["margin"]:
        why = f"too few patients or seeds: the smallest margin to be shown is {smallest:.3f}"
        return _judged("inconclusive", why, Cause.MARGIN)
    if np.isnan(smallest):
        return _judged("inconclusive", "no interval: too few patients or seeds", Cause.UNDEFINED)
    return _judged("inconclusive", "the interval holds zero and reaches past the margin", Cause.BETWEEN)


def _judged(verdict: str, reason: str = "", cause: Cause = Cause.NONE) -> dict[str, str]:
    return {"verdict": str(verdict), "cause": cause, "reason": reason}


def _every(labels: list[dict]) -> dict[str, Any]:
    """The verdict on all labels at once, from their rows."""
    frame = pd.DataFrame(labels, columns=COLUMNS)
    values = {
        "p_equivalent": frame["p_equivalent"].max(skipna=False),
        "p_holm": frame["p_holm"].min(),
        "smallest_margin": frame["smallest_margin"].max(skipna=False),
    }
    equivalent, different = (frame["verdict"] == verdict for verdict in ("equivalent", "different"))
    if equivalent.all():
        return values | _judged("equivalent")
    if different.any():
        return values | _judged("different", f"different: {', '.join(frame.loc[different, 'label'])}")
    if (cause := labels[0]["cause"]) in (Cause.SEEDS, Cause.IMAGES):  # of all labels alike
        return values | _judged("inconclusive", labels[0]["reason"], cause)
    why = f"{equivalent.sum()} of {len(labels)} findings are equivalent"
    return values | _judged("inconclusive", why, Cause.BETWEEN)


def family(parity: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on pairs of platforms that a table shows, with their p corrected over all of them.

    ``p_family`` is Holm's over the rows, of the test that the verdict stands on: equivalence, else
    difference. Rows that no test was made for are left out.

    >>> from cxrbench.statistics.examples import cells
    >>> rows = family(parity(cells(), Margins(auroc_macro=0.03, auroc_label=0.06)))
    >>> rows["label"].tolist(), rows["p_family"].round(3).tolist()
    (['macro', 'endpoint', 'every'], [0.004, 0.004, 0.001])
    """
    shown = pd.MultiIndex.from_frame(parity[["label", "metric"]]).isin(_SHOWN)
    rows = parity[(parity["kind"] == "platforms") & shown]
    rows = rows.assign(p_family=p_family(rows.assign(p_different=rows["p_holm"])))
    return rows[rows["p_family"].notna()]


def p_family(rows: pd.DataFrame) -> np.ndarray:
    """Holm's p values (K,) over ``rows``, each of the test that its verdict stands on: of equivalence
    (``p_equivalent``), otherwise of a difference (``p_different``). NaN where no test was made or no verdict
    passed.

    >>> rows = pd.DataFrame({"verdict": ["equivalent", "different"], "p_different": [0.5, 0.02]})
    >>> p_family(rows.assign(p_equivalent=[0.01, 0.9])).tolist()
    [0.02, 0.02]
    """
    tested = rows["p_equivalent"].where(rows["verdict"] == "equivalent", rows["p_different"])
    tested = tested.where(rows["verdict"] != "")
    return holm(tested.astype(float).to_numpy())


def family_counts(parity: pd.DataFrame) -> dict[str, int]:
    """The numbers of verdicts of a :func:`family`, of its pairs, and of those that Holm's correction
    leaves.

    >>> from cxrbench.statistics.examples import cells
    >>> counts = family_counts(parity(cells(), Margins(auroc_macro=0.02)))
    >>> {name: counts[name] for name in ("pairs", "verdicts", "equivalent", "equivalent after correction")}
    {'pairs': 1, 'verdicts': 3, 'equivalent': 2, 'equivalent after correction': 0}
    """
    rows = family(parity)
    holds, endpoint = rows["p_family"] < ALPHA, rows["label"] == ENDPOINT
    masks = {verdict: rows["verdict"] == verdict for verdict in ("equivalent", "different")}
    counts = {
        "decided": sum(mask.sum() for mask in masks.values()),
        **{verdict: mask.sum() for verdict, mask in masks.items()},
        **{f"{verdict} after correction": (mask & holds).sum() for verdict, mask in masks.items()},
        "endpoint equivalent after correction": (masks["equivalent"] & holds & endpoint).sum(),
        "pairs": len(rows.drop_duplicates(["dataset", "architecture", "platform_a", "platform_b"])),
        "verdicts": len(rows),
    }
    return {name: int(count) for name, count in counts.items()}
