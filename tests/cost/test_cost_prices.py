"""The price table: what it holds, which row is chosen, and what it refuses."""

import sys

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ran
from cxrbench.common.errors import UserError
from cxrbench.cost.prices import BASES, COLUMNS, REGIONS, NoPrice, newest, price, read_prices, regions

HEADER = ",".join(COLUMNS)
GOOD = "g5.xlarge,us-east-1,on_demand,1.006,A10G,1,24,1,4,16,a page,2026-07-20,,,"
TRN = "trn1.2xlarge,us-east-1,on_demand,1.34375,Trainium,1,32,2,8,32,a page,2026-07-20,,,"


def written(tmp_path, *lines):
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def test_shipped_table_is_complete(prices):
    assert set(prices["basis"]) == set(BASES)
    assert (prices.loc[prices["as_of"] == "", "note"] != "").all(), "an undated price says why"
    cores = prices.drop_duplicates("instance").set_index("instance")["cores"]
    assert cores["trn1.2xlarge"] == 2 and cores["trn1.32xlarge"] == 32 and cores["trn2.48xlarge"] == 128
    assert cores["g5.48xlarge"] == 8 and cores["c7a.large"] == 2


@pytest.mark.parametrize(
    ("instance", "basis", "region", "date"),
    [
        ("p5.48xlarge", "capacity_block", "us-east-1", "2026-07-22"),
        ("ml.trn1.32xlarge", "sagemaker", "us-east-1 (assumed)", "undated"),
        ("trn1.32xlarge", "reserved_3y", "us-east-1 (assumed)", "undated"),
        ("trn1.32xlarge", "on_demand", "us-east-1", "2026-07-20"),
    ],
)
def test_what_a_source_does_not_state_is_shown_as_such(prices, instance, basis, region, date):
    rows = newest(prices, instance=instance, region="us-east-1", basis=basis)
    assert (regions(rows).item(), rows["as_of"].item()) == (region, date)


def test_a_block_of_an_older_page_says_until_when_it_was_listed(prices):
    rows = newest(prices, "2025-06-01", instance="p5.48xlarge", region="us-east-1", basis="capacity_block")
    assert rows["as_of"].item() == "until 2025-01-01"


def test_regions_are_amazons():
    botocore = pytest.importorskip("botocore.session")
    known = botocore.get_session().get_available_regions("ec2")
    assert set(known) <= set(REGIONS), "AWS opened a region: add it to REGIONS"


def test_a_dated_price_beats_an_undated_one(tmp_path):
    undated = GOOD.replace("1.006", "0.9").replace("2026-07-20", "")
    table = read_prices(written(tmp_path, undated, GOOD))
    for as_of, usd in ((None, 1.006), ("2020-01-01", 0.9), ("undated", 0.9)):
        assert price(table, "g5.xlarge", "us-east-1", "on_demand", as_of)["usd_per_hour"] == usd
        assert list(newest(table, as_of)["usd_per_hour"]) == [usd]


@pytest.mark.parametrize(
    ("wanted", "reason", "remedy"),
    [
        ("g5.xlage us-east-1 spot", "no price with instance 'g5.xlage'", "did you mean 'g5.xlarge'"),
        ("g5.xlarge us-est-1 spot", "no price for g5.xlarge with region 'us-est-1'", "mean 'us-east-1'"),
        (
            "p3.2xlarge us-east-1 spot",
            "no price for p3.2xlarge in us-east-1 with basis 'spot' (known: on_demand)",
            "add a row to prices.csv",
        ),
        (
            "p4d.24xlarge us-east-1 on_demand 2025-04-27",
            "no price of p4d.24xlarge (us-east-1, on_demand) up to 2025-04-27",
            "oldest row is of 2025-04-28",
        ),
    ],
)
def test_a_missing_price_carries_its_reason_apart_from_the_remedy(prices, wanted, reason, remedy):
    with pytest.raises(NoPrice) as caught:
        price(prices, *wanted.split())
    assert caught.value.reason.startswith(reason)
    assert remedy in str(caught.value).removeprefix(caught.value.reason)


