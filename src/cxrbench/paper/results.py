"""The tables that the graph has made, read once, and how their values are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.analysis.evaluate import read_metrics
from cxrbench.evidence.machine import processors_in_words
from cxrbench.evidence.record import RECORD, DatasetIdentity, Record, read_record
from cxrbench.study.config import Study, read_study

UNDEFINED = "undefined"
INTERVAL_OF = "Interval of"  # the row or column that says what an interval speaks of
PHANTOM = "phantom"  # how the names of drawn datasets begin
Group = tuple[str, str, str]  # dataset, architecture, platform
Table = tuple[pd.DataFrame, str]  # texts, and the preamble of the LaTeX tabular


@dataclass(frozen=True)
class Results:
    """The tables that the graph has made, read once."""

    folder: Path
    study: Study
    cells: pd.DataFrame
    metrics: pd.DataFrame
    cost: pd.DataFrame
    parity: pd.DataFrame
    spread: pd.DataFrame
    power: pd.DataFrame
    f1_search: pd.DataFrame
    literature: pd.DataFrame
    subgroups: pd.DataFrame
    claims: pd.DataFrame
    throughput: pd.DataFrame
    recorded: Path

    @classmethod
    def read(cls, folder: Path, study: Path, recorded: Path) -> Results:
        """Read ``folder``/tables, and the speeds recorded under ``recorded``/bench."""
        tables = folder / "tables"
        return cls(
            folder,
            read_study(study),
            pd.read_csv(tables / "cells.csv", keep_default_na=False, na_values=[""]),
            read_metrics(tables / "metrics.csv"),
            pd.read_csv(tables / "cost.csv"),
            read_parity(tables),
            pd.read_csv(tables / "spread.csv"),
            pd.read_csv(tables / "power.csv"),
            pd.read_csv(tables / "f1_search.csv"),
            pd.read_csv(tables / "literature.csv"),
            pd.read_csv(tables / "subgroups.csv"),
            pd.read_csv(tables / "claims.csv", keep_default_na=False),
            read_throughput(recorded),
            recorded,
        )

    def scored(self) -> list[Group]:
        """(dataset, architecture, platform) of the groups with scores, in the study's order."""
        ok = self.cells[self.cells["status"] == "ok"]
        return list(
            dict.fromkeys(ok[["dataset", "architecture", "platform"]].itertuples(index=False, name=None))
        )

    def main(self) -> str | None:
        """The dataset that the paper speaks of: the first scored on real radiographs, else on phantoms."""
        datasets = [group[0] for group in self.scored()]
        return next(iter(sorted(datasets, key=lambda name: name.startswith(PHANTOM))), None)

    def best(self) -> Group | None:
        """The group of :meth:`main` with the highest mean macro AUROC on test images."""
        groups = [group for group in self.scored() if group[0] == self.main()]
        return max(groups, key=lambda group: self.of(group, "auroc", "macro")["value"].mean(), default=None)

    def of(self, group: Group, metric: str, label: str) -> pd.DataFrame:
        """The rows of a metric for a group, one per seed."""
        m = self.metrics
        rows = (m["dataset"] == group[0]) & (m["architecture"] == group[1]) & (m["platform"] == group[2])
        return m[rows & (m["metric"] == metric) & (m["label"] == label)]

    def mean(
        self, group: Group, metric: str, label: str, seeds: pd.DataFrame | None = None, scale: float = 1
    ) -> str:
        """A metric's mean over a group's ``seeds``, with its interval over patients and seeds where there
        is one.

        One seed has the interval of its network, over patients (see :meth:`interval_of`). Values are
        multiplied by ``scale``.
        """
        found = self.of(group, metric, label) if seeds is None else seeds
        if len(found) > 1:
            if found["value"].isna().any():
                return mean_of_seeds(found["value"] * scale)
            s = self.spread
            same = (s["dataset"] == group[0]) & (s["architecture"] == group[1]) & (s["platform"] == group[2])
            found = s[same & (s["metric"] == metric) & (s["label"] == label)]
            found = found.rename(columns={"mean": "value"})
        return with_interval(found.assign(**found[["value", "ci_low", "ci_high"]].astype(float) * scale))

    def interval_of(self, group: Group) -> str:
        """What the intervals beside a group's means speak of: one network, or the recipe on this platform."""
        seeds = len(self.of(group, "auroc", "macro"))
        few = {1: "one network", 2: "none: two seeds"}
        return few.get(seeds, f"recipe, {seeds} seeds")

    def runs(self, group: Group) -> pd.DataFrame:
        """The rows of cost.csv that stand for a group's speed and cost: one machine, usable cells."""
        c = self.cost
        rows = (c["dataset"] == group[0]) & (c["architecture"] == group[1]) & (c["platform"] == group[2])
        return c[rows & c["headline"] & (c["status"] == "ok")]

    def record(self, cell: str, origin: str) -> Record:
        """The record of a run: the recorded one, or the one that this build adopted."""
        return read_record((self.recorded if origin == "recorded" else self.folder / "cells") / cell)

    def processors(self, group: Group) -> str:
        """The processors of a group's scored cells; several where accuracy is pooled over machines."""
        c = self.cells[self.cells["status"] == "ok"]
        rows = (c["dataset"] == group[0]) & (c["architecture"] == group[1]) & (c["platform"] == group[2])
        return processors_in_words(c.loc[rows, "processor"])

    def identity(self, dataset: str) -> DatasetIdentity | None:
        """What a cell of ``dataset`` says of its data; None when no cell has evidence."""
        for cell in self.cells.loc[self.cells["dataset"] == dataset, "cell"]:
            path = self.folder / "cells" / cell / RECORD
            if path.exists() and (identity := read_record(path).dataset):
                return identity
        return None


