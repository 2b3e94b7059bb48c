"""How far networks lie apart that differ in the seed, the platform or a setting.

``pairs`` has a row per pair of recorded networks and score. What is ``changed`` is the seed (same recipe,
data and platform) or, with the same seed, the platform, the precision, the number of threads or the processor
alone. Where the processor changed with one of the others, ``changed`` names both.

``contrasts`` says what image size, precision or initial weights are worth: a row per pair of datasets of the
same images that differ in pixels and recipe alone, where both have ``MIN_SEEDS`` seeds. ``difference`` of the
means over seeds (a - b) has its 95 % interval over patients and seeds
(:mod:`cxrbench.statistics.components`). ``differs`` lists all that differs; more than one thing, and the
difference is that of all of them together.
Precision alone has the ``verdict`` of two platforms (:mod:`cxrbench.statistics.parity`), within their margin
and by the 90 % interval ``ci90_*``; for the rest no margin was declared. ``processors_*``: where each side
was trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import mean_value
from cxrbench.statistics.components import ALPHA, MIN_SEEDS, between_platforms
from cxrbench.statistics.estimates import ENDPOINT, CellEstimate
from cxrbench.statistics.measures import DEFINITIONS, IMAGE_LEVEL
from cxrbench.statistics.parity import Margins, Seeds, compared_seeds, margin_of, verdict_on
from cxrbench.statistics.shares import AND_PROCESSOR
from cxrbench.study.config import Study
from cxrbench.study.names import Cell

SEED, PLATFORM, PROCESSOR = "seed", "platform", "processor"
BETWEEN = (PLATFORM, "precision", "threads", PROCESSOR)  # what is changed with the same seed
_METRICS = (
    *((ENDPOINT, "auroc"), ("macro", "auroc")),
    *(("macro" if name == "f1_macro" else "all", name) for name in DEFINITIONS if name not in IMAGE_LEVEL),
    *(("all", name) for name in IMAGE_LEVEL),
)
COLUMNS = [
    *("changed", "dataset", "architecture", "platform", "dataset_b", "platform_b", "seed", "seed_b"),
    *("label", "metric", "value", "value_b", "difference", "processor", "processor_b"),
]
_CONTRASTED = ((ENDPOINT, "auroc"), ("macro", "auroc"), ("macro", "f1_macro"))
_SOURCE = "source"  # other images: nothing to contrast
JUDGED = "precision"  # the setting that is judged as platforms are
CONTRAST_COLUMNS = [
    *("architecture", "platform", "dataset_a", "dataset_b", "differs", "label", "metric"),
    *("seeds_a", "seeds_b", "mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("margin", "p_equivalent", "smallest_margin", "verdict", "reason", "n_images", "n_patients"),
]


def margins_of(study: Study) -> Margins:
    """The margins that a study declares."""
    return Margins(**study.margins.model_dump())


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


def contrasts(cells: Mapping[Cell, CellEstimate], study: Study) -> pd.DataFrame:
    """Return the table described above (columns ``CONTRAST_COLUMNS``), datasets in the study's order."""
    margins = margins_of(study)
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
        for row in _contrast(datasets[a], datasets[b], margins if differs == JUDGED else None)
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
