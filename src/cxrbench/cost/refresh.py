"""Read today's on-demand prices from AWS's public price list, and show what changed.

The list is a large CSV file per region that anybody may download, without an account; it is read line by
line (AWS Billing, "Getting price list files manually"). A refreshed price is a new row with today's date:
older rows stay, and nothing is written unless asked for.
"""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import requests

from cxrbench.cost.prices import BASES, COLUMNS, HARDWARE, KEY, REGIONS, newest, read_prices
from cxrbench.study.files import written_aside
from cxrbench.study.names import UserError, nearest
from cxrbench.study.readers import read_cells

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
_DIFFERENCE = ["instance", "region", "basis", "old_usd", "old_as_of", "new_usd", "change_percent", "source"]
_WANTED = {
    "TermType": "OnDemand", "Unit": "Hrs", "Operating System": "Linux", "Tenancy": "Shared",
    "Pre Installed S/W": "NA", "CapacityStatus": "Used",
}  # fmt: skip
_READ = ("SKU", "Instance Type", "PricePerUnit", "Currency")
_SECONDS = 30  # without an answer, or between two parts of it


def refresh(
    path: Path,
    region: str = "us-east-1",
    instances: Iterable[str] | None = None,
    write: bool = False,
    price_list: str = PRICE_LIST,
) -> tuple[pd.DataFrame, list[str]]:
    """Return today's prices of ``instances`` (None: those ``path`` has in ``region``) beside the known ones,
    and the instances that are not sold there. ``price_list``: an address with ``{region}`` in it."""
    prices = read_prices(path)
    wanted = _wanted(prices, region, instances)
    with _unchanged(path):
        quotes = _quotes(_lines(price_list.format(region=region)), set(wanted), region)
    names = {"usd_per_hour": "old_usd", "as_of": "old_as_of"}
    earlier = newest(prices)[[*KEY, *names]].rename(columns=names)
    if write and len(quotes):
        _write(path, quotes.assign(as_of=datetime.now(UTC).date().isoformat()))
    both = quotes.rename(columns={"usd_per_hour": "new_usd"}).merge(earlier, how="left", on=KEY)
    both["change_percent"] = (both["new_usd"] / both["old_usd"] - 1) * 100
    not_sold = [name for name in wanted if name not in set(quotes["instance"])]
    return both.fillna({"old_as_of": ""})[_DIFFERENCE], not_sold


def _wanted(prices: pd.DataFrame, region: str, instances: Iterable[str] | None) -> list[str]:
    if region not in REGIONS:
        raise UserError(f"unknown region '{region}'{nearest(region, REGIONS)}")
    on_ec2 = prices[~prices["instance"].str.startswith("ml.")]
    if instances is None:
        return sorted(set(on_ec2.loc[on_ec2["region"] == region, "instance"]))
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
            f"AWS's price list could not be read ({reason}); {path} is unchanged: check the network, then "
            "run again"
        ) from None
    except UserError as error:
        raise UserError(f"{error}; {path} is unchanged") from None
    except (ValueError, IndexError, csv.Error) as error:
        raise UserError(f"AWS's price list is not understood ({error}); {path} is unchanged") from error


def _lines(address: str) -> Iterator[str]:
    with requests.get(address, stream=True, timeout=_SECONDS) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines(chunk_size=1 << 16):
            yield line.decode("utf-8")


def _quotes(lines: Iterable[str], wanted: set[str], region: str) -> pd.DataFrame:
    """Return USD per instance-hour with its source: Linux, shared tenancy. A price of zero is none."""
    rows = csv.reader(lines)
    head = next((row for row in rows if row[:1] == ["SKU"]), [])
    at = {name: head.index(name) for name in (*_READ, *_WANTED)}
    offered: dict[str, dict[float, str]] = {}
    for row in rows:
        instance = row[at["Instance Type"]]
        if instance not in wanted or any(row[at[name]] != value for name, value in _WANTED.items()):
            continue
        if (currency := row[at["Currency"]]) != "USD":
            raise UserError(f"AWS prices {instance} in {currency}: only prices in USD are kept")
        if (usd := float(row[at["PricePerUnit"]])) > 0:
            offered.setdefault(instance, {}).setdefault(usd, row[at["SKU"]])
    for instance, offers in offered.items():
        if len(offers) > 1:
            skus = ", ".join(f"{sku}: {usd:g}" for usd, sku in offers.items())
            raise UserError(f"AWS has several prices of {instance} ({skus}); add the right one by hand")
    quotes = [(name, *offer) for name, offers in sorted(offered.items()) for offer in offers.items()]
    table = pd.DataFrame(quotes, columns=["instance", "usd_per_hour", "sku"])
    source = "AWS Price List, SKU " + table["sku"].astype(str)
    here = {"region": region, "basis": "on_demand", "note": "Linux, shared tenancy"}
    return table.drop(columns="sku").assign(source=source, **here)


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
