"""Read today's prices from AWS's public price list or SkyPilot's public catalogue, and show what changed.

AWS's list is a large CSV file per region that anybody may download, without an account; it is read line by
line (AWS Billing, "Getting price list files manually"). SkyPilot's catalogue (skypilot-org/skypilot-catalog,
catalogs/v8/aws/vms.csv and newer) has all regions in one file, with spot prices by zone. Which of the two a
file is, its first line says. A refreshed price is a new row with its date: older rows stay, and nothing is
written unless asked for.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path

import pandas as pd
import requests

from cxrbench.common.errors import UserError, nearest, suggestion
from cxrbench.common.files import written_aside
from cxrbench.common.readers import iso_date, read_cells
from cxrbench.cost.prices import BASES, COLUMNS, HARDWARE, KEY, REGIONS, newest, read_prices

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
CATALOGUE = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/aws/vms.csv"
EVERY_REGION = "all"
_DIFFERENCE = ["instance", "region", "basis", "old_usd", "old_as_of", "new_usd", "change_percent", "source"]
_WANTED = {
    "TermType": "OnDemand", "Unit": "Hrs", "Operating System": "Linux", "Tenancy": "Shared",
    "Pre Installed S/W": "NA", "CapacityStatus": "Used",
}  # fmt: skip
_OF_CATALOGUE = ("InstanceType", "Price", "SpotPrice", "Region")
_LOCAL_ZONE = re.compile(r"\w+-\w+-az\d+|[a-z]+-[a-z]+-\d-.+")  # use1-atl2-az1, or us-east-1-atl-2a by name
_READ = ("SKU", "Instance Type", "PricePerUnit", "Currency")
_SECONDS = 30  # without an answer, or between two parts of it


def refresh(
    path: Path,
    region: str = "us-east-1",
    instances: Iterable[str] | None = None,
    write: bool = False,
    price_list: str = PRICE_LIST,
    dated: str | None = None,
    begun: Callable[[], None] = lambda: None,
) -> tuple[pd.DataFrame, list[str]]:
    """Today's prices of ``instances`` (None: those ``path`` has in ``region``) beside the known ones,
    and the instances that are not sold there.

    ``price_list`` is an address, with ``{region}`` in it for AWS's list, or a file, which needs its date
    (``dated``). ``region`` may be :data:`EVERY_REGION` for a catalogue. ``begun`` is called before the first
    byte is read, when all that is given has been checked.
    """
    prices = read_prices(path)
    wanted = _wanted(prices, region, instances)
    if dated and price_list in (PRICE_LIST, CATALOGUE):
        raise UserError("--dated is the day of a file's prices; leave it out for a list that is read today")
    if "://" not in price_list and not dated:
        raise UserError(f"{price_list} does not say of which day it is: add --dated YYYY-MM-DD")
    if region == EVERY_REGION and "{region}" in price_list:
        raise UserError("AWS's list is of one region: name it with --region, or add --price-list skypilot")
    try:
        as_of = iso_date(dated) if dated else datetime.now(UTC).date().isoformat()
    except ValueError as error:
        raise UserError(f"--dated: {error}; correct it") from None
    if as_of > max(date.today(), datetime.now(UTC).date()).isoformat():  # one may be a day ahead
        raise UserError(f"--dated: {as_of} is in the future; name the day that the prices are of")
    begun()
    with _unchanged(path):
        lines = iter(_lines(price_list.replace("{region}", region)))
        first = next(lines, "")
        read = _catalogue if first.startswith("InstanceType,") else _quotes
        if read is _quotes and region == EVERY_REGION:
            raise ValueError("it is no catalogue of SkyPilot's, which alone has all regions")
        quotes = read(chain([first], lines), set(wanted), region)
    names = {"usd_per_hour": "old_usd", "as_of": "old_as_of"}
    earlier = newest(prices)[[*KEY, *names]].rename(columns=names)
    if write and len(quotes):
        _write(path, quotes.assign(as_of=as_of))
    both = quotes.rename(columns={"usd_per_hour": "new_usd"}).merge(earlier, how="left", on=KEY)
    both["change_percent"] = (both["new_usd"] / both["old_usd"] - 1) * 100
    not_sold = [name for name in wanted if name not in set(quotes["instance"])]
    return both.fillna({"old_as_of": ""})[_DIFFERENCE], not_sold


def _wanted(prices: pd.DataFrame, region: str, instances: Iterable[str] | None) -> list[str]:
    if region not in (*REGIONS, EVERY_REGION):
        raise UserError(f"unknown region '{region}'{suggestion(region, [*REGIONS, EVERY_REGION])}")
    on_ec2 = prices[~prices["instance"].str.startswith("ml.")]
    if instances is None:
        return sorted(set(on_ec2.loc[on_ec2["region"].isin([region]) | (region == EVERY_REGION), "instance"]))
    wanted = list(dict.fromkeys(instances))
    listed = sorted(set(on_ec2["instance"]))
    for name in (name for name in wanted if name not in listed):
        raise UserError(
            f"instance '{name}' is not in the price table{nearest(name, listed)}: add a first row with "
            "its accelerators, memory and cores, which AWS's price list does not give reliably"
        )
    return wanted


@contextmanager
def _unchanged(path: Path) -> Iterator[None]:
    """Turn failures of the network, and a list in another shape, into one line: nothing was changed."""
    try:
        yield
    except requests.RequestException as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"the price list could not be read ({reason}); {path} is unchanged: check the network, then "
            "run again"
        ) from None
    except OSError as error:
        raise UserError(
            f"the price list could not be read ({error}); {path} is unchanged: correct --price-list"
        ) from None
    except UserError as error:
        raise UserError(f"{path} is unchanged: {error}") from None
    except (ValueError, IndexError, csv.Error) as error:
        raise UserError(
            f"the price list is not understood ({error}); {path} is unchanged: give AWS's list as CSV, or "
            "SkyPilot's vms.csv, with --price-list"
        ) from error


def _lines(address: str) -> Iterator[str]:
    if "://" not in address:
        with open(address, encoding="utf-8") as file:
            yield from file
        return
    with requests.get(address, stream=True, timeout=_SECONDS) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines(chunk_size=1 << 16):
            yield line.decode("utf-8")


def _quotes(lines: Iterable[str], wanted: set[str], region: str) -> pd.DataFrame:
    """USD per instance-hour with its source: Linux, shared tenancy. A price of zero is none."""
    rows = csv.reader(lines)
    head = next((row for row in rows if row[:1] == ["SKU"]), [])
    if missing := [name for name in (*_READ, *_WANTED) if name not in head]:
        raise ValueError(f"no line has the columns of AWS's list, such as {missing[0]}")
    column = {name: head.index(name) for name in (*_READ, *_WANTED)}
    offered: dict[str, dict[float, str]] = {}
    for row in rows:
        instance = row[column["Instance Type"]]
        if instance not in wanted or any(row[column[name]] != value for name, value in _WANTED.items()):
            continue
        if (currency := row[column["Currency"]]) != "USD":
            raise UserError(
                f"AWS prices {instance} in {currency}: leave it out, because only prices in USD are kept"
            )
        if (usd := float(row[column["PricePerUnit"]])) > 0:
            offered.setdefault(instance, {}).setdefault(usd, row[column["SKU"]])
    for instance, offers in offered.items():
        if len(offers) > 1:
            skus = ", ".join(f"{sku}: {usd:g}" for usd, sku in offers.items())
            raise UserError(f"AWS has several prices of {instance} ({skus}); add the right one by hand")
    quotes = [(name, *offer) for name, offers in sorted(offered.items()) for offer in offers.items()]
    table = pd.DataFrame(quotes, columns=["instance", "usd_per_hour", "sku"])
    source = "AWS Price List, SKU " + table["sku"].astype(str)
    terms = {"region": region, "basis": "on_demand", "note": "Linux, shared tenancy"}
    return table.drop(columns="sku").assign(source=source, **terms)


def _catalogue(lines: Iterable[str], wanted: set[str], region: str) -> pd.DataFrame:
    """The quotes of SkyPilot's catalogue: on demand, and on spot in the cheapest zone of a region.

    A price that is missing or zero is none. ValueError for a column that is not there, for a number that is
    none, and for two prices on demand of one instance in a region.
    """
    rows = csv.DictReader(lines)
    if missing := [name for name in _OF_CATALOGUE if name not in (rows.fieldnames or ())]:
        raise ValueError(f"its first line has no column {missing[0]}")
    found: dict[tuple[str, str, str], float] = {}
    for row in rows:
        name, where = row["InstanceType"], row["Region"]
        if name not in wanted or where not in REGIONS or region not in (where, EVERY_REGION):
            continue
        if _LOCAL_ZONE.fullmatch(row.get("AvailabilityZone") or ""):  # in another city, at its own price
            continue
        for basis, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
            usd = float(row[column] or 0)
            if not math.isfinite(usd):
                raise ValueError(f"{column} of {name} in {where} is {row[column]}")
            key = name, where, basis
            if basis == "on_demand" and usd > 0 and found.get(key, usd) != usd:
                raise ValueError(f"{name} has two prices on demand in {where}: {found[key]:g} and {usd:g}")
            if usd > 0:
                found[key] = min(usd, found.get(key, usd))
    table = pd.DataFrame([(*key, usd) for key, usd in sorted(found.items())], columns=[*KEY, "usd_per_hour"])
    notes = table["basis"].map({"on_demand": "Linux", "spot": "Linux; cheapest availability zone"})
    return table.assign(source="skypilot-org/skypilot-catalog, catalogs/aws/vms.csv", note=notes)


def _write(path: Path, quotes: pd.DataFrame) -> None:
    """Add the quotes as rows; a row of the same day that is already there is replaced."""
    rows = pd.DataFrame(read_cells(path, COLUMNS).values())
    hardware = rows.drop_duplicates("instance")[["instance", *HARDWARE]]
    new = quotes.assign(usd_per_hour=[f"{round(usd, 6)}" for usd in quotes["usd_per_hour"]])
    kept = pd.concat([rows, new.merge(hardware, on="instance")])
    kept = kept.drop_duplicates([*KEY, "as_of"], keep="last")
    kept = kept.assign(order=kept["basis"].map(BASES.index))
    kept = kept.sort_values(["instance", "region", "order", "as_of"], kind="stable")
    with written_aside(path) as aside:
        kept.to_csv(aside, columns=list(COLUMNS), index=False, lineterminator="\n")
        read_prices(aside)  # what is renamed into place is readable, or nothing changes
