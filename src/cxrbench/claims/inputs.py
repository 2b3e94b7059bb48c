"""Inputs of a claim: numbers of its own text, of another source, of the price table, of our result tables.

Each class is an input as it is written in ``data/claims.yaml``; its ``find`` returns the value, or raises
NotHere where there is no evidence and UserError where the input is wrong.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from cxrbench.claims.formula import Ends
from cxrbench.common.errors import UserError, nearest, suggestion
from cxrbench.common.readers import Text, complaint, iso_date, one_of
from cxrbench.cost.prices import BASES, REGIONS, UNDATED, newest, price
from cxrbench.study.config import Strict
from cxrbench.training.plan import ARCHITECTURES


class ClaimBasis(StrEnum):
    """What a claim is held against, from the nearest to the text to the farthest from it."""

    OWN = "own arithmetic"
    DOCUMENT = "a document"  # a statement compared with what a document says: nothing is computed
    SOURCE = "another source"
    PRICES = "prices"
    EVIDENCE = "our evidence"


_Wanted = Mapping[str, list[Any]]  # rows of a table by the values of columns
_TRAINED = ("ok", "diverged")  # it compiled, loaded and took its steps


class NotHere(Exception):
    """An input that this machine has no evidence for; its text says which cell or price is missing."""


class Undecided(NotHere):
    """An interval that lies neither inside a margin nor outside it."""


class _NotRun(NotHere):
    """No row of a result table is about these cells."""


@dataclass(frozen=True)
class Context:
    """What claims are tested against: the price table, and result tables where they exist."""

    prices: pd.DataFrame
    metrics: pd.DataFrame | None = None
    cost: pd.DataFrame | None = None
    cells: pd.DataFrame | None = None
    parity: pd.DataFrame | None = None
    contrasts: pd.DataFrame | None = None
    sources: pd.DataFrame | None = None


class InputValue(NamedTuple):
    """An input's value when the claim was made and today (equal if it has no date), and what it rests on."""

    then: Ends
    now: Ends
    basis: ClaimBasis
    shown: str


def read_number(value: Any) -> Ends:
    """The ends of a YAML number or of a range of two; ValueError for anything else."""
    ends = value if isinstance(value, list) and len(value) == 2 else [value]
    for end in ends:
        if not isinstance(end, int | float) or isinstance(end, bool) or not math.isfinite(end):
            raise ValueError(f"'{value}' is neither a number nor a range of two")
    return float(min(ends)), float(max(ends))


def show(ends: Ends, yes_no: bool = False, digits: int = 6) -> str:
    """A number or range as text: so many digits, thousands apart, equal ends once; or yes and no."""
    if yes_no:
        texts = ["yes" if end else "no" for end in ends]
    else:
        texts = [f"{end:,.{digits}g}" if abs(end) < 10**digits - 0.5 else f"{end:,.0f}" for end in ends]
    return " to ".join(dict.fromkeys(texts))


