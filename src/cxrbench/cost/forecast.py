"""What a study would take before any of it runs: hours, USD, disk and memory per dataset and platform."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.cost.costs import cost_of, hours_of
from cxrbench.cost.estimate import (
    Network,
    NotKnown,
    ceiling,
    device_called,
    dollars,
    hours_of_training,
    measured_speeds,
    work_of,
)
from cxrbench.cost.prices import KEY, NoPrice, price, regions
from cxrbench.datasets.packed import MANIFEST, read_packed
from cxrbench.datasets.registry import bytes_in_words, to_download
from cxrbench.datasets.table_rows import read_image_table
from cxrbench.evidence.record import Record, processors_in_words
from cxrbench.neuron.audit import read_audit
from cxrbench.neuron.rules import facts_of
from cxrbench.study.config import TableSource
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED, ENTRIES
from cxrbench.training.plan import Plan

_FORECAST_COLUMNS = [
    "dataset", "architecture", "platform", "cells", "recorded", "to_run", *KEY, "as_of", "hours_low",
    "hours_high", "hours_at_least", "usd_low", "usd_high", "usd_at_least", "kind", "rests_on", "why_not",
    "no_price", "packed_gib", "device_gib", "not_here",
]  # fmt: skip
_NOT_NAMED = "no pattern under 'run' in the config names them"
_EVALUATION = 1 / 3  # of a training image: forward alone


def forecast(plan: Plan, prices: pd.DataFrame) -> pd.DataFrame:
    """A row per dataset, network and platform of the plan's study (:data:`_FORECAST_COLUMNS`).

    Hours and USD are of the cells without evidence that fits: those of recorded seeds of the same recipe and
    images, else images over a speed recorded with this network on this device, else missing with the reason
    in ``why_not``; then ``hours_at_least`` are those at a GPU's documented peak. USD are missing with the
    reason in ``no_price``. An image is taken to last a third as long in scoring as in training.
    ``device_gib``: weights, moments, gradients and activations of a step by the audit. ``not_here``: why
    these cells are not trained on this machine.
    """
    outlook = _Outlook(plan, prices)
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in plan.study.all_cells():
        groups.setdefault((cell.dataset, cell.architecture, cell.platform), []).append(cell)
    return pd.DataFrame([outlook.row(cells) for cells in groups.values()], columns=_FORECAST_COLUMNS)


class Download(NamedTuple):
    """Published images that are not here: the datasets that need them, their files and size, their place."""

    datasets: list[str]
    files: str
    place: Path


def downloads(plan: Plan, registry: Path) -> list[Download]:
    """The downloads that the study's datasets need; datasets of the same files share one."""
    absent = dict[tuple[str, Path], list[str]]()
    for name in dict.fromkeys(cell.dataset for cell in plan.study.all_cells()):
        present = (plan.packed / name / MANIFEST).exists() or not registry.is_file()
        if not present and (files := to_download(plan.study.dataset(name), registry)):
            place = next(iter(files)).parent
            absent.setdefault((bytes_in_words(files.values()), place), []).append(name)
    return [Download(names, *files) for files, names in absent.items()]


