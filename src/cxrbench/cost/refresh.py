"""Fetch today's prices from AWS and show what changed; the price table is written on request only.

On demand and reserved come from the Price List service, spot as the median of its history in the
cheapest availability zone, capacity blocks from today's offerings. A refreshed price is a new row with
today's date: older rows stay. boto3 is imported on first use, it takes a quarter of a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.cost.prices import BASES, COLUMNS, HARDWARE, KEY, REGIONS, newest, read_prices
from cxrbench.study.errors import UserError, nearest
from cxrbench.study.files import written_aside

DIFFERENCE = ["instance", "region", "basis", "old_usd", "old_as_of", "new_usd", "change_percent", "source"]
_HOURS_PER_YEAR = 8760
_BLOCK_HOURS = 24
_LEASES = {"reserved_1y": "1yr", "reserved_3y": "3yr"}


class Clients(NamedTuple):
    """boto3 clients: Price List and EC2."""

    pricing: Any
    ec2: Any


class Quote(NamedTuple):
    """A price from AWS: USD per instance-hour, and how it was read."""

    instance: str
    basis: str
    usd_per_hour: float
    source: str
    note: str


class Refreshed(NamedTuple):
    """``difference``: one row per quote (:data:`DIFFERENCE`); ``written``: whether the table was changed."""

    difference: pd.DataFrame
    written: bool
    not_offered: tuple[str, ...]


def refresh(
    path: Path | str,
    region: str = "us-east-1",
    instances: Iterable[str] | None = None,
    write: bool = False,
    window_days: int = 7,
    clients: Clients | None = None,
    now: datetime | None = None,
) -> Refreshed:
    """Return today's prices of ``instances`` (none: all of ``region`` in ``path``) beside the known ones.

    UserError, in one line and with nothing written, without credentials or network, for an answer that
    is not understood, or for an instance whose hardware is not in the table yet.
    """
    prices = read_prices(path)
    now, wanted = now or datetime.now(UTC), _wanted(prices, region, instances)
    found: list[Quote] = []
    blocks = set(prices.loc[prices["basis"] == "capacity_block", "instance"])
    with _one_line(path):
        clients = clients or _clients(region)
        for instance in wanted:
            found += _list_quotes(clients.pricing, instance, region)
            found += _spot_quotes(clients.ec2, instance, now, window_days)
            if instance in blocks:
                found += _block_quotes(clients.ec2, instance)
    quotes = pd.DataFrame(found, columns=list(Quote._fields)).assign(region=region)
    if write and found:
        _write(Path(path), quotes.assign(as_of=now.date().isoformat()))
    names = {"usd_per_hour": "old_usd", "as_of": "old_as_of"}
    known = newest(prices)[[*KEY, *names]].rename(columns=names)
    both = quotes.rename(columns={"usd_per_hour": "new_usd"}).merge(known, how="left", on=KEY)
    both["change_percent"] = (both["new_usd"] / both["old_usd"] - 1) * 100
    not_offered = tuple(name for name in wanted if name not in set(quotes["instance"]))
    return Refreshed(both.fillna({"old_as_of": ""})[DIFFERENCE], write and bool(found), not_offered)


def _wanted(prices: pd.DataFrame, region: str, instances: Iterable[str] | None) -> list[str]:
    if region not in REGIONS:
        raise UserError(f"unknown region '{region}'{nearest(region, REGIONS)}")
    on_ec2 = prices[~prices["instance"].str.startswith("ml.")]
    if instances is None:
        return sorted(set(on_ec2.loc[on_ec2["region"] == region, "instance"]))
    known, wanted = sorted(set(on_ec2["instance"])), list(dict.fromkeys(instances))
    for name in wanted:
        if name not in known:
            raise UserError(
                f"instance '{name}' is not in the price table{nearest(name, known)}: add a first row with "
                "its accelerators, memory and cores, which AWS's price list does not give reliably"
            )
    return wanted


@contextmanager
def _one_line(path: Path | str) -> Iterator[None]:
    """Turn boto's many failures, and answers in another shape, into one line: nothing was changed."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}; {path} is unchanged") from None
    except ImportError:
        raise UserError(f"boto3 is not installed; {path} is unchanged: install boto3 to refresh") from None
    except (KeyError, ValueError) as error:
        raise UserError(f"AWS's answer is not understood ({error!r}); {path} is unchanged") from error
    except Exception as error:
        if not type(error).__module__.startswith(("botocore", "boto3")):
            raise
        raise UserError(
            f"AWS could not be asked ({' '.join(str(error).split())}); {path} is unchanged: set AWS "
            "credentials and check the network, then run again"
        ) from None


def _clients(region: str) -> Clients:
    import boto3
    from botocore.config import Config

    brief = Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 2})
    # the Price List service answers in three regions only, for all regions
    pricing = boto3.client("pricing", region_name="us-east-1", config=brief)
    return Clients(pricing, boto3.client("ec2", region_name=region, config=brief))


def _pages(client: Any, operation: str, items: str, **asked: Any) -> list[Any]:
    """Return the ``items`` of all pages of an answer."""
    return [item for page in client.get_paginator(operation).paginate(**asked) for item in page[items]]


