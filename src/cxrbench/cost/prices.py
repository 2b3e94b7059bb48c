"""Hourly prices as data: one CSV row per instance, region, basis and date; older rows are kept.

``cores`` has one meaning everywhere: the units that one training process can occupy alone. These are
NeuronCores on Trainium and Inferentia, GPUs on GPU instances, vCPUs on instances without an accelerator.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, get_args

import pandas as pd
from pydantic import AfterValidator, Field

from cxrbench.study.config import PriceBasis
from cxrbench.study.errors import UserError, nearest
from cxrbench.study.readers import OR_NONE, Row, Text, iso_date, matching, one_of, read_rows

BASES: tuple[str, ...] = get_args(PriceBasis)
KEY = ["instance", "region", "basis"]
HARDWARE = ["accelerator", "accelerators", "memory_gib_per_accelerator", "cores", "vcpus", "memory_gib"]
REGIONS = (
    "af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
    "ap-south-1", "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4",
    "ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1",
    "eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3",
    "il-central-1", "me-central-1", "me-south-1", "mx-central-1", "sa-east-1", "us-east-1", "us-east-2",
    "us-west-1", "us-west-2",
)  # fmt: skip
UNDATED = "undated"


class NoPrice(UserError):
    """The table has no row for what was asked; ``reason`` says so in a few words, without what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason = reason


_Positive = Annotated[float, Field(gt=0)]


class Price(Row):
    """A row of ``data/prices.csv``. Empty numbers are unknown, an empty ``as_of`` is an undated price."""

    KEY: ClassVar = (*KEY, "as_of")
    instance: Annotated[str, matching(r"(ml\.)?[a-z][a-z0-9-]*\.[a-z0-9-]+", "g5.xlarge or ml.g5.xlarge")]
    region: Annotated[str, one_of(REGIONS)]
    basis: Annotated[str, one_of(BASES)]
    usd_per_hour: _Positive  # of the whole instance, tax excluded
    accelerator: str  # empty: none
    accelerators: Annotated[float, Field(ge=0)]  # chips or GPUs
    memory_gib_per_accelerator: Annotated[_Positive | None, OR_NONE]
    cores: _Positive
    vcpus: Annotated[_Positive | None, OR_NONE]
    memory_gib: Annotated[_Positive | None, OR_NONE]  # of the host
    source: Text
    as_of: Annotated[str, AfterValidator(lambda text: text and iso_date(text))]
    note: str


COLUMNS = tuple(Price.columns())


def read_prices(path: Path | str) -> pd.DataFrame:
    """The price table in ``path``, one row per price, text columns as ``str`` and numbers as ``float64``.

    Empty numbers become NaN, an empty ``as_of`` stays ``""`` (undated). UserError with file, line and
    column for anything that is not a price in US dollars with a source.
    """
    rows = read_rows(path, Price)
    if not rows:
        raise UserError(f"{path}:2: column 1: there are no prices; add a row")
    first: dict[str, tuple[int, Price]] = {}
    for line, row in rows.items():
        other, same = first.setdefault(row.instance, (line, row))
        for column in HARDWARE:
            if (here := getattr(row, column)) != (there := getattr(same, column)):
                raise UserError(
                    f"{path}:{line}: column {column}: {row.instance} has '{here}' here and '{there}' in "
                    f"line {other}; one instance has one hardware, correct the wrong one"
                )
    table = pd.DataFrame([row.model_dump() for row in rows.values()])
    return table.astype(dict.fromkeys(["usd_per_hour", *HARDWARE[1:]], "float64"))


def _last_date(as_of: str) -> str:
    """The last ``as_of`` of the table that ``as_of`` admits; undated rows sort before every date."""
    if as_of == UNDATED:
        return ""
    try:
        return iso_date(as_of)
    except ValueError as error:
        raise UserError(f"{error}, nor '{UNDATED}' (prices.as_of, or --as-of)") from None


def newest(
    prices: pd.DataFrame,
    as_of: str | None = None,
    region: str | None = None,
    bases: Iterable[str] | None = None,
    instances: Iterable[str] | None = None,
) -> pd.DataFrame:
    """One row per instance, region and basis: the newest dated up to ``as_of`` (ISO; none: the newest).

    An undated price is taken only where no dated one qualifies; nothing says when it was true, so its
    ``as_of`` stays empty for the caller to show. ``as_of`` = :data:`UNDATED` asks for those alone.
    """
    keep = pd.Series(True, index=prices.index)
    if as_of is not None:
        keep &= prices["as_of"] <= _last_date(as_of)
    if region is not None:
        keep &= prices["region"] == region
    if bases is not None:
        keep &= prices["basis"].isin(list(bases))
    if instances is not None:
        keep &= prices["instance"].isin(list(instances))
    rows = prices[keep].sort_values([*KEY, "as_of"], kind="stable")
    return rows.drop_duplicates(KEY, keep="last").reset_index(drop=True)


def price(
    prices: pd.DataFrame, instance: str, region: str, basis: str, as_of: str | None = None
) -> pd.Series:
    """The row that prices ``instance`` in ``region`` on ``basis``: the newest up to ``as_of``.

    Dates as for :func:`newest`. :class:`NoPrice`, with the nearest right name or what there is instead, when
    there is none.
    """
    rows = newest(prices, as_of, region, [basis], [instance])
    if rows.empty:
        raise _no_such_price(prices, (instance, region, basis), as_of)
    return rows.iloc[0]


def _no_such_price(prices: pd.DataFrame, wanted: tuple[str, ...], as_of: str | None) -> NoPrice:
    """Name which of instance, region, basis and date has no row, and what there is instead."""
    of = ""
    for column, name, after in zip(KEY, wanted, (" for {}", " in {}", ""), strict=True):
        here = prices[prices[column] == name]
        if here.empty:
            break
        prices, of = here, of + after.format(name)
    else:
        return NoPrice(
            f"no price of {wanted[0]} ({wanted[1]}, {wanted[2]}) up to {as_of}",
            f"the oldest row is of {prices['as_of'].min()}; add an older row to prices.csv or ask for a "
            "later date",
        )
    known = sorted(set(prices[column]))
    listed = f" (known: {', '.join(known)})" if len(known) <= 8 else ""
    return NoPrice(
        f"no price{of} with {column} '{name}'{listed}", f"add a row to prices.csv{nearest(name, known)}"
    )
