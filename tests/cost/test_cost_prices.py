"""The price table: what it holds, which row is chosen, and what it refuses."""

import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrbench.cost.prices import BASES, COLUMNS, REGIONS, NoPrice, newest, price, read_prices
from cxrbench.study.errors import UserError

HEADER = ",".join(COLUMNS)
GOOD = "g5.xlarge,us-east-1,on_demand,1.006,A10G,1,24,1,4,16,a page,2026-07-20,"
TRN = "trn1.2xlarge,us-east-1,on_demand,1.34375,Trainium,1,32,2,8,32,a page,2026-07-20,"


def written(tmp_path, *lines, header=HEADER):
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_shipped_table_is_complete(prices):
    assert set(prices["basis"]) == set(BASES)
    assert {
        "trn1.2xlarge",
        "trn1.32xlarge",
        "trn2.48xlarge",
        "g5.xlarge",
        "p4d.24xlarge",
        "p5.48xlarge",
    } <= set(prices["instance"])
    undated = prices[prices["as_of"] == ""]
    assert (undated["note"] != "").all(), "an undated price says why"
    on_demand = prices[(prices["instance"] == "p4d.24xlarge") & (prices["basis"] == "on_demand")]
    assert sorted(on_demand["usd_per_hour"]) == [21.957642, 21.957642, 32.7726]


def test_cores_have_one_meaning(prices):
    cores = prices.drop_duplicates("instance").set_index("instance")["cores"]
    assert cores["trn1.2xlarge"] == 2 and cores["trn1.32xlarge"] == 32 and cores["trn2.48xlarge"] == 128
    assert cores["g5.48xlarge"] == 8 and cores["c7a.large"] == 2


def test_regions_are_amazons():
    botocore = pytest.importorskip("botocore.session")
    known = botocore.get_session().get_available_regions("ec2")
    assert set(known) <= set(REGIONS), "AWS opened a region: add it to REGIONS"


def test_newest_price_up_to_a_date(prices):
    at = ("p4d.24xlarge", "us-east-1", "on_demand")
    assert price(prices, *at)["as_of"] == "2026-07-20"
    assert price(prices, *at, "2025-08-03")["usd_per_hour"] == 32.7726
    assert price(prices, *at, "2025-08-04")["usd_per_hour"] == 21.957642
    with pytest.raises(UserError, match="oldest row is of 2025-04-28"):
        price(prices, *at, "2025-04-27")


def test_a_dated_price_beats_an_undated_one(tmp_path):
    undated = GOOD.replace("1.006", "0.9").replace("2026-07-20", "")
    table = read_prices(written(tmp_path, undated, GOOD))
    assert price(table, "g5.xlarge", "us-east-1", "on_demand")["usd_per_hour"] == 1.006
    assert price(table, "g5.xlarge", "us-east-1", "on_demand", "2020-01-01")["usd_per_hour"] == 0.9
    assert list(newest(table)["usd_per_hour"]) == [1.006]
    assert list(newest(table, "undated")["usd_per_hour"]) == [0.9]
    assert price(table, "g5.xlarge", "us-east-1", "on_demand", "undated")["usd_per_hour"] == 0.9


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (("g5.xlage", "us-east-1", "spot"), r"instance 'g5\.xlage'.*did you mean 'g5\.xlarge'"),
        (
            ("g5.xlarge", "us-est-1", "spot"),
            r"for g5\.xlarge with region 'us-est-1'.*did you mean 'us-east-1'",
        ),
        (
            ("p3.2xlarge", "us-east-1", "spot"),
            r"p3\.2xlarge in us-east-1 with basis 'spot' \(known: on_demand\)",
        ),
        (("g5.xlarge", "us-east-1", "spot", "July"), "'July' is not a date"),
    ],
)
def test_an_unknown_price_offers_the_nearest(prices, wanted, message):
    with pytest.raises(UserError, match=message):
        price(prices, *wanted)


def test_an_unreadable_date_is_refused_for_a_whole_table(prices):
    with pytest.raises(UserError, match="'2026' is not a date"):
        newest(prices, "2026")


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        (GOOD.replace("1.006", "-1.006"), "usd_per_hour", "above 0"),
        (GOOD.replace("1.006", "0"), "usd_per_hour", "above 0"),
        (GOOD.replace("1.006", ""), "usd_per_hour", "is empty"),
        (GOOD.replace("1.006", "nan"), "usd_per_hour", "finite"),
        (GOOD.replace("1.006", "inf"), "usd_per_hour", "finite"),
        (GOOD.replace("1.006", "1.006 EUR"), "usd_per_hour", "not a number"),
        (GOOD.replace("1.006", "€1.006"), "usd_per_hour", "not a number"),
        (GOOD.replace("1.006", "1..6"), "usd_per_hour", "not a number"),
        (GOOD.replace("us-east-1", "us-est-1"), "region", "did you mean"),
        (GOOD.replace("on_demand", "ondemand"), "basis", "did you mean 'on_demand'"),
        (GOOD.replace("2026-07-20", "20 July"), "as_of", "not a date"),
        (GOOD.replace("2026-07-20", "20260720"), "as_of", "not a date"),
        (GOOD.replace("a page", ""), "source", "is empty"),
        (GOOD.replace("g5.xlarge", "g5"), "instance", "the form of g5.xlarge"),
        (GOOD.replace(",1,4,16", ",,4,16"), "cores", "is empty"),
    ],
)
def test_a_bad_cell_is_named_with_file_line_and_column(tmp_path, line, column, message):
    path = written(tmp_path, TRN, line)
    with pytest.raises(UserError) as error:
        read_prices(path)
    assert str(error.value).startswith(f"{path}:3: column {column}: ")
    assert message in str(error.value)


