"""Comparisons between cells: platforms, settings, spread, power, subgroups, literature, the F1 question."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.datasets.split import fold_of
from cxrbench.evidence.record import processors_in_words
from cxrbench.results import subgroups
from cxrbench.results.kept import Scores
from cxrbench.results.literature import BASELINE_COLUMNS, compare_with_literature, read_baselines
from cxrbench.results.pairs import ARITHMETIC, PRECISION, arithmetic, contrasts, margins_of, pairs, powers
from cxrbench.statistics import f1_search
from cxrbench.statistics.components import MIN_SEEDS, SPREAD_COLUMNS, spread
from cxrbench.statistics.estimates import CellEstimate
from cxrbench.statistics.folds import FOLD_COLUMNS, SPLIT, fold_sources, pooled_spread
from cxrbench.statistics.metrics import COMPARED, DEFINITIONS
from cxrbench.statistics.parity import parity
from cxrbench.statistics.power import power_table
from cxrbench.statistics.shares import shares
from cxrbench.statistics.sources import MIN_RUNS, SETTING, SOURCE_COLUMNS, sources
from cxrbench.study.config import NihSource, Study
from cxrbench.study.names import Cell

ScoresByCell = Mapping[Cell, Scores]


def with_spreads(scored: ScoresByCell, cells: Sequence[Cell]) -> tuple[dict[Cell, Scores], pd.DataFrame]:
    """The scores of ``cells`` with what comparisons of them need, and the spread of each setting over its
    seeds, of all patients and of subgroups (spread.csv).

    The spread needs every image's influence, so the seeds of one setting are in memory at a time.
    """
    settings: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        settings.setdefault((cell.dataset, cell.architecture, cell.platform), []).append(cell)
    reduced: dict[Cell, Scores] = {}
    distinct: list[CellEstimate] = []
    spreads: dict[str, list[pd.DataFrame]] = {"": []}
    for _, seeds in sorted(settings.items()):
        read = {cell: scored[cell] for cell in seeds}
        spreads[""].append(spread({cell: scores.estimate for cell, scores in read.items()}))
        for label in dict.fromkeys(label for scores in read.values() for label in scores.groups):
            subgroup = {cell: scores.groups[label] for cell, scores in read.items() if label in scores.groups}
            spreads.setdefault(label, []).append(spread(subgroup))
        for cell, scores in read.items():
            averaged, last = scores.estimate, scores.last
            reduced[cell] = scores._replace(
                estimate=_compared(averaged, distinct),
                last=_compared(last, distinct) if last else None,
                groups={},
            )
    tables = [table for of_label in spreads.values() for table in of_label]
    table = pd.concat(tables, ignore_index=True) if tables else spread({})
    return {cell: reduced[cell] for cell in cells}, table


def _compared(estimate: CellEstimate, distinct: list[CellEstimate]) -> CellEstimate:
    """The metrics that are compared; names and labels of images are those of the equal one in ``distinct``,
    which gains it where there is none."""
    equal = next((estimated for estimated in distinct if estimated.same_images(estimate)), None)
    sample = replace(equal.sample, scores=estimate.sample.scores) if equal else estimate.sample
    compared = replace(estimate.only(*COMPARED, *DEFINITIONS), sample=sample, parts={})
    distinct += [] if equal else [compared]
    return compared


def comparison_tables(
    scored: ScoresByCell,
    spreads: pd.DataFrame,
    cells: pd.DataFrame,
    metrics: pd.DataFrame,
    study: Study,
    baselines: Path,
) -> dict[str, pd.DataFrame]:
    """Each comparison by the name of its table; cells without scores are left out.

    ``scored`` and ``spreads``: of :func:`with_spreads`; ``cells`` and ``metrics``: cells.csv and metrics.csv;
    ``baselines``: the file of published values.
    """
    scored = of_whole_blocks(scored, study)
    ok = cells[cells["cell"].isin({*map(str, scored)})]
    estimates = {cell: scores.estimate for cell, scores in scored.items()}
    drawn = cells.loc[cells["drawn"].astype(bool), "dataset"]
    spreads = spreads.assign(drawn=spreads["dataset"].isin(drawn))
    paired = pairs(estimates, ok, study)
    contrasted = _contrasts(estimates, ok, study)
    unaveraged = {cell: scores.last for cell, scores in scored.items() if scores.last}
    contrasted = with_last(contrasted, _contrasts(unaveraged, ok, study))
    cross_fitted = cross_fitted_networks(estimates, study)
    of_folds, by_source = _of_folds(cross_fitted), _sources(scored, ok, study)
    return {
        "parity": _parity(estimates, ok, study),
        "contrasts": contrasted,
        "arithmetic": arithmetic(estimates, study, dict(zip(ok["cell"], ok["processor"], strict=True))),
        "powers": powers(estimates, contrasted[~contrasted["dataset_a"].isin(drawn)]),
        "pairs": paired,
        "shares": shares(paired[~paired["dataset"].isin(drawn)]),
        "spread": spreads,
        "sources": pd.concat([by_source, _splits(of_folds)], ignore_index=True)
        if len(of_folds)
        else by_source,
        "folds": of_folds,
        "folds_pooled": _pooled(cross_fitted),
        "power": power_table(not_set_apart(spreads, study), margins_of(study)),
        "f1_search": _joined({cell: scores.f1_search for cell, scores in scored.items()}, f1_search.COLUMNS),
        "subgroups": _joined({cell: scores.subgroups for cell, scores in scored.items()}, subgroups.COLUMNS),
        "literature": _literature(ok, metrics, study, baselines),
    }


def of_whole_blocks(scored: ScoresByCell, study: Study) -> dict[Cell, Scores]:
    """The scores without those of a block's arm of which a declared seed has none: a look at fewer seeds
    could decide when to stop (docs/arithmetic.md)."""
    lacking = {(c.dataset, c.architecture, c.platform) for c in study.all_cells() if c not in scored}
    blocks = {name for name, source in study.datasets.items() if source.block}
    return {
        cell: scores
        for cell, scores in scored.items()
        if cell.dataset not in blocks or (cell.dataset, cell.architecture, cell.platform) not in lacking
    }


def with_last(contrasted: pd.DataFrame, unaveraged: pd.DataFrame) -> pd.DataFrame:
    """Contrasts of averaged weights beside those of the weights after the last step, of the same seeds: their
    ``last_difference`` with its 90 % interval, NaN where a run kept no such predictions."""
    keys = ["architecture", "platform", "dataset_a", "dataset_b", "label", "metric", "seeds_a", "seeds_b"]
    beside = unaveraged[[*keys, "difference", "ci90_low", "ci90_high"]]
    renamed = beside.rename(columns={name: f"last_{name}" for name in beside if name not in keys})
    return contrasted.merge(renamed, on=keys, how="left", validate="one_to_one")


def not_set_apart(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The rows of settings that emulate nothing and are in no block: arms nearly repeat one another's runs,
    and folds have other test patients."""
    return table[
        ~table["dataset"].isin([name for name in table["dataset"].unique() if study.set_apart(name)])
    ]


