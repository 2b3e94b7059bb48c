"""How far networks lie apart that differ in the seed, the platform or a setting.

``pairs`` has a row per pair of recorded networks and score. What is ``changed`` is the seed (same recipe,
data and platform) or, with the same seed, the platform, the precision, the number of threads or the processor
alone. Where the processor changed with one of the others, ``changed`` names both.

``contrasts`` says what image size, precision or initial weights are worth: a row per pair of datasets of the
same images that differ in pixels and recipe alone, where both have ``MIN_SEEDS`` seeds. ``difference`` of the
means over seeds (a - b) has its 95 % interval over patients and seeds
(:mod:`cxrbench.statistics.components`). ``differs`` lists all that differs; more than one thing, and the
difference is that of all of them together.
Precision alone and arithmetic alone have the ``verdict`` of two platforms
(:mod:`cxrbench.statistics.parity`), within their margin and by the 90 % interval ``ci90_*``; for the rest no
margin was declared. Datasets with a ``block`` are compared with those of the same block alone, on seeds whose
two runs shared a processor (docs/arithmetic.md). ``p_family`` is Holm's correction over the endpoint's
verdicts on one setting, of the test that each stands on.

``arithmetic`` answers whether two platforms' arithmetic moves a network further than another order of
summation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate, mean_value
from cxrbench.statistics.components import ALPHA, MIN_SEEDS, between_networks, between_platforms
from cxrbench.statistics.estimates import CellEstimate
from cxrbench.statistics.metrics import DEFINITIONS, ENDPOINT, MACRO, METRICS
from cxrbench.statistics.parity import Margins, Seeds, compared_seeds, margin_of, p_family, verdict_on
from cxrbench.statistics.pilot import power, variance_parts
from cxrbench.statistics.power import Design
from cxrbench.statistics.shares import AND_PROCESSOR
from cxrbench.statistics.sources import MIN_RUNS
from cxrbench.study.config import Study
from cxrbench.study.names import Cell

SEED, PLATFORM, PROCESSOR = "seed", "platform", "processor"
PRECISION, ARITHMETIC = "precision", "arithmetic"
BETWEEN = (PLATFORM, PRECISION, ARITHMETIC, "threads", PROCESSOR)  # what is changed with the same seed
_METRICS = (
    *((ENDPOINT, "auroc"), (MACRO, "auroc")),
    *((METRICS[name].label, name) for name in DEFINITIONS),
)
COLUMNS = [
    *("changed", "dataset", "architecture", "platform", "dataset_b", "platform_b", "seed", "seed_b"),
    *("label", "metric", "value", "value_b", "difference", "processor", "processor_b"),
]
_CONTRASTED = ((ENDPOINT, "auroc"), (MACRO, "auroc"), (MACRO, "f1_macro"))
_SOURCE = "source"  # other images: nothing to contrast
JUDGED = (PRECISION, ARITHMETIC)  # settings that are judged as platforms are
CONTRAST_COLUMNS = [
    *("architecture", "platform", "dataset_a", "dataset_b", "differs", "label", "metric"),
    *("seeds_a", "seeds_b", "mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("margin", "p_different", "p_equivalent", "p_family", "smallest_margin", "verdict", "reason"),
    *("n_images", "n_patients"),
]
POWER_COLUMNS = [
    *("architecture", "platform", "dataset_a", "dataset_b", "differs", "margin", "patients", "seeds"),
    *("as_measured", "at_worst", "subsets"),
]
EMULATED_PLATFORMS = ("matmult_bf16", "tf32_conv")  # of arithmetic, declared
ORDERS = ("fp32_reordered", "own")  # of arithmetic, declared
ARITHMETIC_COLUMNS = [
    *("architecture", "platform", "seeds", "n_patients", "difference", "seed_sd"),
    *("difference_of_orders", "seed_sd_of_orders", "beyond", "ci_low", "ci_high"),
]
MOST_SEEDS = 12  # of a power curve
MOST_CHOICES = 252  # five of ten seeds have so many; twelve of 37 would have 1,852,482,996


def margins_of(study: Study) -> Margins:
    """The margins that a study declares."""
    return Margins(**study.margins.model_dump())


def pairs(estimates: Mapping[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The pairs of networks of ``estimates`` that differ in one setting (columns ``COLUMNS``).

    ``cells``: their rows of cells.csv, which say what each was trained on and where.
    """
    facts = cells.set_index("cell").to_dict("index")
    rows: list[dict[str, Any]] = []
    for a, b in combinations(estimates, 2):
        changed = _changed(a, b, facts[str(a)], facts[str(b)], study)
        if changed and estimates[a].same_images(estimates[b]):
            rows += _rows(changed, (a, b), estimates, facts)
    return pd.DataFrame(rows, columns=COLUMNS)


