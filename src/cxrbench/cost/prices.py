"""Hourly prices as data: one CSV row per instance, region, basis and date; older rows are kept.

``cores`` has one meaning everywhere: what is paid and counted. These are physical NeuronCores on Trainium
and Inferentia (a process on Trainium2 takes two), GPUs on GPU instances, vCPUs on instances without an
accelerator.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
from pydantic import AfterValidator, Field

from cxrbench.common.errors import UserError, nearest
from cxrbench.common.readers import OR_NONE, Row, Text, iso_date, matching, one_of, read_rows
from cxrbench.study.config import PriceBasis

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
_GOOGLES = ("us-east1",)  # region of Google's, for what AWS does not sell
UNDATED = "undated"


class NoPrice(UserError):
    """The table has no row for what was asked; ``reason`` is the message without what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason = reason


_LISTED = 4  # instances that a message names
_INSTANCE = r"(ml\.)?[a-z][a-z0-9-]*\.[a-z0-9-]+|ct[0-9][a-z0-9]*(-[a-z0-9]+)+"
_Positive = Annotated[float, Field(gt=0)]
_Day = Annotated[str, AfterValidator(lambda text: text and iso_date(text))]  # or empty


class Price(Row):
    """A row of ``data/prices.csv``. Empty numbers are unknown, an empty ``as_of`` is an undated price."""

    KEY: ClassVar = (*KEY, "as_of")
    instance: Annotated[str, matching(_INSTANCE, "g5.xlarge, ml.g5.xlarge or ct6e-standard-1t")]
    region: Annotated[str, one_of((*REGIONS, *_GOOGLES))]
    basis: Annotated[str, one_of(BASES)]
    usd_per_hour: _Positive  # of the whole instance, tax excluded
    accelerator: str  # empty: none
    accelerators: Annotated[float, Field(ge=0)]  # chips or GPUs
    memory_gib_per_accelerator: Annotated[_Positive | None, OR_NONE]
    cores: _Positive
    vcpus: Annotated[_Positive | None, OR_NONE]
    memory_gib: Annotated[_Positive | None, OR_NONE]  # of the host
    source: Text
    as_of: _Day
    until: _Day  # the day up to which the source lists an undated price
    assumed: Literal["", "region"]  # what the source does not state
    note: str


COLUMNS = tuple(Price.columns())


def read_prices(path: Path | str) -> pd.DataFrame:
    """The price table in ``path``: texts as ``str``, numbers as ``float64``, unknown ones NaN.

    UserError with file, line and column for anything that is not a price in US dollars with a source.
    """
    rows = read_rows(path, Price)
    if not rows:
        raise UserError(f"{path}:2: column 1: there are no prices; add a row")
    first: dict[str, tuple[int, Price]] = {}
    for line, row in rows.items():
        first_line, same = first.setdefault(row.instance, (line, row))
        for column in HARDWARE:
            if (value := getattr(row, column)) != (earlier := getattr(same, column)):
                raise UserError(
                    f"{path}:{line}: column {column}: {row.instance} has '{value}' here and '{earlier}' in "
                    f"line {first_line}; one instance has one hardware, correct the wrong one"
                )
    table = pd.DataFrame([row.model_dump() for row in rows.values()])
    return table.astype(dict.fromkeys(["usd_per_hour", *HARDWARE[1:]], "float64"))


def newest(prices: pd.DataFrame, as_of: str | None = None, **where: str) -> pd.DataFrame:
    """One row per instance, region and basis: the newest dated up to ``as_of`` (none: of all).

    ``where``: values of columns. An undated price is taken only where no dated one qualifies, with the
    ``as_of`` of :func:`dates`; asking for :data:`UNDATED` takes undated prices alone.
    """
    if as_of is not None:
        try:
            prices = prices[prices["as_of"] <= ("" if as_of == UNDATED else iso_date(as_of))]
        except ValueError as error:
            raise UserError(
                f"prices.as_of or --as-of: {error}; write one, or '{UNDATED}' for prices without a date"
            ) from None
    wanted = np.logical_and.reduce([prices[column].to_numpy() == value for column, value in where.items()])
    rows = prices[wanted] if where else prices
    order = [column for column in (*KEY, "as_of") if column not in where]
    rows = rows.sort_values(order, kind="stable").drop_duplicates(KEY, keep="last")
    return rows.assign(as_of=dates(rows)).reset_index(drop=True)


