"""Comparisons between cells: platforms, settings, spread, power, subgroups, literature, the F1 question."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import abnormal_share
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, processors_in_words
from cxrbench.results import subgroups
from cxrbench.results.literature import BASELINE_COLUMNS, compare_with_literature, read_baselines
from cxrbench.results.pairs import ARITHMETIC, PRECISION, contrasts, margins_of, pairs, powers
from cxrbench.statistics import f1_search
from cxrbench.statistics.components import spread
from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.parity import parity
from cxrbench.statistics.power import power_table
from cxrbench.statistics.sample import validation_of
from cxrbench.statistics.shares import shares
from cxrbench.statistics.sources import MIN_RUNS, halved_scores, sources
from cxrbench.study.config import NihSource, PhantomSource, Study, read_study
from cxrbench.study.files import cores, read_csv, write_csv
from cxrbench.study.names import Cell


class Scores(NamedTuple):
    """What a cell's predictions say; ``subgroups`` and ``groups`` (by label) of images in NIH's table.

    ``halves``: scores on halves of the patients (:func:`~cxrbench.statistics.sources.halved_scores`).
    """

    estimate: CellEstimate
    halves: np.ndarray
    f1_search: pd.DataFrame
    subgroups: pd.DataFrame | None
    groups: dict[str, CellEstimate]


def write_statistics(results: Path, study_path: Path, baselines: Path) -> None:
    """Write a CSV per comparison into ``results``/tables; cells without scores are left out."""
    study = read_study(study_path)
    cells = read_csv(results / "tables/cells.csv", keep_default_na=False)
    ok = cells[cells["status"] == "ok"]
    scored = _scored(ok["cell"], results / "cells", study)
    estimates = {cell: scores.estimate for cell, scores in scored.items()}
    spreads = pd.concat([spread(estimates), *_spread_of_subgroups(scored)], ignore_index=True)
    drawn = cells.loc[cells["drawn"].astype(bool), "dataset"]
    spreads["drawn"] = spreads["dataset"].isin(drawn)
    paired = pairs(estimates, ok, study)
    contrasted = _contrasts(estimates, ok, study)
    tables = {
        "parity": _parity(estimates, ok, study),
        "contrasts": contrasted,
        "powers": powers(estimates, contrasted[~contrasted["dataset_a"].isin(drawn)]),
        "pairs": paired,
        "shares": shares(paired[~paired["dataset"].isin(drawn)]),
        "spread": spreads,
        "sources": _sources(scored, ok, study),
        "power": power_table(spreads, margins_of(study)),
        "f1_search": _joined({cell: of.f1_search for cell, of in scored.items()}, f1_search.COLUMNS),
        "subgroups": _joined({cell: of.subgroups for cell, of in scored.items()}, subgroups.COLUMNS),
        "literature": _literature(ok, results, study, baselines),
    }
    for name, table in tables.items():
        write_csv(results / "tables" / f"{name}.csv", table)


def _scored(cells: Iterable[str], adopted: Path, study: Study) -> dict[Cell, Scores]:
    """Return the scores of each cell, by a process per core; none idle."""
    named = [Cell.parse(cell) for cell in cells]
    paths = [cell.folder(adopted) / PREDICTIONS for cell in named]
    of_nih = [isinstance(study.dataset(cell.dataset), NihSource | PhantomSource) for cell in named]
    with ProcessPoolExecutor(max(1, min(cores(), len(named)))) as pool:
        share = abnormal_share("official") if any(of_nih) else np.nan
        scores = pool.map(
            partial(_scores, least=study.endpoint.positive_patients, elsewhere=share), paths, of_nih
        )
        return dict(zip(named, scores, strict=True))


def _scores(path: Path, of_nih: bool, least: int, elsewhere: float) -> Scores:
    """Return the scores of a file of predictions; ``of_nih``: NIH's table has its images' sex and view.

    ``elsewhere``: the share of images with a finding in NIH's official test part.
    """
    predictions = read_predictions(path)
    by_group = subgroups.subgroups(predictions, read_nih_table()) if of_nih else (None, {})
    estimate = estimate_cell(predictions, least)
    halves = halved_scores(estimate, validation_of(predictions))
    search = f1_search.f1_search(predictions, elsewhere if of_nih else np.nan)
    return Scores(estimate, halves, search, *by_group)


def _sources(scored: dict[Cell, Scores], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return the variance of a score by source, for the images that most runs on real radiographs scored.

    Settings of a network that differ in precision or arithmetic alone are compared.
    """
    settings: dict[str, dict[str, dict[int, tuple[CellEstimate, np.ndarray]]]] = {}
    real = cells[~cells["drawn"].astype(bool)]
    packed = dict(zip(real["cell"], real["packed"], strict=True))
    for cell, scores in scored.items():
        if str(cell) in packed:
            of_images = settings.setdefault(packed[str(cell)], {})
            name = f"{cell.dataset}/{cell.architecture}/{cell.platform}"
            of_images.setdefault(name, {})[cell.seed] = (scores.estimate, scores.halves)
    most = max(settings.values(), key=lambda of: sum(map(len, of.values())), default={})
    enough = {name: set(seeds) for name, seeds in most.items() if len(seeds) >= MIN_RUNS}
    return sources(
        most, blocks_of_settings(enough, study, dict(zip(real["cell"], real["processor"], strict=True)))
    )