def _changed(a: Cell, b: Cell, first: dict[str, Any], second: dict[str, Any], study: Study) -> str:
    """The setting that two cells differ in, and the processor if that differs; empty if several do."""
    images = ("packed", "norm_images")
    if a.architecture != b.architecture or any(first[key] != second[key] for key in images):
        return ""
    if a.dataset != b.dataset:
        if (a.platform, a.seed) != (b.platform, b.seed):
            return ""
        settings = _settings_differ(study, a.dataset, b.dataset)
    elif first["recipe_hash"] != second["recipe_hash"]:
        return ""
    else:
        settings = [name for name in (SEED, PLATFORM) if getattr(a, name) != getattr(b, name)]
    moved = first["processor"] != second["processor"]
    if not settings:
        return PROCESSOR if moved else ""
    if len(settings) > 1 or settings[0] not in (SEED, *BETWEEN):
        return ""
    return settings[0] + (AND_PROCESSOR if moved else "")


def _rows(
    changed: str, both: tuple[Cell, Cell], estimates: Mapping[Cell, CellEstimate], facts: Mapping[str, dict]
) -> Iterator[dict[str, Any]]:
    a, b = both
    values = [dict(zip(estimates[cell].keys, estimates[cell].estimate.value, strict=True)) for cell in both]
    for label, metric in _METRICS:
        first, second = (scores.get((label, metric), np.nan) for scores in values)
        yield {
            **{"changed": changed, "dataset": a.dataset, "architecture": a.architecture},
            **{"platform": a.platform, "dataset_b": b.dataset, "platform_b": b.platform},
            **{"seed": a.seed, "seed_b": b.seed, "label": label, "metric": metric},
            **{"value": first, "value_b": second, "difference": first - second},
            "processor": facts[str(a)]["processor"],
            "processor_b": facts[str(b)]["processor"],
        }


def contrasts(cells: Mapping[Cell, CellEstimate], study: Study, ran_on: Mapping[str, str]) -> pd.DataFrame:
    """The table described above (columns ``CONTRAST_COLUMNS``), datasets in the study's order.

    ``ran_on``: the processor of each cell, by name.
    """
    margins = margins_of(study)
    groups: dict[tuple[str, str], dict[str, dict[int, CellEstimate]]] = {}
    for cell in dict.fromkeys([*study.all_cells(), *cells]):
        if cell in cells:
            group = groups.setdefault((cell.architecture, cell.platform), {})
            group.setdefault(cell.dataset, {})[cell.seed] = cells[cell].only("auroc", "f1_macro")
    rows = []
    for (architecture, platform), datasets in groups.items():
        for a, b in combinations(datasets, 2):
            differs = ", ".join(_settings_differ(study, a, b)).replace("_", " ")
            block = study.dataset(a).block
            if differs in ("", _SOURCE) or block != study.dataset(b).block:
                continue
            first, second = datasets[a], datasets[b]
            if block:
                shared = _on_one_processor(ran_on, [f"{name}/{architecture}/{platform}" for name in (a, b)])
                first, second = (
                    {seed: runs[seed] for seed in runs if seed in shared} for runs in (first, second)
                )
            place = dict(zip(CONTRAST_COLUMNS, (architecture, platform, a, b, differs), strict=False))
            rows += [place | row for row in _contrast(first, second, margins if differs in JUDGED else None)]
    table = pd.DataFrame(rows, columns=CONTRAST_COLUMNS)
    for setting in JUDGED:
        judged = (table["differs"] == setting) & (table["label"] == ENDPOINT)
        table.loc[judged, "p_family"] = p_family(table[judged])
    return table


