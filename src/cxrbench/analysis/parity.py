"""Are two platforms equivalent? A verdict per pair, label and metric, against margins declared before.

For every pair of platforms with the same dataset and architecture, and for every platform against
itself (the noise floor: half of its seeds against the rest), one row per label and metric:

- ``difference`` of seed means (a - b), ``ci_low``/``ci_high`` 95 % and ``ci90_low``/``ci90_high`` 90 %
  intervals over patients and seeds (:mod:`cxrbench.analysis.components`), ``se_patients``, ``se_seeds``;
  where two platforms share two seeds or more, those are compared one by one and others are left out;
- ``p_equivalent`` of two one-sided tests (Schuirmann 1987): the 90 % interval lies inside ``margin``;
- ``p_different`` and, for the labels of one pair, ``p_holm`` (Holm 1979, of p values with no more degrees of
  freedom than the seeds give); elsewhere they are equal. Pairs of platforms are not corrected for each other;
- ``p_tost_seeds``: TOST on the seeds' values alone, a check that leaves patients out: Student's t on the
  differences of shared seeds, else Welch's;
- ``smallest_margin``: what could have been shown with 80 % power had the true difference been zero;
- ``verdict`` equivalent, different or inconclusive, with its ``cause`` and a ``reason`` in words. A
  difference that is not zero and yet inside the margin is equivalent, and the reason says so. Fewer than
  ``MIN_SEEDS`` seeds of a platform have neither interval nor verdict.

The row with label ``every`` is the claim about all labels at once: equivalent when each label is
(intersection-union, Berger 1982: no correction), different when one is after Holm's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from itertools import combinations, groupby

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import Estimate
from cxrbench.analysis.components import (
    ALPHA,
    Difference,
    between_platforms,
    mean_influence,
    mean_value,
    within_platform,
)
from cxrbench.analysis.estimates import COMPARED, CellEstimate, estimate_cells
from cxrbench.study.cells import Cell
from cxrbench.study.config import Margins

COLUMNS = [
    *("dataset", "architecture", "kind", "platform_a", "platform_b", "seeds_a", "seeds_b", "label", "metric"),
    *("mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("se_patients", "se_seeds", "freedom", "margin", "smallest_margin"),
    *("p_different", "p_holm", "p_equivalent", "p_tost_seeds", "n_images", "n_patients"),
    *("verdict", "cause", "reason"),
]
EVERY = "every"
MIN_SEEDS = 3  # of each platform: with two, verdicts err too often


Seeds = dict[int, CellEstimate]


class Cause(StrEnum):
    """Why a row is inconclusive; empty where it is not."""

    NONE = ""
    SEEDS = "too few seeds"
    IMAGES = "other images"
    UNDEFINED = "undefined"
    MARGIN = "margin too small to be shown"
    BETWEEN = "neither shown"


def parity(
    cells: Mapping[Cell | str, pd.DataFrame] | Mapping[Cell, CellEstimate],
    margins: Margins,
    *,
    split: str = "test",
) -> pd.DataFrame:
    """The table described above (columns ``COLUMNS``), for cell -> predictions or cell -> estimates.

    What cannot be decided (too few seeds, other images, an undefined label) is a row with the verdict
    inconclusive and the reason. Raises UserError when predictions have no row of ``split``.
    """
    estimates = _estimated(cells, split)
    rows: list[dict] = []
    for (dataset, architecture), group in groupby(
        sorted(estimates), key=lambda cell: (cell.dataset, cell.architecture)
    ):
        platforms: dict[str, Seeds] = {}
        for cell in group:
            platforms.setdefault(cell.platform, {})[cell.seed] = estimates[cell]
        for row in _architecture_rows(platforms, margins):
            rows.append({"dataset": dataset, "architecture": architecture, **row})
    return pd.DataFrame(rows, columns=COLUMNS)


def _estimated(cells: Mapping, split: str) -> dict[Cell, CellEstimate]:
    ready = {key: one for key, one in cells.items() if isinstance(one, CellEstimate)}
    ready = ready if len(ready) == len(cells) else estimate_cells(cells, split)
    return {cell: one.only(*COMPARED) for cell, one in ready.items()}


def _architecture_rows(platforms: dict[str, Seeds], margins: Margins) -> Iterator[dict]:
    for a, b in combinations(platforms, 2):
        named = {"kind": "platforms", "platform_a": a, "platform_b": b}
        yield from _pair_rows(named, *_shared(platforms[a], platforms[b]), margins)
    for name, seeds in platforms.items():
        named = {"kind": "noise floor", "platform_a": name, "platform_b": name}
        half = len(seeds) // 2
        first, second = dict(list(seeds.items())[:half]), dict(list(seeds.items())[half:])
        yield from _pair_rows(named, first, second, margins)


def _shared(a: Seeds, b: Seeds) -> tuple[Seeds, Seeds]:
    """The seeds of both, where there are two or more of them, else all."""
    both = a.keys() & b.keys()
    if len(both) < 2:
        return a, b
    return {seed: a[seed] for seed in a if seed in both}, {seed: b[seed] for seed in b if seed in both}


def _pair_rows(named: dict, a: Seeds, b: Seeds, margins: Margins) -> Iterator[dict]:
    anyone = next(iter((b or a).values()))
    named |= {
        "seeds_a": ",".join(map(str, a)),
        "seeds_b": ",".join(map(str, b)),
        "n_images": anyone.sample.n_images,
        "n_patients": anyone.sample.n_clusters,
    }
    margin = np.array([_margin(key, margins) for key in anyone.keys])
    cause, why = _obstacle(named, a, b)
    if not cause:
        columns = _columns(named["kind"], _estimates(a), _estimates(b), margin, anyone)
    elif a and cause is not Cause.IMAGES:
        columns = _bare_columns(_estimates(a).values(), _estimates(b).values())
    else:
        columns = {}
    rows = []
    for k, (label, metric) in enumerate(anyone.keys):
        row = {**named, "label": label, "metric": metric, "margin": margin[k]}
        row |= {name: float(values[k]) for name, values in columns.items()}
        undefined = next((one.why[k] for one in (*a.values(), *b.values()) if one.why[k]), "")
        here = (cause, why) if cause or not undefined else (Cause.UNDEFINED, undefined)
        row |= dict(zip(("verdict", "cause", "reason"), _verdict(row, *here), strict=True))
        rows.append(row)
    yield from rows
    labels = [row for row in rows if row["label"] in anyone.sample.names]
    yield {**named, "label": EVERY, "metric": "auroc", "margin": margins.auroc_label, **_every(labels)}


def _estimates(seeds: Seeds) -> dict[int, Estimate]:
    return {seed: each.estimate for seed, each in seeds.items()}


def _margin(key: tuple[str, str], margins: Margins) -> float:
    label, metric = key
    if metric != "auroc":
        return margins.f1
    return margins.auroc_macro if label == "macro" else margins.auroc_label


def _too_few(named: dict, a: Seeds, b: Seeds) -> str:
    """How few seeds are compared, where that is too few for an interval; else empty."""
    counts = {named["platform_a"]: len(a), named["platform_b"]: len(b)}
    if named["kind"] == "noise floor":
        counts = {named["platform_a"]: len(a) + len(b)}
    if min(counts.values()) >= MIN_SEEDS:
        return ""
    seeds = " and ".join(f"{count} seed{'s' * (count != 1)} of {name}" for name, count in counts.items())
    return f"{seeds}: a verdict needs {MIN_SEEDS} seeds of each"


def _obstacle(named: dict, a: Seeds, b: Seeds) -> tuple[Cause, str]:
    """Why nothing can be concluded whatever the values, and that in words; empty where something can."""
    first, *others = (*a.values(), *b.values())
    if not all(first.same_images(other) for other in others):
        return Cause.IMAGES, "the cells scored different images, patients or labels: they cannot be paired"
    few = _too_few(named, a, b)
    return (Cause.SEEDS if few else Cause.NONE), few


def _bare_columns(a: Collection[Estimate], b: Collection[Estimate]) -> dict[str, np.ndarray]:
    """What can be said without a spread over seeds: the difference, and how well patients fix it."""
    influence = mean_influence(a) - mean_influence(b)
    return {
        **{"mean_a": mean_value(a), "mean_b": mean_value(b), "difference": mean_value(a) - mean_value(b)},
        "se_patients": np.sqrt((influence**2).sum(axis=0)),
    }


def _columns(
    kind: str, a: dict[int, Estimate], b: dict[int, Estimate], margin: np.ndarray, cell: CellEstimate
) -> dict[str, np.ndarray]:
    """Every numeric column, each (K,), of a pair that can be compared."""
    fewest = len(a) + len(b) if kind == "noise floor" else min(len(a), len(b))
    floor = kind == "noise floor"
    first, second = list(a.values()), list(b.values())
    difference: Difference = within_platform(first + second) if floor else between_platforms(a, b)
    low, high = difference.interval(0.95)
    low90, high90 = difference.interval(1 - 2 * ALPHA)
    p_different = difference.p_different()
    is_label = np.array([key[0] in cell.sample.names for key in cell.keys])
    p_holm = p_different.copy()
    p_holm[is_label] = holm(difference.p_among_many(fewest)[is_label])
    return {
        **{"mean_a": mean_value(first), "mean_b": mean_value(second), "difference": difference.value},
        **{"ci_low": low, "ci_high": high, "ci90_low": low90, "ci90_high": high90},
        "se_patients": np.sqrt(difference.patient_variance),
        "se_seeds": np.sqrt(difference.seed_variance),
        "freedom": difference.freedom,
        "smallest_margin": difference.smallest_margin(),
        **{"p_different": p_different, "p_holm": p_holm, "p_equivalent": difference.p_equivalent(margin)},
        "p_tost_seeds": np.full(len(margin), np.nan) if floor else tost_on_seeds(a, b, margin),
    }


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down adjusted p values (K,); NaN stays NaN and is no test."""
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN sorts last
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def tost_on_seeds(a: dict[int, Estimate], b: dict[int, Estimate], margin: np.ndarray) -> np.ndarray:
    """p values (K,) of two one-sided t tests on the seeds' values alone, as if patients were fixed."""

    def alone(seeds: dict[int, Estimate]) -> dict[int, Estimate]:
        nobody, many = np.zeros((1, len(margin))), np.full(len(margin), np.inf)
        return {seed: Estimate(one.value, nobody, many) for seed, one in seeds.items()}

    return between_platforms(alone(a), alone(b)).p_equivalent(margin)