def blocks_of_settings(
    seeds: dict[str, set[int]], study: Study, ran_on: dict[str, str]
) -> dict[tuple[str, str], list[str]]:
    """Settings (dataset/network/platform) that differ in precision or arithmetic alone, by that and network.

    ``seeds`` of each setting: all of a block have the same, each on one processor (``ran_on``, by cell).
    """
    blocks: dict[tuple, dict[str, str]] = {}
    for kind, (name, numbers) in product((PRECISION, ARITHMETIC), seeds.items()):
        dataset, network, platform = name.split("/")
        recipe = study.recipe(dataset).model_dump()
        value = recipe.pop(kind)
        where = tuple(ran_on[f"{name}/seed{seed}"] for seed in sorted(numbers))
        alike = (kind, network, platform, str(recipe), tuple(sorted(numbers)), where)
        blocks.setdefault(alike, {}).setdefault(value, name)
    return {of[:2]: [*names.values()] for of, names in blocks.items() if len(names) > 1}


def _spread_of_subgroups(scored: dict[Cell, Scores]) -> Iterator[pd.DataFrame]:
    """Yield rows of spread.csv for each subgroup, whose label names it."""
    groups = {cell: scores.groups for cell, scores in scored.items()}
    for label in dict.fromkeys(label for group in groups.values() for label in group):
        yield spread({cell: group[label] for cell, group in groups.items() if label in group})


def _parity(estimates: dict[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return parity within cells of equal data, recipe and images per BatchNorm statistic, with the
    processors of each side: where these differ, a difference is not due to the platform alone; and whether
    the seeds of a side were trained with updates that round differently (``mixed_updates``)."""
    alike = ["dataset", "architecture", "packed", "recipe_hash", "norm_images"]
    groups = [[Cell.parse(cell) for cell in rows["cell"]] for _, rows in cells.groupby(alike, sort=False)]
    margins = margins_of(study)
    parts = [parity({cell: estimates[cell] for cell in group}, margins) for group in groups]
    rows = pd.concat(parts, ignore_index=True) if parts else parity({}, margins)
    ran_on, update = (dict(zip(cells["cell"], cells[name], strict=True)) for name in ("processor", "update"))
    rows["mixed_updates"] = False
    for side in ("a", "b"):
        columns = rows[["dataset", "architecture", f"platform_{side}", f"seeds_{side}"]]
        seeds = [_seeds("/".join(row[:3]), row[3]) for row in columns.itertuples(index=False, name=None)]
        rows[f"processors_{side}"] = [processors_in_words(ran_on[cell] for cell in group) for group in seeds]
        mixed = [len({update[cell] for cell in group}) > 1 for group in seeds]
        rows["mixed_updates"] |= np.array(mixed, bool)
    return rows


def _contrasts(estimates: dict[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return contrasts with the processors of each side, and whether a seed's two runs shared theirs."""
    ran_on = dict(zip(cells["cell"], cells["processor"], strict=True))
    rows = contrasts(estimates, study, ran_on)
    sides = []
    for side in ("a", "b"):
        columns = rows[[f"dataset_{side}", "architecture", "platform", f"seeds_{side}"]]
        seeds = [_seeds("/".join(row[:3]), row[3]) for row in columns.itertuples(index=False, name=None)]
        sides.append([[ran_on[cell] for cell in group] for group in seeds])
        rows[f"processors_{side}"] = [processors_in_words(of) for of in sides[-1]]
    same = [a == b for a, b in zip(*sides, strict=True)]
    rows["same_processor_by_seed"] = (rows["seeds_a"] == rows["seeds_b"]) & np.array(same, bool)
    return rows


def _seeds(folder: str, seeds: str) -> list[str]:
    return [f"{folder}/seed{seed}" for seed in seeds.split(",") if seed]


def _joined(tables: dict[Cell, pd.DataFrame | None], columns: list[str]) -> pd.DataFrame:
    """Return the rows of every cell's table, under its name."""
    parts = [table.assign(cell=str(cell)) for cell, table in tables.items() if table is not None]
    wanted = ["cell", *columns]
    return pd.concat(parts, ignore_index=True)[wanted] if parts else pd.DataFrame(columns=wanted)


def _literature(cells: pd.DataFrame, results: Path, study: Study, baselines: Path) -> pd.DataFrame:
    """Return each cell on real radiographs beside what was published for the same split."""
    metrics = read_csv(results / "tables/metrics.csv", dtype={"note": str})
    published, tables = read_baselines(baselines), {}
    for row in cells.itertuples():
        config = study.dataset(row.dataset)
        if isinstance(config, NihSource):
            tables[Cell.parse(row.cell)] = compare_with_literature(
                metrics[metrics["cell"] == row.cell],
                published,
                split_name=config.split,
                n_train_images=int(float(row.train_images)),
                pixels=config.pixels,
            )
    return _joined(tables, BASELINE_COLUMNS)