@pytest.mark.parametrize(
    ("old", "new", "column", "message"),
    [
        ("1.006", "-1.006", "usd_per_hour", "above 0"),
        ("1.006", "0", "usd_per_hour", "above 0"),
        ("1.006", "inf", "usd_per_hour", "finite"),
        ("1.006", "1.006 EUR", "usd_per_hour", "not a number"),
        ("us-east-1", "us-est-1", "region", "did you mean"),
        ("on_demand", "ondemand", "basis", "did you mean 'on_demand'"),
        ("2026-07-20", "20260720", "as_of", "not a date"),
        ("2026-07-20,", "2026-07-20,soon", "until", "not a date"),
        ("2026-07-20,,", "2026-07-20,,date", "assumed", "unknown value 'date'"),
        ("a page", "", "source", "is empty"),
        ("g5.xlarge", "g5", "instance", "the form of g5.xlarge"),
        (",1,4,16", ",,4,16", "cores", "is empty"),
    ],
)
def test_a_bad_cell_is_named_with_file_line_and_column(tmp_path, old, new, column, message):
    with pytest.raises(UserError) as error:
        read_prices(written(tmp_path, TRN, GOOD.replace(old, new)))
    assert str(error.value).startswith(f"{tmp_path}/prices.csv:3: column {column}: ")
    assert message in str(error.value)


def test_lines_are_counted_in_the_file_not_in_rows(tmp_path):
    two_lines = GOOD.replace("a page", '"a\npage"')
    path = written(tmp_path, two_lines, "", TRN.replace("1.34375", "x"))
    with pytest.raises(UserError, match=r"prices\.csv:5: column usd_per_hour"):
        read_prices(path)


TWICE = GOOD.replace("1.006", "1.1")
OTHER = GOOD.replace("2026-07-20", "2026-07-21").replace(",1,4,16", ",2,4,16")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TWICE, r"prices\.csv:4: column as_of: second row .*\(first in line 2\)"),
        (OTHER, r"prices\.csv:4: column cores: g5\.xlarge has '2.0' here and '1.0' in line 2"),
    ],
)
def test_one_instance_has_one_hardware_and_one_price_a_day(tmp_path, other, message):
    with pytest.raises(UserError, match=message):
        read_prices(written(tmp_path, GOOD, TRN, other))


def test_an_empty_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="there are no prices"):
        read_prices(written(tmp_path))


dates = st.sampled_from(["", "2025-01-01", "2025-06-30", "2026-01-01"])
keys = st.tuples(
    st.sampled_from(["a.large", "b.large"]), st.just("us-east-1"), st.sampled_from(BASES[:2]), dates
)


@settings(deadline=None)
@given(st.sets(keys, min_size=1), st.sampled_from([None, "2025-01-01", "2025-12-31"]))
def test_newest_is_the_last_date_that_qualifies(rows, as_of):
    table = pd.DataFrame(sorted(rows), columns=[*COLUMNS[:3], "as_of"]).assign(until="")
    found = {tuple(row[:3]): row.as_of for row in newest(table, as_of).itertuples(index=False)}
    allowed = table[table["as_of"] <= (as_of or "9")].groupby(list(COLUMNS[:3]))["as_of"].max()
    assert found == {key: date or "undated" for key, date in allowed.items()}


def test_pricing_needs_neither_torch_nor_what_is_slow_to_import():
    code = (
        "import sys, cxrbench.cost.money, cxrbench.cost.refresh, cxrbench.claims.ledger;"
        "print([m for m in ('torch', 'scipy', 'matplotlib', 'boto3') if m in sys.modules])"
    )
    assert ran(sys.executable, "-c", code, check=True).stdout.strip() == "[]"