def test_lines_are_counted_in_the_file_not_in_rows(tmp_path):
    two_lines = GOOD.replace("a page", '"a\npage"')
    path = written(tmp_path, two_lines, "", TRN.replace("1.34375", "x"))
    with pytest.raises(UserError, match=r"prices\.csv:5: column usd_per_hour"):
        read_prices(path)


def test_a_byte_order_mark_is_forgiven(tmp_path):
    path = written(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_prices(path)) == 1


def test_two_prices_for_one_key_and_date(tmp_path):
    path = written(tmp_path, GOOD, TRN, GOOD.replace("1.006", "1.1"))
    with pytest.raises(UserError, match=r"prices\.csv:4: column as_of: second row .*\(first in line 2\)"):
        read_prices(path)


def test_one_instance_has_one_hardware(tmp_path):
    other = GOOD.replace(",1,4,16", ",2,4,16").replace("2026-07-20", "2026-07-21")
    with pytest.raises(
        UserError, match=r"prices\.csv:3: column cores: g5\.xlarge has '2.0' here and '1.0' in line 2"
    ):
        read_prices(written(tmp_path, GOOD, other))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            HEADER.replace("usd_per_hour", "eur_per_hour"),
            r":1: column 4: unknown column 'eur_per_hour'; did you mean",
        ),
        (HEADER.replace(",note", ""), r":1: column note is missing"),
        (HEADER + ",note", r":1: column 14: 'note' occurs twice"),
    ],
)
def test_a_wrong_header(tmp_path, header, message):
    with pytest.raises(UserError, match=message):
        read_prices(written(tmp_path, GOOD, header=header))


def test_cells_and_header_differ_in_number(tmp_path):
    with pytest.raises(UserError, match=r":2: column 14: 14 cells where the header has 13; quote cells"):
        read_prices(written(tmp_path, GOOD + ",more"))


def test_no_table_and_an_empty_one(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        read_prices(tmp_path / "absent.csv")
    with pytest.raises(UserError, match="there are no prices"):
        read_prices(written(tmp_path))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"binary\.csv:1:1: byte 0xff is not UTF-8"):
        read_prices(tmp_path / "binary.csv")


dates = st.sampled_from(["", "2025-01-01", "2025-06-30", "2026-01-01"])
keys = st.tuples(
    st.sampled_from(["a.large", "b.large"]), st.just("us-east-1"), st.sampled_from(BASES[:2]), dates
)


@settings(deadline=None)
@given(st.sets(keys, min_size=1), st.sampled_from([None, "2025-01-01", "2025-12-31"]))
def test_newest_is_the_last_date_that_qualifies(rows, as_of):
    table = pd.DataFrame(
        [(*row, i) for i, row in enumerate(sorted(rows))], columns=[*COLUMNS[:3], "as_of", "usd"]
    )
    found = {(*row[:3],): row.as_of for row in newest(table, as_of).itertuples(index=False)}
    for key in {row[:3] for row in rows}:
        allowed = [d for *k, d in rows if tuple(k) == key and (as_of is None or d <= as_of)]
        assert found.get(key) == (max(allowed) if allowed else None)


def test_pricing_needs_neither_torch_nor_what_is_slow_to_import():
    code = (
        "import sys, cxrbench.cost.tables, cxrbench.cost.porting, cxrbench.cost.refresh, cxrbench.claims;"
        "print([m for m in ('torch', 'scipy', 'matplotlib', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (("p3.2xlarge", "us-east-1", "spot"), "no price for p3.2xlarge in us-east-1 with basis 'spot'"),
        (("p4d.24xlarge", "us-east-1", "on_demand", "2025-04-27"), "no price of p4d.24xlarge (us-east-1, on"),
    ],
)
def test_a_missing_price_carries_its_reason_apart_from_the_remedy(prices, wanted, reason):
    with pytest.raises(NoPrice) as caught:
        price(prices, *wanted)
    assert caught.value.reason.startswith(reason) and "prices.csv" not in caught.value.reason
    assert str(caught.value).startswith(caught.value.reason + ": ") and "prices.csv" in str(caught.value)
