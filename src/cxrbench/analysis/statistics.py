"""Comparisons between cells: parity of platforms, spread, subgroups, literature, the F1 question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.analysis.estimates import CellEstimate, estimate_cells
from cxrbench.analysis.f1_search import COLUMNS as F1_COLUMNS
from cxrbench.analysis.f1_search import f1_search
from cxrbench.analysis.literature import COLUMNS as LITERATURE_COLUMNS
from cxrbench.analysis.literature import compare_with_literature, read_baselines
from cxrbench.analysis.parity import parity
from cxrbench.analysis.spread import spread
from cxrbench.analysis.subgroups import COLUMNS as SUBGROUP_COLUMNS
from cxrbench.analysis.subgroups import subgroup_estimates, subgroups
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.evidence.machine import processors_in_words
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS
from cxrbench.paper.power import power_table
from cxrbench.study.cells import Cell
from cxrbench.study.config import NihSource, Study, read_study
from cxrbench.study.cores import cores
from cxrbench.study.files import write_csv

TABLES = ("parity", "spread", "power", "f1_search", "subgroups", "literature")


def write_statistics(results: Path, study_path: Path, baselines: Path) -> None:
    """Write one CSV per name in ``TABLES`` into ``results``/tables; cells without scores are left out."""
    study = read_study(study_path)
    cells = pd.read_csv(results / "tables/cells.csv", keep_default_na=False)
    ok = cells[cells["status"] == "ok"]
    predictions = {
        Cell.parse(cell): read_predictions(results / "cells" / cell / PREDICTIONS) for cell in ok["cell"]
    }
    estimates = estimate_cells(predictions)
    with_patients = {cell: table for cell, table in predictions.items() if "patient" in table}
    spreads = pd.concat([spread(estimates), *_spread_of_subgroups(with_patients)], ignore_index=True)
    tables = {
        "parity": _parity(estimates, ok, study),
        "spread": spreads,
        "power": power_table(spreads, study.margins),
        "f1_search": _per_cell(predictions, f1_search, F1_COLUMNS),
        "subgroups": _per_cell(with_patients, _by_sex_and_view, SUBGROUP_COLUMNS),
        "literature": _literature(ok, results, study, baselines),
    }
    for name in TABLES:
        write_csv(results / "tables" / f"{name}.csv", tables[name])


def _by_sex_and_view(predictions: pd.DataFrame) -> pd.DataFrame:
    return subgroups(predictions, read_nih_table())  # sex and view are in NIH's table


def _spread_of_subgroups(predictions: dict[Cell, pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Rows of spread.csv for each subgroup, whose label names it."""
    nih = read_nih_table()
    groups = {cell: subgroup_estimates(table, nih) for cell, table in predictions.items()}
    for label in dict.fromkeys(label for some in groups.values() for label in some):
        yield spread({cell: some[label] for cell, some in groups.items() if label in some})


def _parity(estimates: dict[Cell, CellEstimate], cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Parity within cells of equal data, recipe and images per BatchNorm statistic: others do not compare."""
    parts = []
    alike = ["dataset", "architecture", "packed", "recipe_hash", "norm_images"]
    for _, some in cells.groupby(alike, sort=True):
        chosen = {cell: estimates[cell] for cell in map(Cell.parse, some["cell"])}
        parts.append(_with_processors(parity(chosen, study.margins), some))
    return (
        pd.concat(parts, ignore_index=True) if parts else _with_processors(parity({}, study.margins), cells)
    )


def _with_processors(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Rows of parity with the processors behind each side: where they differ, more than a platform does."""
    ran_on = dict(zip(cells["cell"], cells["processor"], strict=True))

    def behind(row: Any, side: str) -> str:
        seeds = filter(None, row[f"seeds_{side}"].split(","))
        folder = f"{row['dataset']}/{row['architecture']}/{row[f'platform_{side}']}"
        return processors_in_words(ran_on[f"{folder}/seed{seed}"] for seed in seeds)

    found = {
        f"processors_{side}": [behind(row, side) for row in rows.to_dict("records")] for side in ("a", "b")
    }
    return rows.assign(**found)


def _per_cell(
    predictions: dict[Cell, pd.DataFrame], compute: Callable[[pd.DataFrame], pd.DataFrame], columns: list[str]
) -> pd.DataFrame:
    """The rows of ``compute`` for every cell, under its name; a process per core, but none idle."""
    wanted = ["cell", *columns]
    with ProcessPoolExecutor(max(1, min(cores(), len(predictions)))) as pool:
        computed = pool.map(compute, predictions.values())
        parts = [table.assign(cell=str(cell)) for cell, table in zip(predictions, computed, strict=True)]
    return pd.concat(parts, ignore_index=True)[wanted] if parts else pd.DataFrame(columns=wanted)


def _literature(cells: pd.DataFrame, results: Path, study: Study, baselines: Path) -> pd.DataFrame:
    """Each cell on real radiographs beside what was published for the same split."""
    metrics = pd.read_csv(results / "tables/metrics.csv", dtype={"note": str})
    published, parts = read_baselines(baselines), []
    for row in cells.itertuples():
        config = study.dataset(row.dataset)
        if isinstance(config, NihSource):
            table = compare_with_literature(
                metrics[metrics["cell"] == row.cell],
                published,
                split_name=config.split,
                n_train_images=int(float(row.train_images)),
                pixels=config.pixels,
            )
            parts.append(table.assign(cell=row.cell))
    wanted = ["cell", *LITERATURE_COLUMNS]
    return pd.concat(parts, ignore_index=True)[wanted] if parts else pd.DataFrame(columns=wanted)
