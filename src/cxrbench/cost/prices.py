"""Hourly prices as data: one CSV row per instance, region, basis and date; older rows are kept.

Columns of ``data/prices.csv``: ``instance`` (EC2 type, or ``ml.`` type for SageMaker), ``region``,
``basis`` (one of :data:`BASES`), ``usd_per_hour`` (USD per hour of the whole instance, tax excluded),
``accelerator`` (empty: none), ``accelerators`` (chips or GPUs), ``memory_gib_per_accelerator``,
``cores``, ``vcpus``, ``memory_gib`` (of the host), ``source``, ``as_of`` (ISO date; empty: undated) and
``note``.

``cores`` has one meaning everywhere: the units that one training process can occupy alone. These are
NeuronCores on Trainium and Inferentia, GPUs on GPU instances, vCPUs on instances without an accelerator.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pandas as pd

from cxrbench.errors import UserError, nearest, suggestion

BASES = ("on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block", "sagemaker")
COLUMNS = (
    "instance", "region", "basis", "usd_per_hour", "accelerator", "accelerators",
    "memory_gib_per_accelerator", "cores", "vcpus", "memory_gib", "source", "as_of", "note",
)  # fmt: skip
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


_INSTANCE = re.compile(r"^(ml\.)?[a-z][a-z0-9\-]*\.[a-z0-9\-]+$")
_NUMBERS = {
    "usd_per_hour": "a price", "accelerators": "a count", "memory_gib_per_accelerator": "GiB",
    "cores": "a count", "vcpus": "a count", "memory_gib": "GiB",
}  # fmt: skip
_MAY_BE_EMPTY = {"memory_gib_per_accelerator", "vcpus", "memory_gib"}


def read_prices(path: Path | str) -> pd.DataFrame:
    """The price table in ``path``, one row per price, text columns as ``str`` and numbers as ``float64``.

    Empty numbers become NaN, an empty ``as_of`` stays ``""`` (undated). UserError with file, line and
    column for anything that is not a price in US dollars with a source.
    """
    path = Path(path)
    rows = _rows(path)
    first_line: dict[tuple[str, ...], int] = {}
    hardware: dict[str, tuple[list[str], int]] = {}
    parsed = []
    for line, row in rows:
        parsed.append(_checked(row, path, line))
        key = (*(row[c] for c in KEY), row["as_of"])
        if key in first_line:
            raise UserError(
                f"{path}:{line}: column as_of: second price for {' '.join(key[:3])} as of "
                f"{key[3] or UNDATED} (first in line {first_line[key]}); keep one of the two"
            )
        first_line[key] = line
        facts, other = hardware.setdefault(row["instance"], ([row[c] for c in HARDWARE], line))
        for column, fact in zip(HARDWARE, facts, strict=True):
            if row[column] != fact:
                raise UserError(
                    f"{path}:{line}: column {column}: {row['instance']} has '{row[column]}' here and "
                    f"'{fact}' in line {other}; one instance has one hardware, mend the wrong one"
                )
    return pd.DataFrame(parsed, columns=list(COLUMNS))


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line number and stripped cells of each row."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, path)
            rows = []
            start = reader.line_num
            for cells in reader:
                line, start = start + 1, reader.line_num
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise UserError(
                        f"{path}:{line}: column {min(len(cells), len(header)) + 1}: {len(cells)} cells where "
                        f"the header has {len(header)}; quote cells that contain commas"
                    )
                rows.append((line, dict(zip(header, (c.strip() for c in cells), strict=True))))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no price table; restore it with git") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a readable CSV file ({error}); restore it with git") from None
    if not rows:
        raise UserError(f"{path}:2: there are no prices; restore it with git")
    return rows


def _check_header(header: list[str], path: Path) -> None:
    for position, name in enumerate(header, 1):
        if name not in COLUMNS:
            hint = suggestion(name, COLUMNS, 1)
            raise UserError(f"{path}:1: column {position}: unknown column '{name}' (prices are in USD){hint}")
        if name in header[: position - 1]:
            raise UserError(f"{path}:1: column {position}: '{name}' occurs twice; remove one")
    if missing := [name for name in COLUMNS if name not in header]:
        raise UserError(f"{path}:1: column {missing[0]} is missing; the header is {','.join(COLUMNS)}")


def _checked(row: dict[str, str], path: Path, line: int) -> dict[str, str | float]:
    """The row with its numbers parsed; UserError naming the column otherwise."""

    def wrong(column: str, what: str) -> UserError:
        return UserError(f"{path}:{line}: column {column}: {what}")

    if not _INSTANCE.match(row["instance"]):
        raise wrong("instance", f"'{row['instance']}' is not an instance type; write one such as g5.xlarge")
    for column, known in (("region", REGIONS), ("basis", BASES)):
        if row[column] not in known:
            hint = suggestion(row[column], known)
            raise wrong(column, f"unknown {column} '{row[column]}'{hint}")
    if not row["source"]:
        raise wrong("source", "a price without a source cannot be checked; say where it is from")
    if row["as_of"] and not _is_date(row["as_of"]):
        raise wrong("as_of", f"'{row['as_of']}' is not a date such as 2026-07-20; leave it empty if undated")
    values: dict[str, str | float] = dict(row)
    for column, kind in _NUMBERS.items():
        values[column] = _number(row[column], column, kind, wrong)
    return values


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _last_date(as_of: str) -> str:
    """The last ``as_of`` of the table that ``as_of`` admits; undated rows sort before every date."""
    if as_of == UNDATED:
        return ""
    if not _is_date(as_of):
        raise UserError(
            f"'{as_of}' is not a date such as 2026-07-20, nor '{UNDATED}' (prices.as_of, or --as-of)"
        )
    return as_of


def _number(text: str, column: str, kind: str, wrong) -> float:
    if not text:
        if column in _MAY_BE_EMPTY:
            return math.nan
        raise wrong(column, f"{kind} is missing; fill it in or remove the row")
    try:
        value = float(text)
    except ValueError:
        if column == "usd_per_hour" and re.search(r"[A-Za-z$€£¥]", text):
            raise wrong(column, f"'{text}': write the plain number in US dollars per hour") from None
        raise wrong(column, f"'{text}' is not a number") from None
    least_is_zero = column == "accelerators"
    if not math.isfinite(value) or value < 0 or (value == 0 and not least_is_zero):
        raise wrong(column, f"'{text}' must be a finite number above zero; correct it or remove the row")
    return value


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
