"""Refreshing prices against answers in AWS's own shape; nothing is written unless told to."""

import json
from datetime import UTC, datetime

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.stub import ANY, Stubber

from conftest import ROOT
from cxrbench.cost.prices import price, read_prices
from cxrbench.cost.refresh import refresh
from cxrbench.study.errors import UserError

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def dimension(usd, unit="Hrs", currency="USD", code="6YS6EN2CT7"):
    """A price dimension with the fields that are read of what the Price List service sends."""
    return {f"SKU.TERM.{code}": {"unit": unit, "description": "x", "pricePerUnit": {currency: usd}}}


def reserved(hourly, length="1yr", option="No Upfront", offering="standard", upfront=None):
    dimensions = dimension(hourly)
    if upfront is not None:
        dimensions |= dimension(upfront, unit="Quantity", code="2TG2D8R56U")
    attributes = {"LeaseContractLength": length, "OfferingClass": offering, "PurchaseOption": option}
    return {"priceDimensions": dimensions, "termAttributes": attributes}


def product(sku, on_demand=None, leases=()):
    """One product as the JSON string that PriceList holds."""
    demand = {f"{sku}.JRTCKXETXF": {"priceDimensions": on_demand, "termAttributes": {}}}
    terms = {"OnDemand": demand} if on_demand else {}
    if leases:
        terms["Reserved"] = {f"{sku}.{number}": lease for number, lease in enumerate(leases)}
    attributes = {"instanceType": "g5.xlarge", "regionCode": "us-east-1", "vcpu": "4"}
    return json.dumps({"product": {"attributes": attributes, "sku": sku}, "terms": terms})


def spot(usd, zone="us-east-1a"):
    return {"AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": NOW}


def block(fee, count=1, currency="USD", name="cbo-1"):
    offer = {"CapacityBlockOfferingId": name, "InstanceCount": count, "CapacityBlockDurationHours": 24}
    return offer | {"UpfrontFee": fee, "CurrencyCode": currency}


@pytest.fixture
def ask(table):
    """Refresh from stubbed answers, pages of products and spot prices, of real boto3 clients.

    A refresh that asks for anything else, or not for all of them, fails.
    """

    def ask(products, spots=([],), blocks=None, write=False, instance="g5.xlarge"):
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        clients = {name: boto3.client(name, **keys) for name in ("pricing", "ec2")}
        pricing, ec2 = map(Stubber, clients.values())
        for number, page in enumerate(products):
            more = {"NextToken": f"page{number + 1}"} if number + 1 < len(products) else {}
            asked = {"ServiceCode": "AmazonEC2", "Filters": ANY} | ({"NextToken": ANY} if number else {})
            pricing.add_response("get_products", {"FormatVersion": "v1", "PriceList": page} | more, asked)
        for number, page in enumerate(spots, start=1):
            more = f"page{number}" if number < len(spots) else ""
            ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": page, "NextToken": more})
        if blocks is not None:
            ec2.add_response("describe_capacity_block_offerings", {"CapacityBlockOfferings": blocks})
        with pricing, ec2:
            found, not_sold = refresh(table, instances=[instance], write=write, clients=clients, now=NOW)
        pricing.assert_no_pending_responses()
        ec2.assert_no_pending_responses()
        return found.set_index("basis"), not_sold

    return ask


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_bytes((ROOT / "data/prices.csv").read_bytes())
    return path


@pytest.fixture
def unchanged(table):
    """Whether the table still has the bytes that it began with."""
    before = table.read_bytes()
    return lambda: table.read_bytes() == before


def test_what_changed_is_shown_and_nothing_is_written(ask, unchanged):
    found, _ = ask([[product("AAA", dimension("1.1066000000"))]], [[spot("0.40"), spot("0.50")]])
    row = found.loc["on_demand"]
    assert (row["old_usd"], row["old_as_of"], row["new_usd"]) == (1.006, "2026-07-20", 1.1066)
    assert row["change_percent"] == pytest.approx(10) and "AAA" in row["source"]
    assert unchanged()


def test_paging_several_skus_and_zero_priced_dimensions(ask):
    placeholder = dimension("0.0000000000") | dimension("0.0000000000", code="OTHER")
    pages = [
        [product("ZERO", placeholder), product("AAA", dimension("1.0060000000"))],
        [product("BBB", dimension("1.0060000000")), product("NOOD", leases=[reserved("0.7")])],
    ]
    spots = [[spot("0.1"), spot("0.5")], [spot("0.9"), spot("0.7", "us-east-1b")]]
    new = ask(pages, spots)[0]["new_usd"]
    assert new["on_demand"] == 1.006
    assert new["spot"] == 0.5, "the median in the cheapest zone, over both pages"