class _Outlook:
    """What is known of the cells of a study: records, audits, speeds, prices."""

    def __init__(self, plan: Plan, prices: pd.DataFrame) -> None:
        self.plan, self.study, self.prices = plan, plan.study, prices
        self.audit = read_audit(plan.store.root)
        self.speeds = measured_speeds(self.study, plan.store.root)

    def row(self, cells: list[Cell]) -> dict[str, Any]:
        """The row of the seeds of one network on one platform."""
        cell, source_of = cells[0], self.plan.store.source_of
        records = [record for seed in cells if (record := source_of(seed, self.study).record)]
        row = {
            **vars(cell),
            "cells": len(cells),
            "recorded": len(records),
            "to_run": len(cells) - len(records),
            "instance": self.study.prices.instances.get(cell.platform),
            "packed_gib": self._packed_gib(cell.dataset),
            "device_gib": self._device_gib(cell),
            "not_here": self.plan.missing(cell) or (None if self.study.may_run(cell) else _NOT_NAMED),
        }
        try:
            per_cell = self._measured(records) if records else self._estimated(cell)
        except (NotKnown, NoPrice) as reason:
            return row | {"why_not": str(reason)}
        hours = {name: value * row["to_run"] for name, value in per_cell.items() if name.startswith("hours")}
        return row | per_cell | hours | dollars(hours, per_cell["usd_per_hour"])

    def _measured(self, records: list[Record]) -> dict[str, Any]:
        """The hours of a cell by the recorded seeds: the shortest and the longest."""
        costs = cost_of(hours_of((record, "recorded") for record in records), self.prices, self.study.prices)
        seeds = f"{len(records)} recorded seed{'s' * (len(records) > 1)}"
        return {
            "hours_low": costs["hours_total"].min(),
            "hours_high": costs["hours_total"].max(),
            **costs[["usd_per_hour", *KEY, "as_of", "kind"]].iloc[0],
            "rests_on": f"{seeds}, {processors_in_words(costs['processor'])}",
        }

    def _estimated(self, cell: Cell) -> dict[str, Any]:
        """The hours of a cell by its images; NotKnown when not even these or its device are known."""
        dataset, recipe = self.study.dataset(cell.dataset), self.study.recipe(cell.dataset)
        if not (counts := self._counts(cell.dataset)):
            raise NotKnown(
                f"how many images {cell.dataset} has is not known: pack it first (`cxrbench data pack`)"
            )
        evaluated = counts.get("val", 0) * (recipe.epochs + 1) + counts.get("test", 0)
        images = counts.get("train", 0) * recipe.epochs + evaluated * _EVALUATION
        network = Network(cell.architecture, dataset.pixels, recipe.precision)
        priced, rate = self._priced(cell)
        chip, cores, fastest = cell.platform, 1, None
        if cell.platform in ACCELERATED:
            device = device_called(rate["accelerator"])
            used = self.study.limits.processes * ENTRIES[cell.platform].devices_per_process
            chip, cores = device.chip, min(int(rate["cores"]), used)
            if device.family == "gpu":
                with suppress(NotKnown):
                    fastest = ceiling(work_of(self.audit, *network), device, cores, recipe.precision)
        return priced | hours_of_training(images, network, chip, cores, self.speeds, fastest)

    def _priced(self, cell: Cell) -> tuple[dict[str, Any], pd.Series]:
        """The instance that a cell would run as, with its price or the reason for none, and its row."""
        where, instance = self.study.prices, self.study.prices.instances.get(cell.platform)
        if instance is None:
            raise NotKnown(f"prices.instances in the config names no instance for {cell.platform}")
        priced: dict[str, Any] = {"instance": instance}
        try:
            rate = price(self.prices, instance, where.region, where.basis, where.as_of)
        except NoPrice as reason:
            elsewhere = self.prices[self.prices["instance"] == instance]
            if elsewhere.empty:
                raise
            return priced | {"usd_per_hour": math.nan, "no_price": reason.reason}, elsewhere.iloc[0]
        shown = {"region": regions(rate.to_frame().T).iloc[0], "as_of": rate["as_of"]}
        return priced | shown | {"basis": where.basis, "usd_per_hour": float(rate["usd_per_hour"])}, rate

    def _packed_gib(self, name: str) -> float:
        counts = self._counts(name)
        return sum(counts.values()) * self.study.dataset(name).pixels ** 2 / 2**30 if counts else math.nan

    def _counts(self, name: str) -> dict[str, int]:
        """The images per part: as the config states them, as packed, by a user's table, or none."""
        if stated := self.study.stated_images(name):
            return stated
        with suppress(UserError):
            return read_packed(self.plan.packed / name).manifest["images"]
        source = self.study.dataset(name)
        if isinstance(source, TableSource) and all(path.is_file() for path in source.files.values()):
            with suppress(UserError):
                return read_image_table(source)["split"].value_counts().to_dict()
        return {}

    def _device_gib(self, cell: Cell) -> float:
        """The GiB of a step at the recipe's batch, from an audit in its precision; NaN without."""
        recipe, pixels = self.study.recipe(cell.dataset), self.study.dataset(cell.dataset).pixels
        rows = self.audit[
            (self.audit["architecture"] == cell.architecture)
            & (self.audit["pixels"] == pixels)
            & (self.audit["precision"] == recipe.precision)
            & (self.audit["part"] == "step")
            & (self.audit["problem"] == "")
        ]
        if rows.empty:
            return math.nan
        share = math.ceil(self.study.limits.micro_batch or recipe.batch / self.study.limits.processes)
        # In bf16 a step also keeps its copies of the weights, which an audit divides by the batch.
        nearest = rows.loc[(rows["batch"] - share).abs().idxmin()]
        return facts_of(nearest.to_dict()).step_gib(share)


def by_dataset(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of :func:`forecast` added up per dataset and platform.

    ``unknown`` counts the cells to run of unknown hours, which are in no sum; NaN where all are.
    """
    table = table.assign(unknown=table["to_run"].where(table["hours_low"].isna(), 0))
    groups = table.groupby(["dataset", "platform"], sort=False)
    amounts = ["hours_low", "hours_high", "usd_low", "usd_high"]
    rows = groups[["cells", "to_run", "unknown", *amounts]].sum(min_count=1)
    rows = rows.join(groups[["packed_gib", "device_gib"]].max())
    return rows.reset_index()