def _on_one_processor(ran_on: Mapping[str, str], settings: list[str]) -> set[int]:
    """The seeds that two settings (dataset/architecture/platform) both ran on one processor."""
    seeds = [
        {(cell.rsplit("/seed", 1)[1], ran_on[cell]) for cell in ran_on if cell.startswith(f"{setting}/")}
        for setting in settings
    ]
    return {int(seed) for seed, _ in set.intersection(*seeds)}


def arithmetic(cells: Mapping[Cell, CellEstimate], study: Study, ran_on: Mapping[str, str]) -> pd.DataFrame:
    """The endpoint's difference between two platforms' arithmetic, and between two orders of summation.

    A row per network of a block that has all four arms, over the seeds whose four runs shared a processor
    (``ran_on``); columns ``ARITHMETIC_COLUMNS``. ``beyond`` is the first difference less the second, seed by
    seed, with its 95 % interval over patients and seeds (docs/arithmetic.md). ``seed_sd``: of the differences
    of single seeds.
    """
    blocks: dict[tuple[str, str, str], dict[str, dict[int, CellEstimate]]] = {}
    for cell, scores in cells.items():
        block, arm = study.dataset(cell.dataset).block, study.recipe(cell.dataset).arithmetic
        if block and arm in (*EMULATED_PLATFORMS, *ORDERS):
            arms = blocks.setdefault((block, cell.architecture, cell.platform), {})
            arms.setdefault(arm, {})[cell.seed] = scores
    datasets: dict[tuple[str | None, str], str] = {
        (study.dataset(dataset).block, study.recipe(dataset).arithmetic): dataset
        for dataset in study.datasets
    }
    rows = []
    for (block, network, platform), arms in blocks.items():
        if len(arms) == len((*EMULATED_PLATFORMS, *ORDERS)):
            names = [f"{datasets[block, arm]}/{network}/{platform}" for arm in arms]
            shared = _on_one_processor(ran_on, names)
            seeds = sorted(shared.intersection(*arms.values()))
            sides = [{seed: arms[arm][seed] for seed in seeds} for arm in (*EMULATED_PLATFORMS, *ORDERS)]
            if len(seeds) >= MIN_SEEDS:
                rows.append({"architecture": network, "platform": platform} | _beyond(*sides))
    return pd.DataFrame(rows, columns=ARITHMETIC_COLUMNS)


def _beyond(*sides: Mapping[int, CellEstimate]) -> dict[str, Any]:
    """A row of :func:`arithmetic` from the runs of two platforms' arms, then of two orders', by seed."""
    platforms, orders = (
        {seed: between_networks(_endpoint_of(first[seed]), _endpoint_of(second[seed])) for seed in first}
        for first, second in (sides[:2], sides[2:])
    )
    beyond = between_platforms(platforms, orders)
    (low,), (high,) = beyond.interval(0.95)
    row = {"seeds": ",".join(map(str, platforms)), "beyond": beyond.value[0], "ci_low": low, "ci_high": high}
    for suffix, differences in (("", platforms), ("_of_orders", orders)):
        values = [difference.value[0] for difference in differences.values()]
        row |= {f"difference{suffix}": np.mean(values), f"seed_sd{suffix}": np.std(values, ddof=1)}
    return row | {"n_patients": next(iter(sides[0].values())).sample.n_clusters}


def powers(cells: Mapping[Cell, CellEstimate], judged: pd.DataFrame) -> pd.DataFrame:
    """The power to find equal platforms equivalent in the endpoint, by seeds (columns ``POWER_COLUMNS``).

    A row per pair of settings in ``judged`` (rows of :func:`contrasts`) with ``MIN_RUNS`` seeds or more, and
    number of seeds on each side. ``as_measured``: platforms share what these two settings share.
    ``at_worst``: runs of one seed share nothing. ``subsets``: the share of all choices (see
    ``MOST_CHOICES``) of so many of the recorded seeds with the verdict equivalent; they overlap and share
    the patients, so they illustrate.
    """
    rows: list[dict[str, Any]] = []
    chosen = judged[(judged["label"] == ENDPOINT) & judged["differs"].isin(JUDGED)]
    for row in chosen.to_dict("records"):
        seeds = [int(seed) for seed in row["seeds_a"].split(",")]
        if len(seeds) < MIN_RUNS or row["seeds_a"] != row["seeds_b"]:
            continue
        sides = [
            {seed: cells[Cell(name, row["architecture"], row["platform"], seed)] for seed in seeds}
            for name in (row["dataset_a"], row["dataset_b"])
        ]
        a, b = ({seed: _endpoint_of(cell) for seed, cell in side.items()} for side in sides)
        variance = variance_parts(a, b, 0, row["n_patients"], paired=True)
        cases = {"as_measured": variance, "at_worst": variance.at_worst()}
        place = {name: row[name] for name in POWER_COLUMNS if name in row}
        for count in range(MIN_SEEDS, MOST_SEEDS + 1):
            design = Design(variance.patients, count)
            power_of = {name: power(case, design, row["margin"]) for name, case in cases.items()}
            subsets = _subsets(a, b, count, row["margin"])
            rows.append(
                place | {"seeds": count, "patients": variance.patients, "subsets": subsets} | power_of
            )
    return pd.DataFrame(rows, columns=POWER_COLUMNS)