def _listed(value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if any(isinstance(part, list | Mapping) for part in values):
        raise ValueError("has texts, numbers and lists of them, no more")
    return values


def _keys(*required: str, optional: Collection[str] = ()) -> AfterValidator:
    """A validator for the rows of a table that are meant: values of columns, each made a list."""

    def check(given: dict[str, Any]) -> dict[str, list[Any]]:
        for key in given:
            if key not in (keys := [*required, *optional]):
                raise ValueError(f"unknown key '{key}'{suggestion(key, keys)}")
        if missing := [key for key in required if key not in given]:
            raise ValueError(f"key '{missing[0]}' is missing")
        return {key: _listed(value) for key, value in given.items()}

    return AfterValidator(check)


def _two_sides(wanted: dict[str, list[Any]]) -> dict[str, list[Any]]:
    sides = "datasets" if "datasets" in wanted else "platforms"
    for key in (sides, "dataset" if sides == "platforms" else "platform"):
        if key not in wanted:
            raise ValueError(f"key '{key}' is missing")
    if len(set(pair := wanted[sides])) != 2:
        raise ValueError(f"{sides} {pair}: name the two that are compared, as in [cpu, cuda]")
    return wanted


Plain = Annotated[  # YAML reads some texts as numbers and dates
    str, BeforeValidator(lambda given: str(given) if isinstance(given, int | float | date) else given)
]
_Day = Annotated[Plain, AfterValidator(lambda text: text if text == UNDATED else iso_date(text))]
_Answer = Annotated[
    Any, AfterValidator(lambda answer: answer if isinstance(answer, bool) else read_number(answer))
]
_CELL = ("dataset", "architecture", "platform", "seed")
_FEW = 3  # values that a message lists
_SCORE = ("architecture", "label", "metric")
_Scores = Annotated[dict[str, Any], _keys("dataset", *_SCORE, "platform", "split", optional=["seed"])]
_Pair = Annotated[
    dict[str, Any],
    _keys(*_SCORE, optional=("dataset", "platforms", "datasets", "platform")),
    AfterValidator(_two_sides),
]
_Source = Annotated[dict[str, Any], _keys("metric", "source", optional=["setting", "network"])]
_Runs = Annotated[dict[str, Any], _keys(optional=(*_CELL, "status", "kind", "instance", "region", "basis"))]


class _PriceKey(Strict):
    instance: Text
    region: Annotated[str, one_of(REGIONS)]
    basis: Annotated[str, one_of(BASES)]


class _Own(Strict):
    """A number or range of the claim's own text."""

    own: Ends

    def find(self, context: Context) -> InputValue:
        return InputValue(self.own, self.own, ClaimBasis.OWN, show(self.own))


class _Cited(Strict):
    """``{value: 190, from: where, now: 0}``: a number or yes or no from elsewhere; ``now`` if it changed."""

    value: _Answer
    source: Text = Field(alias="from")
    now: _Answer = None

    def find(self, context: Context) -> InputValue:
        given = (self.value, self.value if self.now is None else self.now)
        then, now = ((float(value),) * 2 if isinstance(value, bool) else value for value in given)
        return InputValue(
            then, now, ClaimBasis.SOURCE, f"{show(then, isinstance(self.value, bool))} ({self.source})"
        )


class PriceOf(Strict):
    """``{price: {instance, region, basis}, as_of: date}``: USD per hour then, and the newest price now.

    With ``history: yes`` the claim is about that day, and no newer price touches it.
    """

    price: _PriceKey
    as_of: _Day | None = None
    history: bool = False

    def find(self, context: Context) -> InputValue:
        key = dict(self.price)
        rows = newest(context.prices, self.as_of, **key)
        if rows.empty:
            if key["instance"] not in set(context.prices["instance"]):
                price(context.prices, **key)  # a misspelt instance is an error, with the nearest names
            until = f" up to {self.as_of}" if self.as_of else ""
            where = f"{key['instance']} in {key['region']} with basis '{key['basis']}'"
            raise NotHere(f"no price for {where}{until}")
        usd, as_of = float(rows["usd_per_hour"].iloc[0]), rows["as_of"].iloc[0]
        same = self.history or self.as_of is None
        now = usd if same else float(price(context.prices, **key)["usd_per_hour"])
        shown = f"{usd:g} USD/h ({' '.join(key.values())}, {as_of})"
        return InputValue((usd, usd), (now, now), ClaimBasis.PRICES, shown)


class _Averaged(Strict):
    """A number from a column of a result table, by default the mean over seeds."""

    aggregate: Annotated[str, one_of(("mean", "min", "max"))] = "mean"

    def _find(self, context: Context, table: str, wanted: _Wanted, column: str, note: str = "") -> InputValue:
        values = _rows(context, table, wanted, column)[column].dropna()
        if not pd.api.types.is_numeric_dtype(values):
            raise UserError(
                f"column '{column}' of {table}.csv has texts where a claim needs numbers; name another"
            )
        if values.empty:
            raise NotHere(f"{_cells(wanted)}: {table}.csv has no {column} for it")
        value = float(values.agg(self.aggregate))
        place = note or f"{self.aggregate} of {len(values)}, {_cells(wanted)}"
        return _found(value, value, f"{value:.4g} ({place})")


class MetricOf(_Averaged):
    """``{metric: {dataset, ..., metric: auroc}, column: ci_low}``: a value from metrics.csv, or an end of
    its interval."""

    metric: _Scores
    column: str = "value"

    def find(self, context: Context) -> InputValue:
        return self._find(context, "metrics", self.metric, self.column)


class CostOf(_Averaged):
    """``{cost: {dataset, ...}, column: usd_total}``: from cost.csv, of the runs that stand for their group,
    so no mean is over several machines."""

    cost: _Runs
    column: str = "usd_total"

    def find(self, context: Context) -> InputValue:
        return self._find(context, "cost", self.cost | {"headline": [True]}, self.column)


class ParityOf(Strict):
    """``{parity: {dataset, architecture, platforms: [cpu, cuda], label: macro, metric: auroc}}``: how far
    apart two platforms are, as the sizes in the 90 % interval of parity.csv; never the bare difference.
    With ``datasets`` of two settings and a ``platform``, from contrasts.csv.

    NotHere where there is no interval, Undecided where it lies neither inside the declared margin nor outside
    it; ``margin`` is that of the claim where the study declares none.
    """

    parity: _Pair
    margin: float | None = Field(None, gt=0)

    def find(self, context: Context) -> InputValue:
        side = "dataset" if "datasets" in self.parity else "platform"
        wanted = {key: self.parity[key] for key in self.parity if key != f"{side}s"}
        both = self.parity[f"{side}s"]
        for part in both:
            if missing := _no_such_cell(context.cells, wanted | {side: [part]}):
                raise NotHere(missing)
        wanted |= dict.fromkeys((f"{side}_a", f"{side}_b"), both)
        table, kind = ("contrasts", {}) if side == "dataset" else ("parity", {"kind": ["platforms"]})
        needed = ("ci90_low", "ci90_high", "margin", "verdict", "reason")
        row, name = _rows(context, table, wanted | kind, *needed).iloc[0], _cells(wanted)
        if pd.isna(row["ci90_low"]):
            raise NotHere(f"{name}: {row['verdict']}: {row['reason']}")
        low, high = sorted(map(abs, (row["ci90_low"], row["ci90_high"])))
        low = 0.0 if row["ci90_low"] < 0 < row["ci90_high"] else low
        shown = f"{low:.4g} to {high:.4g} (size of the difference, 90 % interval, {name})"
        margin = row["margin"] if self.margin is None else self.margin
        if low < margin < high:
            raise Undecided(f"{shown} lies neither inside the margin of {margin:g} nor outside it")
        return _found(low, high, shown)


class SourceOf(_Averaged):
    """``{variance: {metric: endpoint, source: patients}}``: a source's fraction of a score's variance, from
    sources.csv; ``column: p`` is that of a setting's part, named by ``setting`` and ``network``."""

    variance: _Source
    column: str = "fraction"

    def find(self, context: Context) -> InputValue:
        return self._find(context, "sources", self.variance, self.column, f"{self.column}, sources.csv")


class ShareOf(Strict):
    """``{share: {dataset, ...}, of: [compile_failed]}``: share of cells with a status in ``of``, among these
    and the trained ones; a cell with any other status is left out. NotHere where all are."""

    share: _Runs
    of: Annotated[Any, AfterValidator(_listed)]  # statuses

    def find(self, context: Context) -> InputValue:
        rows = _rows(context, "cost", self.share, "status")
        adopted = rows.sort_values("origin", kind="stable").drop_duplicates("cell")  # fresh before recorded
        judged = adopted.loc[adopted["status"].isin([*self.of, *_TRAINED]), "status"]
        if judged.empty:
            statuses = ", ".join(sorted(set(rows["status"])))
            raise NotHere(f"{_cells(self.share)}: {statuses}; neither ok nor {' or '.join(self.of)}")
        share = float(judged.isin(self.of).mean())
        return _found(share, share, f"{share:g} of {len(judged)} cells")


class CountOf(Strict):
    """``{cells: {platform: [neuron]}}``: how many cells have a record; zero is an answer."""

    cells: _Runs

    def find(self, context: Context) -> InputValue:
        try:
            count = float(_rows(context, "cost", self.cells, "cell")["cell"].nunique())
        except _NotRun:
            count = 0.0
        return _found(count, count, f"{count:g} cells")


Input = _Own | _Cited | PriceOf | MetricOf | ParityOf | SourceOf | CostOf | ShareOf | CountOf
_KINDS: dict[str, type[Any]] = {
    "value": _Cited, "price": PriceOf, "metric": MetricOf, "parity": ParityOf, "variance": SourceOf,
    "cost": CostOf, "share": ShareOf, "cells": CountOf,
}  # fmt: skip


def read_input(value: Any) -> Input:
    """The input that ``value`` of a claims file describes; ValueError says what is wrong with it."""
    if not isinstance(value, Mapping):
        return _Own(own=read_number(value))
    kinds = [key for key in value if key in _KINDS]
    if len(kinds) != 1:
        raise ValueError(f"give exactly one of {', '.join(_KINDS)}")
    try:
        return _KINDS[kinds[0]].model_validate(value)
    except ValidationError as error:
        first = min(error.errors(), key=lambda error: error["type"] != "extra_forbidden")
        model = _KINDS[kinds[0]] if len(first["loc"]) == 1 else _PriceKey
        fields = [field.alias or name for name, field in model.model_fields.items()]
        key = "" if first["type"] == "extra_forbidden" else f"{first['loc'][-1]}: "
        raise ValueError(f"{key}{complaint(first, fields)}") from None


def _rows(context: Context, name: str, wanted: _Wanted, *columns: str) -> pd.DataFrame:
    """The rows of a result table that ``wanted`` names; UserError when it lacks one of ``columns``."""
    table: pd.DataFrame | None = getattr(context, name)
    if table is None:
        raise NotHere(f"{_cells(wanted)}: {name}.csv has not been made yet")
    for column in (*wanted, *columns):
        if column not in table:
            raise UserError(
                f"{name}.csv has no column '{column}'{nearest(column, table.columns)}; correct the claim, or "
                "delete the table and run again"
            )
    rows = _filtered(table, wanted)
    if rows.empty:
        not_run = f"{_cells(_planned(context.cells, wanted))}: not run yet, no row in {name}.csv"
        raise _NotRun(_no_such_cell(context.cells, wanted) or not_run)
    return rows


def _found(low: float, high: float, shown: str) -> InputValue:
    return InputValue((low, high), (low, high), ClaimBasis.EVIDENCE, shown)


def _no_such_cell(cells: pd.DataFrame | None, wanted: _Wanted) -> str | None:
    """A message if the study has no such cell; None if it has, or if ``cells`` is None.

    The message suggests the nearest known names for one that may be misspelt.
    """
    named = {key: wanted[key] for key in _CELL if key in wanted}
    if cells is None or not _filtered(cells, named).empty:
        return None
    networks = set(ARCHITECTURES.read_text(encoding="utf-8").split())
    hints = [
        nearest(str(name), cells[key].astype(str).unique())
        for key, names in named.items()
        for name in names
        if name not in {*cells[key], *networks}
    ]
    return f"{_cells(wanted)}: the study has no such cell{''.join(hints)}"


def _planned(cells: pd.DataFrame | None, wanted: _Wanted) -> _Wanted:
    """``wanted`` with the parts of a cell's name that it leaves open, where the study has few."""
    if cells is None or {"platform_a", "dataset_a"} & wanted.keys():
        return wanted
    rows = _filtered(cells, {key: wanted[key] for key in _CELL if key in wanted})
    few = {key: list(rows[key].unique()) for key in _CELL if rows[key].nunique() <= _FEW}
    return few | dict(wanted)


def _filtered(table: pd.DataFrame, wanted: _Wanted) -> pd.DataFrame:
    for column, values in wanted.items():
        table = table[table[column].isin(values)]
    return table


def _cells(wanted: _Wanted) -> str:
    """The cell pattern that a look-up names, and the instances if it names any, for messages."""
    named = {key: wanted.get(f"{key}_a", ["*"]) for key in ("dataset", "platform")} | dict(
        wanted
    )  # of two sides
    *parts, seed = ("+".join(map(str, named.get(key, ["*"]))) for key in _CELL)
    instances = f" on {' or '.join(map(str, named['instance']))}" if "instance" in named else ""
    return "/".join([*parts, f"seed{seed}"]) + instances