def _list_quotes(pricing: Any, instance: str, region: str) -> Iterator[Quote]:
    """Yield on-demand and reserved quotes from the Price List; none when ``instance`` is not sold there.

    Reserved is the standard lease of each length, without upfront fee where that is sold, else the cheapest.
    """
    wanted = {
        "instanceType": instance, "regionCode": region, "operatingSystem": "Linux", "tenancy": "Shared",
        "preInstalledSw": "NA", "capacitystatus": "Used",
    }  # fmt: skip
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    texts = _pages(pricing, "get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters)
    products, what = list(map(json.loads, texts)), f"{instance} in {region}"
    if products and not any(product.get("terms", {}).get("OnDemand") for product in products):
        skus = ", ".join(str(product.get("product", {}).get("sku")) for product in products)
        raise UserError(
            f"AWS's price list has no OnDemand terms for {what} (SKU {skus}): ask without this instance"
        )
    found = {sku: usd for sku, usd, _ in _hourly(products, "OnDemand", what)}
    if len(set(found.values())) > 1:
        each = ", ".join(f"{sku}: {usd:g}" for sku, usd in sorted(found.items()))
        raise UserError(f"AWS's price list has several prices for {what} ({each}): which one is meant?")
    for sku, usd in list(found.items())[:1]:
        yield Quote(instance, "on_demand", usd, f"AWS Price List, SKU {sku}", "Linux, shared tenancy")
    terms = list(_hourly(products, "Reserved", what))
    for basis, lease in _LEASES.items():
        offers = [
            (option != "No Upfront", usd, sku, option)
            for sku, usd, attributes in terms
            if (attributes.get("LeaseContractLength"), attributes.get("OfferingClass")) == (lease, "standard")
            for option in [attributes.get("PurchaseOption", "")]
        ]
        if offers:
            _, usd, sku, option = min(offers)
            yield Quote(instance, basis, usd, f"AWS Price List, SKU {sku}", f"standard, {option}, effective")


def _hourly(products: list[dict], kind: str, what: str) -> Iterator[tuple[str, float, dict]]:
    """Yield SKU, effective USD per hour and attributes of each priced term; upfront fees are spread."""
    for product in products:
        for term in product.get("terms", {}).get(kind, {}).values():
            attributes = term.get("termAttributes", {})
            years = int(attributes.get("LeaseContractLength", "1yr").removesuffix("yr"))
            usd = 0.0
            for dimension in term["priceDimensions"].values():
                if "USD" not in dimension["pricePerUnit"]:
                    currency = ", ".join(dimension["pricePerUnit"])
                    raise UserError(f"AWS prices {what} in {currency}: only prices in USD are kept")
                each = float(dimension["pricePerUnit"]["USD"])
                usd += each if dimension["unit"] == "Hrs" else each / (years * _HOURS_PER_YEAR)
            if usd > 0:  # zero is a reservation placeholder, not a price
                yield product["product"]["sku"], usd, attributes


def _spot_quotes(ec2: Any, instance: str, now: datetime, window_days: int) -> Iterator[Quote]:
    """Yield the lowest of the availability zones' median spot prices over the last ``window_days`` days."""
    asked = {"InstanceTypes": [instance], "ProductDescriptions": ["Linux/UNIX"], "EndTime": now}
    asked["StartTime"] = now - timedelta(days=window_days)
    zones: dict[str, list[float]] = {}
    for item in _pages(ec2, "describe_spot_price_history", "SpotPriceHistory", **asked):
        zones.setdefault(item["AvailabilityZone"], []).append(float(item["SpotPrice"]))
    if zones:
        usd, zone = min((median(values), zone) for zone, values in zones.items())
        note = f"median of {len(zones[zone])} prices in {window_days} days in {zone}, the cheapest zone"
        yield Quote(instance, "spot", usd, "AWS EC2 spot price history", note)


def _block_quotes(ec2: Any, instance: str) -> Iterator[Quote]:
    """Yield the cheapest capacity block of a day on offer: upfront fee over instances and hours."""
    asked = {"InstanceType": instance, "InstanceCount": 1, "CapacityDurationHours": _BLOCK_HOURS}
    offers = []
    for offer in _pages(ec2, "describe_capacity_block_offerings", "CapacityBlockOfferings", **asked):
        if (currency := offer["CurrencyCode"]) != "USD":
            raise UserError(f"AWS offers {instance} in {currency}: only prices in USD are kept")
        hours = offer["InstanceCount"] * offer["CapacityBlockDurationHours"]
        offers.append((float(offer["UpfrontFee"]) / hours, offer["CapacityBlockOfferingId"]))
    if offers:
        usd, name = min(offers)
        note = f"cheapest of {len(offers)} offers of {_BLOCK_HOURS} hours; operating system fee not included"
        yield Quote(instance, "capacity_block", usd, f"AWS EC2 capacity block offering {name}", note)


def _write(path: Path, quotes: pd.DataFrame) -> None:
    """Add the quotes as rows; a row of the same day that is already there is replaced."""
    rows = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    rows = rows.rename(columns=str.strip).apply(lambda column: column.str.strip())
    hardware = rows.drop_duplicates("instance")[["instance", *HARDWARE]]
    new = quotes.assign(usd_per_hour=[f"{round(usd, 6)}" for usd in quotes["usd_per_hour"]])
    kept = pd.concat([rows, new.merge(hardware, on="instance")])
    kept = kept.drop_duplicates([*KEY, "as_of"], keep="last").assign(
        order=lambda t: t["basis"].map(BASES.index)
    )
    kept = kept.sort_values(["instance", "region", "order", "as_of"], kind="stable")
    with written_aside(path) as aside:
        kept.to_csv(aside, columns=list(COLUMNS), index=False, lineterminator="\n")
        read_prices(aside)  # what is renamed into place is readable, or nothing changes