def _endpoint_of(cell: CellEstimate) -> Estimate:
    k, whole = cell.keys.index((ENDPOINT, "auroc")), cell.estimate
    return Estimate(whole.value[[k]], whole.influence[:, [k]], whole.freedom[[k]])


def _subsets(a: Mapping[int, Estimate], b: Mapping[int, Estimate], count: int, margin: float) -> float:
    """The share of choices of ``count`` seeds that are equivalent; NaN of nearly all seeds."""
    if count > len(a) - MIN_SEEDS:
        return float("nan")
    chosen = _choices([*a], count)
    between = (between_platforms({s: a[s] for s in seeds}, {s: b[s] for s in seeds}) for seeds in chosen)
    ends = np.array([difference.interval(1 - 2 * ALPHA) for difference in between])
    return float((np.abs(ends).max(axis=(1, 2)) < margin).mean())


def _choices(seeds: list[int], count: int) -> Iterable[Iterable[int]]:
    """All choices of ``count`` seeds; ``MOST_CHOICES`` drawn ones where there are more."""
    if comb(len(seeds), count) <= MOST_CHOICES:
        return combinations(seeds, count)
    rng = np.random.default_rng(0)
    return (rng.choice(seeds, count, replace=False).tolist() for _ in range(MOST_CHOICES))


def _settings_differ(study: Study, a: str, b: str) -> list[str]:
    """The settings that two datasets of the same images differ in: pixels and parts of the recipe.

    Of other images it is their source.
    """
    sources = [study.dataset(name).model_dump(exclude={"pixels", "recipe", "block"}) for name in (a, b)]
    if sources[0] != sources[1]:
        return [_SOURCE]
    first, second = (
        {"pixels": study.dataset(name).pixels} | study.recipe(name).model_dump() for name in (a, b)
    )
    return [name for name in first if first[name] != second[name]]


def _contrast(a: Seeds, b: Seeds, margins: Margins | None) -> Iterator[dict]:
    a, b = compared_seeds(a, b)
    if min(len(a), len(b)) < MIN_SEEDS:
        return
    first, *others = (*a.values(), *b.values())
    if not all(first.same_images(other) for other in others):
        return
    sides = [{seed: cell.estimate for seed, cell in side.items()} for side in (a, b)]
    difference = between_platforms(*sides)
    low, high = difference.interval(0.95)
    low90, high90 = difference.interval(1 - 2 * ALPHA)
    p_different = difference.p_different()
    margin = np.array([margin_of(key, margins) if margins else np.nan for key in first.keys])
    means = [mean_value(side.values()) for side in sides]
    for label, metric in _CONTRASTED:
        k = first.keys.index((label, metric))
        yield {
            **{"label": label, "metric": metric, "p_different": p_different[k]},
            **{"seeds_a": ",".join(map(str, a)), "seeds_b": ",".join(map(str, b))},
            **{"mean_a": means[0][k], "mean_b": means[1][k], "difference": difference.value[k]},
            **{"ci_low": low[k], "ci_high": high[k], "ci90_low": low90[k], "ci90_high": high90[k]},
            "margin": margin[k],
            **(verdict_on(difference, margin, k) if margins else {"verdict": "", "reason": ""}),
            **{"n_images": first.sample.n_images, "n_patients": first.sample.n_clusters},
        }