def _sources(scored: ScoresByCell, cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The variance of a score by source, for the images that most runs on real radiographs scored.

    Settings of a network that differ in precision or arithmetic alone are compared. The arms of a block have
    a row of theirs alone: its control repeats a setting of the study, and others nearly repeat the control.
    """
    settings: dict[str, dict[str, dict[int, tuple[CellEstimate, np.ndarray]]]] = {}
    real = cells[~cells["drawn"].astype(bool)]
    packed = dict(zip(real["cell"], real["packed"], strict=True))
    for cell, scores in scored.items():
        if str(cell) in packed:
            of_images = settings.setdefault(packed[str(cell)], {})
            name = f"{cell.dataset}/{cell.architecture}/{cell.platform}"
            of_images.setdefault(name, {})[cell.seed] = (scores.estimate, scores.halves)
    most = max(settings.values(), key=lambda runs: sum(map(len, runs.values())), default={})
    enough = {name: set(seeds) for name, seeds in most.items() if len(seeds) >= MIN_RUNS}
    ran_on = dict(zip(real["cell"], real["processor"], strict=True))
    arms = [name for name in enough if study.dataset(name.split("/")[0]).block]
    return sources(most, blocks_of_settings(enough, study, ran_on), repeats=arms)


CrossFitted = dict[tuple[str, str, str], list[dict[int, CellEstimate]]]


def cross_fitted_networks(estimates: Mapping[Cell, CellEstimate], study: Study) -> CrossFitted:
    """The runs by seed of every fold, of the seeds that all folds have, by the recipe, network and platform
    that they share; without those that lack a fold or have fewer than ``MIN_SEEDS`` such seeds."""
    designs: dict[tuple[Any, ...], dict[int, dict[int, CellEstimate]]] = {}
    for cell, run in estimates.items():
        source = study.dataset(cell.dataset)
        if fold := fold_of(getattr(source, "split", None) or ""):
            number, count = fold
            alike = str(source.settings() | {"split": ""})
            design = (source.recipe, cell.architecture, cell.platform, count, alike)
            designs.setdefault(design, {}).setdefault(number, {})[cell.seed] = run
    whole: CrossFitted = {}
    for (*named, count, _), folds in designs.items():
        shared = sorted(set.intersection(*map(set, folds.values())))
        if len(folds) == count and len(shared) >= MIN_SEEDS:
            recipe, network, platform = named
            runs = [{seed: folds[number][seed] for seed in shared} for number in sorted(folds)]
            whole[recipe, network, platform] = runs
    return whole


def _of_folds(cross_fitted: CrossFitted) -> pd.DataFrame:
    """The variance by source over folds (folds.csv): of each network a row per source."""
    parts = [
        fold_sources(folds).assign(recipe=recipe, architecture=network, platform=platform)
        for (recipe, network, platform), folds in cross_fitted.items()
    ]
    columns = ["recipe", "architecture", "platform", *FOLD_COLUMNS]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _splits(of_folds: pd.DataFrame) -> pd.DataFrame:
    """The split's rows of folds.csv as rows of sources.csv, for the patients of one fold."""
    rows = of_folds[of_folds["source"] == SPLIT]
    named = rows.assign(metric="endpoint", source=SETTING, setting=SPLIT, network=rows["architecture"])
    return named.assign(sd=rows["variance"].clip(lower=0) ** 0.5, settings=rows["folds"])[SOURCE_COLUMNS]


def _pooled(cross_fitted: CrossFitted) -> pd.DataFrame:
    """AUROC over the patients of all folds together (folds_pooled.csv), columns of spread.csv, of which
    ``dataset`` names the recipe."""
    runs = {
        Cell(recipe, network, platform, seed): [fold[seed] for fold in folds]
        for (recipe, network, platform), folds in cross_fitted.items()
        for seed in folds[0]
    }
    return pooled_spread(runs) if runs else pd.DataFrame(columns=SPREAD_COLUMNS)


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
        processors = tuple(ran_on[f"{name}/seed{seed}"] for seed in sorted(numbers))
        block = study.dataset(dataset).block
        kind_of_block = (kind, network, platform, block, str(recipe), tuple(sorted(numbers)), processors)
        blocks.setdefault(kind_of_block, {}).setdefault(value, name)
    return {block_of[:2]: [*names.values()] for block_of, names in blocks.items() if len(names) > 1}


def _parity(estimates: dict[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Parity within cells of equal data, recipe and images per BatchNorm statistic, with the
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
    """Contrasts with the processors of each side, and whether a seed's two runs shared theirs."""
    ran_on = dict(zip(cells["cell"], cells["processor"], strict=True))
    rows = contrasts(estimates, study, ran_on)
    sides = []
    for side in ("a", "b"):
        columns = rows[[f"dataset_{side}", "architecture", "platform", f"seeds_{side}"]]
        seeds = [_seeds("/".join(row[:3]), row[3]) for row in columns.itertuples(index=False, name=None)]
        sides.append([[ran_on[cell] for cell in group] for group in seeds])
        rows[f"processors_{side}"] = [processors_in_words(processors) for processors in sides[-1]]
    same = [a == b for a, b in zip(*sides, strict=True)]
    rows["same_processor_by_seed"] = (rows["seeds_a"] == rows["seeds_b"]) & np.array(same, bool)
    return rows


def _seeds(folder: str, seeds: str) -> list[str]:
    return [f"{folder}/seed{seed}" for seed in seeds.split(",") if seed]


def _joined(tables: dict[Cell, pd.DataFrame | None], columns: list[str]) -> pd.DataFrame:
    """The rows of every cell's table, under its name."""
    parts = [table.assign(cell=str(cell)) for cell, table in tables.items() if table is not None]
    wanted = ["cell", *columns]
    return pd.concat(parts, ignore_index=True)[wanted] if parts else pd.DataFrame(columns=wanted)


def _literature(cells: pd.DataFrame, metrics: pd.DataFrame, study: Study, baselines: Path) -> pd.DataFrame:
    """Each cell on real radiographs beside what was published for the same split."""
    published, parts = read_baselines(baselines), []
    for (dataset, images), rows in cells.groupby(["dataset", "train_images"], sort=False):
        config = study.dataset(dataset)
        if isinstance(config, NihSource):
            ours = metrics[metrics["cell"].isin(rows["cell"])]
            parts.append(
                compare_with_literature(
                    ours,
                    published,
                    split_name=config.split,
                    n_train_images=int(images),
                    pixels=config.pixels,
                )
            )
    whole = (
        pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["cell", *BASELINE_COLUMNS])
    )
    place = {cell: number for number, cell in enumerate(cells["cell"])}
    return whole.sort_values("cell", key=lambda cells: cells.map(place), kind="stable", ignore_index=True)
