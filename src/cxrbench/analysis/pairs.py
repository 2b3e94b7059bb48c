"""How far networks lie apart that differ in the seed, the platform or a setting.

``pairs`` has a row per pair of recorded networks and score. What is ``changed`` is the seed (same recipe,
data and platform) or, with the same seed, the platform, the precision, the number of threads or the processor
alone. Where the processor changed with one of the others, ``changed`` names both.

``shares`` answers how many seeds a comparison needs: which share of the variance between seeds do two
settings not have in common? With D the difference of a seed's two networks and S their sum, Var(D) / (Var(D)
+ Var(S)) is (1 - r) / 2 for the correlation r of the two; the share is 1 - r, 0 if a seed does the same to
both and 1 if they are as different as two seeds (above 1 if r is negative). Where both have one variance and
are normal, D and S are independent, so the interval follows from F (Pitman 1939, Morgan 1939). Scores are of
one test part: the share is of the variance on these patients, whose luck it includes.

``contrasts`` says what image size, precision or initial weights are worth: a row per pair of datasets of the
same images that differ in pixels and recipe alone, where both have ``MIN_SEEDS`` seeds. ``difference`` of the
means over seeds (a - b) has its 95 % interval over patients and seeds (:mod:`cxrbench.analysis.components`).
``differs`` lists all that differs; more than one thing, and the difference is that of all of them together.
Precision alone has the ``verdict`` of two platforms (:mod:`cxrbench.analysis.parity`), within their margin
and by the 90 % interval ``ci90_*``; for the rest no margin was declared. ``processors_*``: where each side
was trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import fdtri

from cxrbench.analysis.auroc import mean_value
from cxrbench.analysis.components import ALPHA, MIN_SEEDS, between_platforms
from cxrbench.analysis.estimates import ENDPOINT, CellEstimate
from cxrbench.analysis.measures import DEFINITIONS, IMAGE_LEVEL
from cxrbench.analysis.parity import Seeds, compared_seeds, margin_of, verdict_on
from cxrbench.study.config import Margins, Study
from cxrbench.study.names import Cell

SEED, PLATFORM, PROCESSOR = "seed", "platform", "processor"
BETWEEN = (PLATFORM, "precision", "threads", PROCESSOR)  # what is changed with the same seed
AND_PROCESSOR = " and processor"  # follows a setting that changed together with it
_METRICS = (
    *((ENDPOINT, "auroc"), ("macro", "auroc")),
    *(("macro" if name == "f1_macro" else "all", name) for name in DEFINITIONS if name not in IMAGE_LEVEL),
    *(("all", name) for name in IMAGE_LEVEL),
)
COLUMNS = [
    *("changed", "dataset", "architecture", "platform", "dataset_b", "platform_b", "seed", "seed_b"),
    *("label", "metric", "value", "value_b", "difference", "processor", "processor_b"),
]
SHARE_COLUMNS = [
    *("changed", "architecture", "dataset", "platform", "dataset_b", "platform_b", "label", "metric"),
    *("pairs", "freedom", "share", "share_low", "share_high", "sd_of_difference", "sd_of_seeds"),
]
OF_METRIC = {"auroc": ENDPOINT, "f1_macro": "macro"}  # labels of what is sized; others: all
ALL = "all"  # in place of what is changed, or of a network: pooled over them
_LEAST = 3  # pairs behind a share
_LEVEL = 0.95
_CONTRASTED = ((ENDPOINT, "auroc"), ("macro", "auroc"), ("macro", "f1_macro"))
_SOURCE = "source"  # other images: nothing to contrast
JUDGED = "precision"  # the setting that is judged as platforms are
CONTRAST_COLUMNS = [
    *("architecture", "platform", "dataset_a", "dataset_b", "differs", "label", "metric"),
    *("seeds_a", "seeds_b", "mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("margin", "p_equivalent", "smallest_margin", "verdict", "reason", "n_images", "n_patients"),
]


def pairs(estimates: Mapping[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return the pairs of networks of ``estimates`` that differ in one setting (columns ``COLUMNS``).

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
    """Return the setting that two cells differ in, and the processor if that differs; empty if several do."""
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


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share for each two settings of a network, and pooled (columns ``SHARE_COLUMNS``).

    ``table`` is :func:`pairs`. Pooled rows are per network over all that was changed, per change over all
    networks, and over everything; their sums of squares are added, as if one share held for all. A network is
    in one pair of settings of a pool, the one with most seeds: its other pairs are not independent of that.
    """
    paired = _named_alike(table[(table["seed"] == table["seed_b"]) & table["difference"].notna()])
    by = ["changed", "architecture", "dataset", "platform", "dataset_b", "platform_b", "label", "metric"]
    single = [
        dict(zip(by, named, strict=True)) | parts
        for named, seeds in paired.groupby(by, sort=False)
        if (parts := _parts(seeds))["pairs"] >= _LEAST
    ]
    rows = [{**row, **_share(row["between"], row["common"], row["freedom"])} for row in single]
    frame = pd.DataFrame(single, columns=[*by, "pairs", "freedom", "between", "common"])
    for kept in (["architecture"], ["changed"], []):
        names = [*kept, "label", "metric"]
        for named, settings in frame.groupby(names, sort=False):
            sums = _disjoint(settings)[["pairs", "freedom", "between", "common"]].sum()
            place = dict.fromkeys(by, ALL) | dict(zip(names, named, strict=True))
            rows.append(place | sums.to_dict() | _share(sums["between"], sums["common"], sums["freedom"]))
    return pd.DataFrame(rows, columns=SHARE_COLUMNS)


