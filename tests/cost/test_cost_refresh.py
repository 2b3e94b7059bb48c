"""Refreshing prices from a server here that has AWS's price list, or a small catalogue of SkyPilot's form;
nothing is written unless told to."""

import csv
import io
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler

import pytest

from conftest import ROOT, must_work, serving
from cxrbench.common.errors import UserError
from cxrbench.cost.prices import price, read_prices
from cxrbench.cost.refresh import refresh

HEAD = [
    "SKU", "OfferTermCode", "TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Tenancy",
    "Operating System", "CapacityStatus", "Pre Installed S/W",
]  # fmt: skip
AT = ("g5.xlarge", "us-east-1", "on_demand")


def offer(usd: str, sku: str = "AAA", **changes: str) -> list[str]:
    """A row of the list, of which the columns that are read are here."""
    values = dict(zip(HEAD, [sku, "JRTC", "OnDemand", "Hrs", usd, "USD", "g5.xlarge"], strict=False))
    values |= {"Tenancy": "Shared", "Operating System": "Linux"}
    values |= {"CapacityStatus": "Used", "Pre Installed S/W": "NA"}
    return list((values | {key.replace("_", " "): value for key, value in changes.items()}).values())


def text(*rows: list[str]) -> str:
    written = io.StringIO()
    about = [["FormatVersion", "v1.0"], ["Disclaimer", 'see "us",\nplease'], ["Version", "20261120"]]
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([*about, HEAD, *rows])
    return written.getvalue()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_bytes((ROOT / "data/prices.csv").read_bytes())
    return path


@pytest.fixture
def listed():
    """The address of a list with the given text; ``cut``: the connection ends that many bytes early."""
    answer = {"text": "", "cut": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer["text"].encode()
            self.send_response(200 if self.path == "/us-east-1/index.csv" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) - answer["cut"]])

    with serving(Handler) as address:

        def at(body: str, cut: int = 0) -> str:
            answer.update(text=body, cut=cut)
            return address + "/{region}/index.csv"

        yield at


def test_what_changed_is_shown_and_nothing_is_written(table, listed):
    other = [offer("9", TermType="Reserved"), offer("9", Tenancy="Dedicated"), offer("0.0", "ZERO")]
    others = [offer("9", Operating_System="Windows"), offer("9", Unit="Quantity"), offer("1.1066", "BBB")]
    before = table.read_bytes()
    rows, not_sold = refresh(table, "us-east-1", ["g5.xlarge", "trn2.48xlarge"], False, listed(
        text(offer("1.1066000000"), *other, *others)
    ))  # fmt: skip
    (row,) = rows.to_dict("records")
    assert (row["old_usd"], row["old_as_of"], row["new_usd"]) == (1.006, "2026-07-20", 1.1066)
    assert row["change_percent"] == pytest.approx(10) and row["source"] == "AWS Price List, SKU AAA"
    assert not_sold == ["trn2.48xlarge"] and table.read_bytes() == before


def test_written_prices_are_new_rows_of_today_and_old_rows_stay(table, listed, monkeypatch):
    before, today = read_prices(table), datetime.now(UTC).date().isoformat()
    refresh(table, write=True, price_list=listed(text(offer("1.2"))))  # the second on one day replaces it
    words = ("cost", "refresh", "--prices", table, "--write", "--price-list", listed(text(offer("1.3"))))
    monkeypatch.setenv("TZ", "WEST+24")  # where it is still yesterday
    must_work(*words)
    after = read_prices(table)
    assert len(after) == len(before) + 1
    assert price(after, *AT)["usd_per_hour"] == 1.3 and price(after, *AT)["as_of"] >= today
    assert price(after, *AT, "2026-07-20")["usd_per_hour"] == 1.006


@pytest.mark.parametrize(
    ("body", "cut", "message"),
    [
        (text(offer("1"), offer("2", "BBB")), 0, r"several prices of g5\.xlarge \(AAA: 1, BBB: 2\)"),
        (
            text(offer("7", Currency="CNY")),
            0,
            r"AWS prices g5\.xlarge in CNY: leave it out, because only prices in USD",
        ),
        (text(offer("dear")), 0, "is not understood"),
        ("<html>moved</html>", 0, r"no line has the columns of AWS's list, such as SKU\).*: give AWS's list"),
        (text(offer("1")), 40, "could not be read"),
    ],
)
def test_a_list_that_is_not_understood_changes_nothing(table, listed, body, cut, message):
    before = table.read_bytes()
    with pytest.raises(UserError, match=message) as error:
        refresh(table, write=True, price_list=listed(body, cut))
    assert "\n" not in str(error.value) and str(error.value).count(f"{table} is unchanged") == 1
    assert table.read_bytes() == before


def test_without_network_or_list_one_line_says_so(table, listed):
    missing = listed("").replace("index", "nothing")
    for address in (missing, "http://127.0.0.1:9/{region}"):
        with pytest.raises(
            UserError, match=r"could not be read .* is unchanged: check the network"
        ) as refused:
            refresh(table, price_list=address)
        assert "\n" not in str(refused.value)


def test_unknown_instances_and_regions_are_refused_before_asking(table):
    with pytest.raises(UserError, match=r"'g5\.xlage' is not in the price table.*did you mean 'g5\.xlarge'"):
        refresh(table, instances=["g5.xlage"], price_list="nowhere")
    with pytest.raises(UserError, match=r"AWS's list is of one region: name it .* --price-list skypilot"):
        refresh(table, region="all")
    with pytest.raises(UserError, match=r"--dated: 'soon' is not a date"):
        refresh(table, price_list="nowhere", dated="soon")
    with pytest.raises(UserError, match="unknown region 'us-est-1'"):
        refresh(table, region="us-est-1", price_list="nowhere")