def read_parity(tables: Path) -> pd.DataFrame:
    """parity.csv below the folder ``tables``; no processors is an empty text."""
    rows = pd.read_csv(tables / "parity.csv")
    return rows.fillna({"processors_a": "", "processors_b": ""})


def read_throughput(recorded: Path) -> pd.DataFrame:
    """The rows of every recorded train.json, with the machine they were measured on."""
    rows = []
    for path in sorted((recorded / "bench").glob("*/train.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            rows.append({"host": path.parent.name, **row})
    return pd.DataFrame(rows)


def parity_drawn(parity: pd.DataFrame) -> pd.DataFrame:
    """The rows of the parity figure: macro AUROC with an interval, real radiographs first.

    Beside real radiographs phantoms are drawn for pairs of platforms only, without their noise floors.
    """
    rows = parity[(parity["label"] == "macro") & (parity["metric"] == "auroc") & parity["ci_low"].notna()]
    real = ~rows["dataset"].astype(str).str.startswith(PHANTOM)
    if real.any():
        rows = rows[real | (rows["kind"] != "noise floor")]
    return rows.sort_values("dataset", key=lambda names: names.str.startswith(PHANTOM), kind="stable")


def processors_differ(row: Any) -> bool:
    """Whether the two sides of a row of parity.csv ran on different processors."""
    return bool(row.processors_a != row.processors_b and row.processors_a and row.processors_b)


def with_interval(rows: pd.DataFrame) -> str:
    """``0.712 (0.690 to 0.734)``: the value of a single row and its interval."""
    if rows.empty or rows["value"].isna().all():
        return UNDEFINED
    value, low, high = rows[["value", "ci_low", "ci_high"]].astype(float).to_numpy().squeeze(0)
    return f"{value:.3f}" + (f" ({low:.3f} to {high:.3f})" if pd.notna(low) else "")


def mean_of_seeds(values: pd.Series) -> str:
    """``0.712``, or ``0.712 (2 of 3 seeds)`` where the others have no value."""
    defined = values.dropna()
    if defined.empty:
        return UNDEFINED
    some = f" ({len(defined)} of {len(values)} seeds)" if len(defined) < len(values) else ""
    return f"{defined.mean():.3f}{some}"


def range_of_seeds(values: pd.Series) -> str:
    """``0.701 to 0.723``: the lowest and the highest value, or the only one; how many seeds have none."""
    defined = values.dropna()
    if defined.empty:
        return UNDEFINED
    ends = dict.fromkeys(f"{end:.3f}" for end in (defined.min(), defined.max()))
    some = f" ({len(defined)} of {len(values)} seeds)" if len(defined) < len(values) else ""
    return " to ".join(ends) + some


def counted(number: float) -> str:
    """A count with separators; unknown where it is missing or zero, as ChestMNIST's patients are."""
    return f"{int(number):,}" if pd.notna(number) and number else "unknown"


def group_name(group: tuple[str, str, str]) -> str:
    return f"{group[0]} {group[1]} {group[2]}"


def finding_name(name: str) -> str:
    return name.replace("_", " ")


def listed(values: pd.Series) -> str:
    """Different values in order, joined."""
    return ", ".join(dict.fromkeys(values.dropna().astype(str)))
