"""Fetch today's prices from AWS and show what changed; the price table is written on request only.

A refreshed price is a new row with today's date: older rows stay.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.cost.prices import BASES, COLUMNS, HARDWARE, KEY, REGIONS, newest, read_prices
from cxrbench.study.errors import UserError, nearest
from cxrbench.study.files import written_aside
from cxrbench.study.readers import read_cells

DIFFERENCE = ["instance", "region", "basis", "old_usd", "old_as_of", "new_usd", "change_percent", "source"]
_HOURS_PER_YEAR = 8760
_BLOCK_HOURS = 24
# Of the Price List, by basis: the kind of the terms, and attributes of the wanted ones.
_TERMS: dict[str, tuple[str, dict[str, str]]] = {
    "on_demand": ("OnDemand", {}),
    "reserved_1y": ("Reserved", {"LeaseContractLength": "1yr", "OfferingClass": "standard"}),
    "reserved_3y": ("Reserved", {"LeaseContractLength": "3yr", "OfferingClass": "standard"}),
}
_PRODUCT = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
}  # fmt: skip


class Quote(NamedTuple):
    """A price from AWS: USD per instance-hour, and how it was read."""

    instance: str
    basis: str
    usd_per_hour: float
    source: str
    note: str


def refresh(
    path: Path,
    region: str = "us-east-1",
    instances: Iterable[str] | None = None,
    write: bool = False,
    window_days: int = 7,
    clients: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Return today's prices of ``instances`` (None: those ``path`` has in ``region``) beside the known ones,
    and the instances that are not sold there. ``clients``: boto3's, by service."""
    prices = read_prices(path)
    now, wanted = now or datetime.now(UTC), _wanted(prices, region, instances)
    blocks = set(prices.loc[prices["basis"] == "capacity_block", "instance"])
    found: list[Quote] = []
    with _one_line(path):
        clients = clients or _clients(region)
        for instance in wanted:
            found += _list_quotes(clients["pricing"], instance, region)
            found += _spot_quotes(clients["ec2"], instance, now, window_days)
            found += _block_quotes(clients["ec2"], instance) if instance in blocks else []
    quotes = pd.DataFrame(found, columns=list(Quote._fields)).assign(region=region)
    if write and found:
        _write(path, quotes.assign(as_of=now.date().isoformat()))
    names = {"usd_per_hour": "old_usd", "as_of": "old_as_of"}
    known = newest(prices)[[*KEY, *names]].rename(columns=names)
    both = quotes.rename(columns={"usd_per_hour": "new_usd"}).merge(known, how="left", on=KEY)
    both["change_percent"] = (both["new_usd"] / both["old_usd"] - 1) * 100
    not_sold = [name for name in wanted if name not in set(quotes["instance"])]
    return both.fillna({"old_as_of": ""})[DIFFERENCE], not_sold


def _wanted(prices: pd.DataFrame, region: str, instances: Iterable[str] | None) -> list[str]:
    if region not in REGIONS:
        raise UserError(f"unknown region '{region}'{nearest(region, REGIONS)}")
    on_ec2 = prices[~prices["instance"].str.startswith("ml.")]
    if instances is None:
        return sorted(set(on_ec2.loc[on_ec2["region"] == region, "instance"]))
    wanted = list(dict.fromkeys(instances))
    known = sorted(set(on_ec2["instance"]))
    for name in (name for name in wanted if name not in known):
        raise UserError(
            f"instance '{name}' is not in the price table{nearest(name, known)}: add a first row with "
            "its accelerators, memory and cores, which AWS's price list does not give reliably"
        )
    return wanted


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
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


def _clients(region: str) -> dict[str, Any]:
    import boto3
    from botocore.config import Config

    brief = Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 2})
    # the Price List service answers in three regions only, for all regions
    regions = {"pricing": "us-east-1", "ec2": region}
    return {name: boto3.client(name, region_name=at, config=brief) for name, at in regions.items()}


def _pages(client: Any, operation: str, items: str, **asked: Any) -> list[Any]:
    """Return the ``items`` of all pages of an answer."""
    return [item for page in client.get_paginator(operation).paginate(**asked) for item in page[items]]


