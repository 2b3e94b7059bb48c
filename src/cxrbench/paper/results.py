"""The tables of a build, computed from its evidence and scores, and what the paper takes from them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd

from cxrbench.claims.file import read_claims
from cxrbench.claims.inputs import Context
from cxrbench.claims.ledger import check_claims
from cxrbench.common.files import write_csv
from cxrbench.cost.costs import cost_table
from cxrbench.cost.money import money_tables
from cxrbench.cost.prices import read_prices
from cxrbench.datasets.split import splits
from cxrbench.evidence.record import RECORD, DatasetIdentity, Record, processors_in_words, read_record
from cxrbench.evidence.store import DEFAULTS, read_measured, with_speed
from cxrbench.paper.formats import Range, WithInterval
from cxrbench.results.comparisons import comparison_tables, not_set_apart, with_spreads
from cxrbench.results.kept import CELLS, read_scores
from cxrbench.results.label_noise import label_noise
from cxrbench.results.matrix import cells_table
from cxrbench.results.scoring import CELL_COLUMNS, of_cell
from cxrbench.statistics.evaluate import one_per_metric, prevalence
from cxrbench.statistics.metrics import ENDPOINT, MACRO, METRICS, findings_among
from cxrbench.study.config import NihSource, Study, read_study
from cxrbench.study.names import GROUP, Cell

BASELINES, CLAIMS, PRICES = (Path("data") / name for name in ("baselines.csv", "claims.yaml", "prices.csv"))
TARGET_AUROC = 0.65  # macro AUROC on validation images, the cost of which is told; declared, not tuned
RUNS = 10.0  # that share a compilation
_TOO_FEW = "too few patients"  # in place of an interval
_EMULATED = {"fp32": "", "bf16_nearest": "emulated nearest", "bf16_stochastic": "emulated stochastic"}
Group = tuple[str, str, str]  # dataset, architecture, platform


@dataclass(frozen=True)
class Results:
    """The tables of a build, and where its study, evidence and scores are.

    ``tables``: each as a CSV has it, by its name. Those that are asked most are fields too, ``metrics`` with
    one interval per score.
    """

    folder: Path
    study: Study
    recorded: Path
    tables: Mapping[str, pd.DataFrame]
    cells: pd.DataFrame
    metrics: pd.DataFrame
    cost: pd.DataFrame
    parity: pd.DataFrame
    contrasts: pd.DataFrame
    pairs: pd.DataFrame
    shares: pd.DataFrame
    spread: pd.DataFrame
    sources: pd.DataFrame
    power: pd.DataFrame
    f1_search: pd.DataFrame
    literature: pd.DataFrame
    subgroups: pd.DataFrame
    claims: pd.DataFrame

    @classmethod
    def of_build(cls, folder: Path, study_path: Path, recorded: Path) -> Results:
        """The tables of the cells that were scored in ``folder``, with the texts in data/ of this directory.

        Raises UserError where no cell was scored yet: scores.json, which lists them, is missing.
        """
        study = read_study(study_path)
        tables = _tables(folder, study, recorded)
        drawn = _drawn_datasets(tables["cells"])
        named = [name for name, kind in get_type_hints(cls).items() if kind is pd.DataFrame]
        frames = {name: _with_drawn(tables[name], drawn) for name in named}
        frames["metrics"] = one_per_metric(frames["metrics"])
        read = cls(folder, study, recorded, tables, **frames)
        return replace(read, cost=read._in_order(read.cost))

    def write(self) -> None:
        """Write every table into ``folder``/tables as CSV: nothing reads them there but people."""
        for name, table in self.tables.items():
            write_csv(self.folder / "tables" / f"{name}.csv", table)

    def table(self, name: str) -> pd.DataFrame:
        """Another table of the build, cells in the study's order."""
        return self._in_order(self.tables[name])

    def _in_order(self, table: pd.DataFrame) -> pd.DataFrame:
        place = {cell: number for number, cell in enumerate(self.cells["cell"])}
        if "cell" not in table:
            return table
        return table.sort_values("cell", key=lambda cells: cells.map(place), kind="stable", ignore_index=True)

    @cached_property
    def drawn(self) -> set[str]:
        """The datasets whose images are drawn: no radiographs."""
        return _drawn_datasets(self.cells)

    @property
    def ok(self) -> pd.DataFrame:
        """The rows of cells.csv that have scores."""
        return self.cells[self.cells["status"] == "ok"]

    def scored(self, main: bool = False) -> list[Group]:
        """The groups with scores, in the study's order; ``main``: of the main dataset only."""
        groups = self._scored
        return [group for group in groups if group[0] == self.main()] if main else groups

    @cached_property
    def _scored(self) -> list[Group]:
        return [*dict.fromkeys(self.ok[GROUP].itertuples(index=False, name=None))]

    def findings(self, *group: str) -> list[str]:
        """The findings that were scored in a group (or those that begin so), in the data's order."""
        rows = rows_of(self.metrics, *group)
        return findings_among(rows.loc[rows["metric"] == "auroc", "label"])

    def main(self) -> str | None:
        """The paper's main dataset: the first scored on real radiographs, else on phantoms."""
        return min((group[0] for group in self._scored), key=self.drawn.__contains__, default=None)

    def images_and_recipe(self, dataset: str) -> str:
        """What tells NIH's radiographs of a dataset, and its recipe, from others: ``32 px, bf16``.

        The dataset's name follows where others have the same, and stands alone where images are not NIH's.
        """
        if (shown := self._images_and_recipe(dataset)) == dataset:
            return dataset
        alike = [name for name in self.study.datasets if self._images_and_recipe(name) == shown]
        return shown if alike == [dataset] else f"{shown} ({dataset})"

    def _images_and_recipe(self, dataset: str) -> str:
        config, recipe = self.study.dataset(dataset), self.study.recipe(dataset)
        if not isinstance(config, NihSource):
            return dataset
        pretrained = "" if recipe.weights == "scratch" else "pretrained"
        arithmetic = "" if recipe.arithmetic == "own" else f"emulated {recipe.arithmetic.replace('_', ' ')}"
        emulated = _EMULATED[recipe.emulated_weights]
        parts = (f"{config.pixels} px", recipe.precision, emulated, arithmetic, pretrained)
        return ", ".join(filter(None, parts))

    def not_set_apart(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of settings that emulate no other device's rounding and are in no block."""
        return not_set_apart(table, self.study)

    def best(self) -> Group | None:
        """The group of :meth:`main` with the best main endpoint; None if it is drawn."""
        groups = [group for group in self.scored(main=True) if group[0] not in self.drawn]
        return max(groups, key=self._reached, default=None)

    def largest(self) -> Group | None:
        """The group with the best main endpoint on the largest real radiographs."""
        real = [group for group in self.scored() if group[0] not in self.drawn]
        sizes = {group: self.study.dataset(group[0]).pixels for group in real}
        of_size = [group for group in real if sizes[group] == max(sizes.values())]
        return max(of_size, key=self._reached, default=None)

    def _reached(self, group: Group) -> float:
        """The mean of the main endpoint over seeds; below all others where it is undefined."""
        mean = self.of(group, "auroc", ENDPOINT)["value"].mean()
        return -1.0 if math.isnan(mean) else float(mean)

    def of(self, group: Group, metric: str, label: str) -> pd.DataFrame:
        """The rows of a metric for a group, one per seed."""
        return self._rows("metrics", (*group, metric, label))

    def _rows(self, name: str, key: tuple[str, ...]) -> pd.DataFrame:
        """The rows of one of the two tables that are asked most, by group, metric and label."""
        table: pd.DataFrame = getattr(self, name)
        if name not in self._places:
            self._places[name] = table.groupby([*GROUP, "metric", "label"]).indices if len(table) else {}
        return table.take(self._places[name].get(key, []))

    @cached_property
    def _places(self) -> dict[str, Any]:
        """Where the rows of a table stand, by their keys; filled by :meth:`_rows`."""
        return {}

    def rows_of_cells(self, table: pd.DataFrame, group: Group) -> pd.DataFrame:
        """The rows of a table of cells that are about a group."""
        return table[table["cell"].str.startswith("/".join((*group, "")))]

    def mean(
        self, group: Group, metric: str, label: str, seeds: pd.DataFrame | None = None, scale: float = 1
    ) -> WithInterval:
        """A mean over ``seeds``, times ``scale``, with its interval (see :meth:`interval_of`)."""
        rows = self.of(group, metric, label) if seeds is None else seeds
        if len(rows) > 1 and rows["value"].isna().any():
            return mean_of_seeds(rows["value"] * scale)
        return with_interval(self.of_mean(group, metric, label, rows), scale)

    def of_mean(self, group: Group, metric: str, label: str, seeds: pd.DataFrame) -> pd.DataFrame:
        """The row with value, ci_low and ci_high of a mean over ``seeds``; that of a single seed."""
        if len(seeds) < 2:
            return seeds
        return self._rows("spread", (*group, metric, label)).rename(columns={"mean": "value"})

    def f1(self, group: Group, definition: str) -> WithInterval:
        """:meth:`mean` of a definition of F1 over all findings."""
        return self.mean(group, definition, METRICS[definition].label)

    def prevalence(self, group: Group) -> pd.Series:
        """The share of positive test images of each finding."""
        rows = rows_of(self.metrics, *group, "average_precision")
        return prevalence(rows[rows["label"].isin(self.findings(*group))])

    def runs(self, group: Group) -> pd.DataFrame:
        """The rows of cost.csv that stand for a group's speed and cost: one machine, usable cells."""
        runs = rows_of(self.cost, *group)
        return runs[runs["headline"] & (runs["status"] == "ok")]

    def interval_of(self, group: Group) -> str:
        """The subject of the intervals of a group's means: one network, or the setting."""
        rows = self.of(group, "auroc", MACRO)
        subject = {1: "one network", 2: "none: two seeds"}.get(len(rows), f"setting, {len(rows)} seeds")
        return subject if rows["n_patients"].notna().any() else f"{subject}; images as patients"

    def processors(self, group: Group) -> str:
        """The processors of a group's scored cells; accuracy is pooled over machines."""
        return processors_in_words(rows_of(self.ok, *group)["processor"])

    def identity(self, dataset: str) -> DatasetIdentity | None:
        """The identity of a dataset that its cells have recorded, or None when no cell has evidence."""
        for cell in rows_of(self.cells, dataset)["cell"]:
            path = self.folder / "cells" / cell / RECORD
            if path.exists() and (identity := read_record(path).dataset):
                return identity
        return None

    def record(self, cell: str, origin: str) -> Record:
        """The record of a run: the recorded one, or the one that this build adopted."""
        return read_record((self.recorded if origin == "recorded" else self.folder / "cells") / cell)


def rows_of(table: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """The rows of a dataset, architecture, platform, metric and label, or of the first of these."""
    for column, key in zip((*GROUP, "metric", "label"), keys, strict=False):
        table = table[table[column] == key]  # of ever fewer rows: all columns at once took seconds a build
    return table


def _tables(folder: Path, study: Study, recorded: Path) -> dict[str, pd.DataFrame]:
    """Every table of a build as its CSV has it: cells, scores, comparisons, money, claims and splits."""
    records, kept = read_scores(study, folder)
    paths = [Cell.parse(record.cell).folder(folder / CELLS) / RECORD for record in records]
    prices, cells = read_prices(PRICES), cells_table(study, paths, recorded)
    ok = {*cells.loc[cells["status"] == "ok", "cell"]}  # not those of another recipe or of other images
    scored, spreads = with_spreads(kept, [cell for cell in kept if str(cell) in ok])
    rows = [of_cell(scores.metrics, cell) for cell, scores in scored.items()]
    metrics = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=CELL_COLUMNS)
    costs = cost_table(paths, PRICES, study.prices, recorded=recorded, target_auroc=TARGET_AUROC, runs=RUNS)
    compared = comparison_tables(scored, spreads, cells, metrics, study, BASELINES)
    shown = {name: compared[name] for name in ("parity", "contrasts", "sources")}
    context = Context(prices, one_per_metric(metrics), costs, cells, **shown)
    return {
        **{"cells": cells, "metrics": metrics, "cost": costs, **compared},
        **money_tables(costs, prices, study, recorded),
        "claims": check_claims(read_claims(CLAIMS), context),
        **{"splits": splits(), "label_noise": label_noise()},
    }


def read_measurements(recorded: Path, name: str) -> pd.DataFrame:
    """Read the rows of every recorded bench/<host>/<name>.json, with the machine they were measured on."""
    paths = sorted((recorded / "bench").glob(f"*/{name}.json"))
    rows = ((path.parent.name, row) for path in paths for row in with_speed(read_measured(path)))
    return pd.DataFrame([{"host": host} | DEFAULTS | row for host, row in rows])


def host_in_words(folder: str) -> str:
    """The machine that a folder of measurements is named after: ``Intel Xeon, 2 cores``."""
    brands = {"intel": "Intel", "xeon": "Xeon", "amd": "AMD", "epyc": "EPYC", "nvidia": "NVIDIA"}
    parts = [
        brands.get(part, part) for part in folder.split("-") if part not in ("r", "tm", "processor", "cpu")
    ]
    return re.sub(r" (\d+ cores?)$", r", \1", " ".join(parts))


def _drawn_datasets(cells: pd.DataFrame) -> set[str]:
    return set(cells.loc[cells["drawn"].astype(bool), "dataset"])


def _with_drawn(table: pd.DataFrame, drawn: set[str]) -> pd.DataFrame:
    """A table of results with the column ``drawn``: whether a row is of drawn images."""
    for name in ("dataset", "dataset_a", "cell"):
        if name in table:
            datasets = [str(value).partition("/")[0] for value in table[name]]  # of a cell its first part
            return table.assign(drawn=pd.Series(datasets, table.index, dtype=object).isin(drawn))
    return table


def real_first(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of real radiographs, by the study's cells; those of drawn ones where there are no others."""
    real = rows[~rows["dataset"].isin(_drawn_datasets(cells))]
    return rows if real.empty else real


def real_contrasts(read: Results) -> pd.DataFrame:
    """The rows of contrasts.csv about the main endpoint on real radiographs."""
    rows = read.contrasts
    return rows[(rows["label"] == ENDPOINT) & ~rows["drawn"]]


def parity_drawn(parity: pd.DataFrame) -> pd.DataFrame:
    """The rows of the parity figure: the main endpoint with an interval, in the study's order.

    Of real radiographs alone where there are any; beside pairs of platforms, the noise floors of their
    networks alone.
    """
    rows = parity[(parity["label"] == ENDPOINT) & (parity["metric"] == "auroc") & parity["ci_low"].notna()]
    rows = rows if rows["drawn"].all() else rows[~rows["drawn"]]
    trained = pd.MultiIndex.from_frame(rows[["dataset", "architecture"]])
    pairs = (rows["kind"] != "noise floor").to_numpy()
    return rows[trained.isin(trained[pairs])] if pairs.any() else rows


def difference(row: Any, interval: str = "ci") -> WithInterval:
    """The difference of a row with its ``interval`` (95 %; ``ci90``: 90 %)."""
    return WithInterval(row.difference, getattr(row, f"{interval}_low"), getattr(row, f"{interval}_high"))


def seeds_of(row: Any) -> int:
    """The number of seeds that a row of contrasts.csv compares."""
    return len(str(row.seeds_a).split(","))


def processors_differ(row: Any) -> bool:
    """Whether the two sides of a row of parity.csv ran on different processors."""
    return bool(row.processors_a != row.processors_b and row.processors_a and row.processors_b)


def with_interval(rows: pd.DataFrame, scale: float = 1) -> WithInterval:
    """The value of a single row with its interval, times ``scale``, or why it has no interval."""
    if rows.empty or rows["value"].isna().all():
        return WithInterval(math.nan)
    value, low, high = rows[["value", "ci_low", "ci_high"]].to_numpy(float).squeeze(0) * scale
    few = "too_few" in rows and bool(rows["too_few"].iloc[0]) and math.isnan(low)
    return WithInterval(value, low, high, _TOO_FEW if few else "")


def mean_of_seeds(values: pd.Series) -> WithInterval:
    """A mean, and how many seeds have a value where others have none."""
    return WithInterval(values.mean(), note=_defined(values))


def range_of_seeds(values: pd.Series) -> Range:
    """The lowest and the highest value, and how many seeds have one where others have none."""
    return Range(values.min(), values.max(), _defined(values))


def _defined(values: pd.Series) -> str:
    return "" if values.notna().all() else f"{values.count()} of {len(values)} seeds"