def _verdict(row: dict, cause: Cause, why: str) -> tuple[str, Cause, str]:
    if cause:
        return "inconclusive", cause, why
    if not np.isfinite(row["p_different"]):  # zero with an error of zero
        return "equivalent", Cause.NONE, "the same for every seed and patient"
    different = row["p_holm"] < ALPHA
    if row["p_equivalent"] < ALPHA:
        return "equivalent", Cause.NONE, "differs from zero, but inside the margin" if different else ""
    if different:
        return "different", Cause.NONE, ""
    if (smallest := row["smallest_margin"]) > row["margin"]:
        why = f"too few patients or seeds: the smallest margin to be shown is {smallest:.3f}"
        return "inconclusive", Cause.MARGIN, why
    return "inconclusive", Cause.BETWEEN, "the interval holds zero and reaches past the margin"


def _every(labels: list[dict]) -> dict:
    """The verdict on all labels at once, from their rows."""
    verdicts = [row["verdict"] for row in labels]
    frame = pd.DataFrame(labels, columns=COLUMNS)
    values = {
        "p_equivalent": frame["p_equivalent"].max(skipna=False),
        "p_holm": frame["p_holm"].min(),
        "smallest_margin": frame["smallest_margin"].max(skipna=False),
    }
    if all(verdict == "equivalent" for verdict in verdicts):
        return {**values, "verdict": "equivalent", "cause": Cause.NONE, "reason": ""}
    if "different" in verdicts:
        names = ", ".join(row["label"] for row in labels if row["verdict"] == "different")
        return {**values, "verdict": "different", "cause": Cause.NONE, "reason": f"different: {names}"}
    if (cause := labels[0]["cause"]) in (Cause.SEEDS, Cause.IMAGES):  # of all labels alike
        return {**values, "verdict": "inconclusive", "cause": cause, "reason": labels[0]["reason"]}
    why = f"{verdicts.count('equivalent')} of {len(labels)} labels are equivalent"
    return {**values, "verdict": "inconclusive", "cause": Cause.BETWEEN, "reason": why}