def test_reserved_is_an_effective_rate_of_the_standard_lease(ask):
    leases = [
        reserved("0.0", option="All Upfront", upfront="4380"),
        reserved("0.70"),
        reserved("0.60", offering="convertible"),
        reserved("0.1", length="3yr", option="Partial Upfront", upfront="5256"),
    ]
    new = ask([[product("AAA", dimension("1.006"), leases)]])[0]["new_usd"]
    assert new["reserved_1y"] == pytest.approx(0.70), "no upfront, though all upfront is cheaper"
    assert new["reserved_3y"] == pytest.approx(0.1 + 5256 / 3 / 8760)


def test_capacity_blocks_are_a_fee_over_instances_and_hours(ask):
    def asked(*offers):
        products = [[product("AAA", dimension("55.04"))]]
        return ask(products, blocks=list(offers), instance="p5.48xlarge")[0]["new_usd"]

    assert asked(block("960.0"), block("1440.0", count=2, name="cbo-2"))["capacity_block"] == 30
    assert "capacity_block" not in asked()
    with pytest.raises(UserError, match=r"offers p5\.48xlarge in CNY"):
        asked(block("960.0", currency="CNY"))


def test_written_prices_are_new_rows_of_today_and_old_rows_stay(table, ask):
    before = read_prices(table)
    at = ("g5.xlarge", "us-east-1", "on_demand")
    for usd in (1.2, 1.3):  # a second refresh on one day replaces the first
        ask([[product("AAA", dimension(str(usd)))]], [[spot("0.45")]], write=True)
        after = read_prices(table)
        assert len(after) == len(before) + 2
        assert price(after, *at)["usd_per_hour"] == usd and price(after, *at)["as_of"] == "2026-11-20"
    assert price(after, *at, "2026-11-19")["usd_per_hour"] == 1.006
    assert price(after, "g5.xlarge", "us-east-1", "spot")["as_of"] == "2026-11-20"


def test_an_instance_that_is_not_sold_is_named_and_not_invented(ask, unchanged):
    found, not_sold = ask([[]], write=True, instance="trn2.48xlarge")
    assert not_sold == ["trn2.48xlarge"] and found.empty and unchanged()


@pytest.mark.parametrize(
    ("products", "message"),
    [
        ([product("AAA", leases=[reserved("0.7")])], r"no OnDemand terms for g5\.xlarge .* \(SKU AAA\)"),
        ([product("AAA", dimension("7", currency="CNY"))], "us-east-1 in CNY: only prices in USD"),
        ([product("AAA", dimension("1")), product("BBB", dimension("2"))], "several .*AAA: 1, BBB: 2"),
        (["{not json"], "answer is not understood"),
        ([json.dumps({"terms": {"OnDemand": {"x": {}}}})], "answer is not understood"),
    ],
)
def test_an_answer_that_is_not_understood_changes_nothing(table, ask, products, message, unchanged):
    with pytest.raises(UserError, match=message) as error:
        ask([products], write=True)
    assert "\n" not in str(error.value) and str(error.value).count(f"{table} is unchanged") == 1
    assert unchanged()


class Unreachable:
    """A client that fails as boto3 does without credentials or network."""

    def __init__(self, error):
        self.error = error

    def get_paginator(self, _):
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoCredentialsError(), "credentials"),
        (EndpointConnectionError(endpoint_url="https://x"), "https://x"),
        (
            ClientError({"Error": {"Code": "AccessDenied", "Message": "not yours"}}, "GetProducts"),
            "not yours",
        ),
    ],
)
def test_without_credentials_network_or_permission_one_line_and_nothing_changed(
    table, error, message, unchanged
):
    with pytest.raises(UserError, match=rf"AWS could not be asked .*{message}.* is unchanged") as refused:
        refresh(table, write=True, clients=dict.fromkeys(("pricing", "ec2"), Unreachable(error)))
    assert "\n" not in str(refused.value) and unchanged()


def test_a_fault_of_our_own_is_not_dressed_up_as_amazons(table):
    broken = Unreachable(AttributeError("a bug"))
    with pytest.raises(AttributeError):
        refresh(table, clients=dict.fromkeys(("pricing", "ec2"), broken))


def test_unknown_instances_and_regions_are_refused_before_asking(table):
    with pytest.raises(UserError, match=r"'g5\.xlage' is not in the price table.*did you mean 'g5\.xlarge'"):
        refresh(table, instances=["g5.xlage"], clients={})
    with pytest.raises(UserError, match="unknown region 'us-est-1'"):
        refresh(table, region="us-est-1", clients={})