# ------------------------------------------------------------------ SkyPilot's catalogue

CATALOGUE = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch
g5.xlarge,A10G,1.0,4.0,16.0,"{'Gpus': [{'Name': 'A10G'}]}",1.1,0.50,us-east-1,use1-az1,x86_64
g5.xlarge,A10G,1.0,4.0,16.0,"{'Gpus': [{'Name': 'A10G'}]}",1.1,0.45,us-east-1,use1-az2,x86_64
g5.xlarge,A10G,1.0,4.0,16.0,,1.258,,eu-central-1,euc1-az1,x86_64
trn2.3xlarge,Trainium2,1.0,12.0,128.0,,,2.5,ap-southeast-4,apse4-az1,x86_64
p4d.24xlarge,A100,8.0,96.0,1152.0,,21.957642,7.5,us-east-1,use1-az6,x86_64
p4d.24xlarge,A100,8.0,96.0,1152.0,,27.5,2.5,us-east-1,use1-atl2-az1,x86_64
x9.huge,,,4.0,16.0,,9.9,9.9,us-east-1,use1-az1,x86_64
"""
DAY = "2026-11-20"


def quoted(table, source, *, region="all", write=True, dated=DAY):
    rows, _ = refresh(table, region, write=write, price_list=str(source), dated=dated)
    return {(row.instance, row.region, row.basis): row.new_usd for row in rows.itertuples()}


def test_a_catalogue_of_all_regions_gives_on_demand_and_the_cheapest_zone_of_spot(table, listed):
    before = read_prices(table)
    found = quoted(table, listed(CATALOGUE).replace("{region}", "us-east-1"))
    assert found == {
        ("g5.xlarge", "eu-central-1", "on_demand"): 1.258,
        ("g5.xlarge", "us-east-1", "on_demand"): 1.1,
        ("g5.xlarge", "us-east-1", "spot"): 0.45,
        ("p4d.24xlarge", "us-east-1", "on_demand"): 21.957642,
        ("p4d.24xlarge", "us-east-1", "spot"): 7.5,
        ("trn2.3xlarge", "ap-southeast-4", "spot"): 2.5,
    }
    after = read_prices(table)
    assert len(after) == len(before) + len(found), "older rows stay"
    spot = price(after, "g5.xlarge", "us-east-1", "spot")
    assert (spot["usd_per_hour"], spot["as_of"]) == (0.45, DAY) and "cheapest" in spot["note"]
    assert price(after, "g5.xlarge", "eu-central-1", "on_demand")["cores"] == 1


def test_a_local_zone_is_not_its_region(table, listed):
    """The cheapest spot price of B200 in us-east-1 was that of a Local Zone in another city."""
    found = quoted(table, listed(CATALOGUE).replace("{region}", "us-east-1"))
    of_region = [found["p4d.24xlarge", "us-east-1", basis] for basis in ("on_demand", "spot")]
    assert of_region == [21.957642, 7.5]
    by_name = CATALOGUE.replace("use1-atl2-az1", "us-east-1-atl-2a").replace("use1-az", "us-east-1")
    found = quoted(table, listed(by_name).replace("{region}", "us-east-1"), write=False)
    assert (
        found["p4d.24xlarge", "us-east-1", "spot"] == 7.5 and found["g5.xlarge", "us-east-1", "spot"] == 0.45
    )


def test_a_catalogue_may_be_a_file_and_then_needs_its_date(table, tmp_path):
    file = tmp_path / "vms.csv"
    file.write_text(CATALOGUE)
    words = ("cost", "refresh", "--prices", table, "--write", "--price-list", file, "--region", "us-east-1")
    must_work(*words, "--dated", DAY)
    everywhere = (*words[:-1], "all", "g6.xlarge", "g5.xlarge", "--dated", DAY)
    said = must_work(*everywhere).stderr
    assert "the price list has no price of g6.xlarge in any region" in said
    file_of_aws = tmp_path / "index.csv"
    file_of_aws.write_text(text(offer("1")))
    with pytest.raises(UserError, match="SkyPilot's, which alone has all regions"):
        refresh(table, "all", price_list=str(file_of_aws), dated=DAY)
    assert price(read_prices(table), *AT)["usd_per_hour"] == 1.1
    before = table.read_bytes()
    with pytest.raises(UserError, match="add --dated YYYY-MM-DD"):
        refresh(table, write=True, price_list=str(file))
    with pytest.raises(UserError, match="2999-01-01 is in the future; name the day that the prices are of"):
        refresh(table, write=True, price_list=str(file), dated="2999-01-01")
    with pytest.raises(UserError, match=r"could not be read .*nothing\.csv.* is unchanged"):
        refresh(table, write=True, price_list=str(tmp_path / "nothing.csv"), dated=DAY)
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",SpotPrice,", ",Spot,", "its first line has no column SpotPrice"),
        (",1.1,0.45,", ",dear,0.45,", "is not understood"),
        (",1.1,0.45,", ",inf,0.45,", "Price of g5.xlarge in us-east-1 is inf"),
        (",1.1,0.45,", ",1.2,0.45,", "two prices on demand in us-east-1: 1.1 and 1.2"),
    ],
)
def test_a_catalogue_that_is_not_understood_changes_nothing(table, listed, old, new, message):
    before = table.read_bytes()
    with pytest.raises(UserError, match=message):
        quoted(table, listed(CATALOGUE.replace(old, new)).replace("{region}", "us-east-1"))
    assert table.read_bytes() == before


def test_a_catalogue_that_breaks_off_changes_nothing(table, listed):
    before = table.read_bytes()
    with pytest.raises(UserError, match="could not be read"):
        quoted(table, listed(CATALOGUE, cut=60).replace("{region}", "us-east-1"))
    assert table.read_bytes() == before