def by_the_hour(prices: pd.DataFrame) -> pd.DataFrame:
    """The prices that an hour costs: without capacity blocks, which are bought for days ahead."""
    return prices[prices["basis"] != "capacity_block"]


def dates(prices: pd.DataFrame) -> pd.Series:
    """The dates of prices as shown: that of the price, else until when it is listed, else undated."""
    until = ("until " + prices["until"]).where(prices["until"] != "", UNDATED)
    return prices["as_of"].where(prices["as_of"] != "", until)


def accelerator_of(prices: pd.DataFrame, instance: str) -> str:
    """The accelerator of an instance, whatever its price; NoPrice where the table does not have it, with the
    instances that are meant where it is an accelerator's name."""
    rows = prices[prices["instance"] == instance]
    if len(rows):
        return str(rows["accelerator"].iloc[0])
    reason = f"no price with instance '{instance}'"
    begins = prices["accelerator"].str.casefold().str.startswith(instance.casefold())
    rented = prices[begins & ~prices["instance"].str.startswith("ml.")].sort_values("usd_per_hour")
    if len(holds := rented["instance"].unique()):
        named = ", ".join(holds[:_LISTED])
        raise NoPrice(reason, f"{instance} is an accelerator; name an instance that has it: {named}")
    raise NoPrice(reason, f"add a row to prices.csv{nearest(instance, prices['instance'].unique())}")


def regions(prices: pd.DataFrame) -> pd.Series:
    """The regions of prices as shown: marked where the source does not state them."""
    return prices["region"].where(prices["assumed"] == "", prices["region"] + " (assumed)")


def to_add(instance: str, region: str, basis: str) -> str:
    """What to do where a known instance has no price at ``basis``: the command that reads one, or a row."""
    row = "add a row to prices.csv"
    if basis not in ("on_demand", "spot") or instance.startswith("ml."):
        return row
    command = f"cxrbench cost refresh {instance} --region {region} --price-list skypilot --write"
    return f"`{command}` reads it where it is sold, or {row}"


def price(
    prices: pd.DataFrame, instance: str, region: str, basis: str, as_of: str | None = None
) -> pd.Series:
    """The :func:`newest` price of ``instance``; NoPrice when there is none.

    What only Google sells is priced in its region, whatever ``region`` is.
    """
    sold = set(prices.loc[prices["instance"] == instance, "region"])
    if len(sold) == 1 and sold <= set(_GOOGLES):
        (region,) = sold
    rows = newest(prices, as_of, instance=instance, region=region, basis=basis)
    if len(rows):
        return rows.iloc[0]
    scope = ""
    for column, name, link in zip(KEY, (instance, region, basis), (" for ", " in ", ""), strict=True):
        names = sorted(set(prices[column]))
        if name not in names:
            listed = f" (known: {', '.join(names)})" if len(names) <= 8 else ""
            reason = f"no price{scope} with {column} '{name}'{listed}"
            if column == "instance":
                accelerator_of(prices, name)  # which raises: nothing is known of it
            if region in REGIONS:
                raise NoPrice(reason, to_add(instance, region, basis))
            raise NoPrice(reason, f"add a row to prices.csv{nearest(name, names)}")
        prices, scope = prices[prices[column] == name], f"{scope}{link}{name}"
    raise NoPrice(
        f"no price of {instance} ({region}, {basis}) up to {as_of}",
        f"the oldest row is of {prices['as_of'].min()}; add an older row to prices.csv or ask for a later "
        "date",
    )
