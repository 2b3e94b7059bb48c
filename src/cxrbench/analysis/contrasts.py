"""What image size, precision or initial weights are worth: one network on two datasets of the same images.

A row per pair of datasets that differ in pixels and recipe alone, per architecture, platform and metric,
where both have :data:`~cxrbench.analysis.parity.MIN_SEEDS` seeds: ``difference`` of the means over seeds (a -
b) with its 95 % interval over patients and seeds (:mod:`cxrbench.analysis.components`). ``differs`` lists all
that differs; where it is more than one thing, the difference is that of all of them together. Precision alone
has the ``verdict`` of two platforms (:mod:`cxrbench.analysis.parity`), within their margin and by the 90 %
interval ``ci90_*``; for the rest no margin was declared. ``processors_*``: where each side was trained.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import mean_value
from cxrbench.analysis.components import ALPHA, between_platforms
from cxrbench.analysis.estimates import ENDPOINT, CellEstimate
from cxrbench.analysis.parity import MIN_SEEDS, Seeds, compared_seeds, margin_of, verdict_on
from cxrbench.study.cells import Cell
from cxrbench.study.config import Margins, Study

METRICS = ((ENDPOINT, "auroc"), ("macro", "auroc"), ("macro", "f1_macro"))
SOURCE = "source"  # other images: nothing to contrast
JUDGED = "precision"  # the setting that is judged as platforms are
COLUMNS = [
    *("architecture", "platform", "dataset_a", "dataset_b", "differs", "label", "metric"),
    *("seeds_a", "seeds_b", "mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"),
    *("margin", "p_equivalent", "smallest_margin", "verdict", "reason", "n_images", "n_patients"),
]


def contrasts(cells: Mapping[Cell, CellEstimate], study: Study) -> pd.DataFrame:
    """Return the table described above (columns ``COLUMNS``), datasets in the study's order."""
    groups: dict[tuple[str, str], dict[str, dict[int, CellEstimate]]] = {}
    for cell in dict.fromkeys([*study.all_cells(), *cells]):
        if cell in cells:
            group = groups.setdefault((cell.architecture, cell.platform), {})
            group.setdefault(cell.dataset, {})[cell.seed] = cells[cell].only("auroc", "f1_macro")
    rows = [
        dict(zip(COLUMNS, (*named, a, b, differs), strict=False)) | row
        for named, datasets in groups.items()
        for a, b in combinations(datasets, 2)
        if (differs := ", ".join(settings_differ(study, a, b)).replace("_", " ")) not in ("", SOURCE)
        for row in _rows(datasets[a], datasets[b], study.margins if differs == JUDGED else None)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def settings_differ(study: Study, a: str, b: str) -> list[str]:
    """Return the settings that two datasets of the same images differ in: pixels and parts of the recipe.

    Of other images it is their source.
    """
    sources = [study.dataset(name).model_dump(exclude={"pixels", "recipe"}) for name in (a, b)]
    if sources[0] != sources[1]:
        return [SOURCE]
    first, second = (
        {"pixels": study.dataset(name).pixels} | study.recipe(name).model_dump() for name in (a, b)
    )
    return [name for name in first if first[name] != second[name]]


def _rows(a: Seeds, b: Seeds, margins: Margins | None) -> Iterator[dict]:
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
    for label, metric in METRICS:
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