def _list_quotes(pricing: Any, instance: str, region: str) -> Iterator[Quote]:
    """Yield on-demand and reserved quotes from the Price List; none when ``instance`` is not sold there.

    Reserved is the standard lease of each length, without upfront fee where that is sold, else the cheapest.
    """
    wanted = _PRODUCT | {"instanceType": instance, "regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    texts = _pages(pricing, "get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters)
    products, what = list(map(json.loads, texts)), f"{instance} in {region}"
    if products and not any(product.get("terms", {}).get("OnDemand") for product in products):
        skus = ", ".join(str(product.get("product", {}).get("sku")) for product in products)
        raise UserError(
            f"AWS's price list has no OnDemand terms for {what} (SKU {skus}): ask without this instance"
        )
    for basis, (kind, wanted_terms) in _TERMS.items():
        offers = [
            (term.get("PurchaseOption") != "No Upfront", usd, sku, term.get("PurchaseOption", ""))
            for sku, usd, term in _hourly(products, kind, what)
            if wanted_terms.items() <= term.items()
        ]
        if kind == "OnDemand" and len({usd for _, usd, *_ in offers}) > 1:
            each = ", ".join(f"{sku}: {usd:g}" for _, usd, sku, _ in sorted(offers))
            raise UserError(
                f"AWS's price list has several prices for {what} ({each}); add the right one by hand"
            )
        for _, usd, sku, option in sorted(offers)[:1]:
            note = "Linux, shared tenancy" if kind == "OnDemand" else f"standard, {option}, effective"
            yield Quote(instance, basis, usd, f"AWS Price List, SKU {sku}", note)


def _hourly(products: list[dict], kind: str, what: str) -> Iterator[tuple[str, float, dict]]:
    """Yield SKU, effective USD per hour and attributes of each priced term; upfront fees are spread."""
    terms = [(some, term) for some in products for term in some.get("terms", {}).get(kind, {}).values()]
    for product, term in terms:
        attributes = term.get("termAttributes", {})
        years = int(attributes.get("LeaseContractLength", "1yr").removesuffix("yr"))
        usd = 0.0
        for dimension in term["priceDimensions"].values():
            _in_usd(f"AWS prices {what}", dimension["pricePerUnit"])
            each = float(dimension["pricePerUnit"]["USD"])
            usd += each if dimension["unit"] == "Hrs" else each / (years * _HOURS_PER_YEAR)
        if usd > 0:  # zero is a reservation placeholder, not a price
            yield product["product"]["sku"], usd, attributes


def _in_usd(what: str, currencies: Iterable[str]) -> None:
    if "USD" not in currencies:
        raise UserError(f"{what} in {', '.join(currencies)}: only prices in USD are kept")


def _spot_quotes(ec2: Any, instance: str, now: datetime, window_days: int) -> Iterator[Quote]:
    """Yield the lowest of the availability zones' median spot prices over the last ``window_days`` days."""
    asked = {"InstanceTypes": [instance], "ProductDescriptions": ["Linux/UNIX"], "EndTime": now}
    asked["StartTime"] = now - timedelta(days=window_days)
    zones: dict[str, list[float]] = {}
    for item in _pages(ec2, "describe_spot_price_history", "SpotPriceHistory", **asked):
        zones.setdefault(item["AvailabilityZone"], []).append(float(item["SpotPrice"]))
    for usd, zone in sorted((median(values), zone) for zone, values in zones.items())[:1]:
        note = f"median of {len(zones[zone])} prices in {window_days} days in {zone}, the cheapest zone"
        yield Quote(instance, "spot", usd, "AWS EC2 spot price history", note)


def _block_quotes(ec2: Any, instance: str) -> Iterator[Quote]:
    """Yield the cheapest capacity block of a day on offer: upfront fee over instances and hours."""
    asked = {"InstanceType": instance, "InstanceCount": 1, "CapacityDurationHours": _BLOCK_HOURS}
    offers = []
    for offer in _pages(ec2, "describe_capacity_block_offerings", "CapacityBlockOfferings", **asked):
        _in_usd(f"AWS offers {instance}", [offer["CurrencyCode"]])
        hours = offer["InstanceCount"] * offer["CapacityBlockDurationHours"]
        offers.append((float(offer["UpfrontFee"]) / hours, offer["CapacityBlockOfferingId"]))
    for usd, name in sorted(offers)[:1]:
        note = f"cheapest of {len(offers)} offers of {_BLOCK_HOURS} hours; operating system fee not included"
        yield Quote(instance, "capacity_block", usd, f"AWS EC2 capacity block offering {name}", note)


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