def _named_alike(paired: pd.DataFrame) -> pd.DataFrame:
    """Name the processor in all pairs of two settings if it changed in one of them."""
    setting = paired["changed"].str.removesuffix(AND_PROCESSOR)
    sides = [paired[name] for name in ("architecture", "dataset", "platform", "dataset_b", "platform_b")]
    moved = (paired["changed"] != setting).groupby([setting, *sides]).transform("any")
    return paired.assign(changed=setting.where(~moved, setting + AND_PROCESSOR))


def _disjoint(settings: pd.DataFrame) -> pd.DataFrame:
    """Return those pairs of settings, the largest first, that share no network with one before them."""
    taken: set[tuple[str, ...]] = set()
    rows = []
    for row in settings.sort_values("pairs", ascending=False, kind="stable").itertuples():
        sides = {
            (row.architecture, row.dataset, row.platform),
            (row.architecture, row.dataset_b, row.platform_b),
        }
        if not sides & taken:
            taken |= sides
            rows.append(row.Index)
    return settings.loc[sorted(rows)]


def _parts(seeds: pd.DataFrame) -> dict[str, float]:
    """Return how many pairs, and the sums of squares of their differences and of their sums."""
    difference, total = seeds["difference"], seeds["value"] + seeds["value_b"]
    squares = (float(((part - part.mean()) ** 2).sum()) for part in (difference, total))
    between, common = squares
    return {"pairs": len(seeds), "freedom": len(seeds) - 1, "between": between, "common": common}


def _share(between: float, common: float, freedom: float) -> dict[str, float]:
    """Return the share, its interval, and what it is made of, from sums of squares of differences and
    sums."""
    quantile = fdtri(freedom, freedom, 0.5 + _LEVEL / 2)
    ratio = between / common if common else np.inf
    ends = {"share": ratio, "share_low": ratio / quantile, "share_high": ratio * quantile}
    return {
        **{name: 2 / (1 + 1 / end) if end else 0.0 for name, end in ends.items()},
        "sd_of_difference": float(np.sqrt(between / freedom)),
        "sd_of_seeds": float(np.sqrt((between + common) / 4 / freedom)),
    }


def measured_share(table: pd.DataFrame, architecture: str, metric: str) -> dict[str, Any] | None:
    """Return the row of :func:`shares` that stands for a network: its own pairs', else those of all networks.

    None where nothing was measured. AUROC is that of the main endpoint.
    """
    label = OF_METRIC.get(metric, ALL)
    rows = table[(table["metric"] == metric) & (table["label"] == label) & (table["changed"] == ALL)]
    for name in (architecture, ALL):
        if len(of_network := rows[rows["architecture"] == name]):
            return of_network.iloc[0].to_dict()
    return None


def contrasts(cells: Mapping[Cell, CellEstimate], study: Study) -> pd.DataFrame:
    """Return the table described above (columns ``CONTRAST_COLUMNS``), datasets in the study's order."""
    groups: dict[tuple[str, str], dict[str, dict[int, CellEstimate]]] = {}
    for cell in dict.fromkeys([*study.all_cells(), *cells]):
        if cell in cells:
            group = groups.setdefault((cell.architecture, cell.platform), {})
            group.setdefault(cell.dataset, {})[cell.seed] = cells[cell].only("auroc", "f1_macro")
    rows = [
        dict(zip(CONTRAST_COLUMNS, (*named, a, b, differs), strict=False)) | row
        for named, datasets in groups.items()
        for a, b in combinations(datasets, 2)
        if (differs := ", ".join(_settings_differ(study, a, b)).replace("_", " ")) not in ("", _SOURCE)
        for row in _contrast(datasets[a], datasets[b], study.margins if differs == JUDGED else None)
    ]
    return pd.DataFrame(rows, columns=CONTRAST_COLUMNS)


def _settings_differ(study: Study, a: str, b: str) -> list[str]:
    """Return the settings that two datasets of the same images differ in: pixels and parts of the recipe.

    Of other images it is their source.
    """
    sources = [study.dataset(name).model_dump(exclude={"pixels", "recipe"}) for name in (a, b)]
    if sources[0] != sources[1]:
        return [_SOURCE]
    first, second = (
        {"pixels": study.dataset(name).pixels} | study.recipe(name).model_dump() for name in (a, b)
    )
    return [name for name in first if first[name] != second[name]]


def _contrast(a: Seeds, b: Seeds, margins: Margins | None) -> Iterator[dict]:
    a, b = compared_seeds(a, b)
    first, *others = (*a.values(), *b.values())
    if min(len(a), len(b)) < MIN_SEEDS or not all(first.same_images(other) for other in others):
        return
    sides = [{seed: cell.estimate for seed, cell in side.items()} for side in (a, b)]
    difference = between_platforms(*sides)
    low, high = difference.interval(0.95)
    low90, high90 = difference.interval(1 - 2 * ALPHA)
    margin = np.array([margin_of(key, margins) if margins else np.nan for key in first.keys])
    means = [mean_value(side.values()) for side in sides]
    for label, metric in _CONTRASTED:
        k = first.keys.index((label, metric))
        yield {
            **{"label": label, "metric": metric},
            **{"seeds_a": ",".join(map(str, a)), "seeds_b": ",".join(map(str, b))},
            **{"mean_a": means[0][k], "mean_b": means[1][k], "difference": difference.value[k]},
            **{"ci_low": low[k], "ci_high": high[k], "ci90_low": low90[k], "ci90_high": high90[k]},
            "margin": margin[k],
            **(verdict_on(difference, margin, k) if margins else {"verdict": "", "reason": ""}),
            **{"n_images": first.sample.n_images, "n_patients": first.sample.n_clusters},
        }
