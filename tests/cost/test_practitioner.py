"""docs/practitioner.md: its table is generated, its numbers are recomputed, its advice follows from both."""

import math
import re
import shutil
from pathlib import Path

import pytest

from conftest import ROOT, must_work
from cxrbench.compile.audit import read_audit
from cxrbench.cost.estimate import equal_shares, work_of
from cxrbench.cost.prices import price
from cxrbench.cost.published import leave_one_card_out
from cxrbench.cost.ratios import PREPRINT_RATIO, thresholds
from cxrbench.paper.practitioner import jobs_table
from cxrbench.study.config import Pricing

PAGE = ROOT / "docs/practitioner.md"
NETWORKS = ("convnext_pico", "convnext_tiny", "resnet18", "resnet50")


def said() -> str:
    return " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_table_is_that_of_todays_prices_and_speeds(tmp_path: Path) -> None:
    """If this fails after a price changed: cxrbench cost report --page docs/practitioner.md."""
    copy = tmp_path / "page.md"
    shutil.copy(PAGE, copy)
    must_work("cost", "report", "--page", copy)
    assert copy.read_text() == PAGE.read_text()
    copy.write_text(copy.read_text().replace("g5.xlarge (1.01)", "g5.xlarge (1.02)"))
    must_work("cost", "report", "--page", copy)
    assert copy.read_text() == PAGE.read_text(), "a stale number is renewed"


def test_the_advice_follows_from_the_table(prices) -> None:
    """The cheapest by the middle of its range, and which instances end the largest job within a day."""
    table = jobs_table(prices, Pricing()).set_index(["job", "instance"])
    for job in ("small", "large", "very large"):
        assert table.loc[job]["usd_middle"].idxmin() == "g6e.xlarge", job
    hours = table["hours_middle"]
    assert 0.5 < hours["small", "g5.xlarge"] < 2 and 16 < hours["large", "g5.xlarge"] < 32
    assert 10 * 24 < hours["very large", "g5.xlarge"] < 18 * 24
    in_a_day = hours["very large"][hours["very large"] < 24].index
    assert set(in_a_day) == {"p4d.24xlarge", "p5.48xlarge"}
    one, cheapest = table.loc[("very large", "p5.4xlarge")], table.loc[("very large", "g6e.xlarge")]
    assert one["hours_middle"] / cheapest["hours_middle"] == pytest.approx(1 / 3, abs=0.05)
    assert 1 < one["usd_middle"] / cheapest["usd_middle"] < 1.2
    assert (
        table.loc[("large", "p5.4xlarge"), "usd_middle"]
        < 1.2 * table.loc[("large", "g6e.xlarge"), "usd_middle"]
    )
    words = said()
    first = PAGE.read_text().split("<!-- begin jobs -->")[0].splitlines()
    named = {name for line in first[2:12] for name in re.findall(r"\b[gp]\d\w*\b", line)}
    assert named >= {"g5", "g6e", "p4d", "p5"}
    assert "a g6e.xlarge is still the cheapest" in words and "ends it within a day" in words


def test_every_number_of_the_page_is_recomputed(prices) -> None:
    here, there = (price(prices, name, "us-east-1", "on_demand") for name in ("g5.xlarge", "trn1.2xlarge"))
    audit = read_audit(ROOT / "data/recorded")
    shares = [
        equal_shares(work_of(audit, name, 224, precision), precision, there.to_dict(), here.to_dict())
        for name in NETWORKS
        for precision in ("bf16", "fp32")
    ]
    hours = 10 * (60_000 + 6_000 / 3) / 250 / 3600
    usd = hours * here["usd_per_hour"]
    row = thresholds(prices, "g5.xlarge", Pricing()).iloc[0]
    quality = leave_one_card_out()
    for sentence in (
        f"costs {min(shares):.2f} to {max(shares):.2f} times as much on a trn1.2xlarge",
        f"{PREPRINT_RATIO.low:g} to {PREPRINT_RATIO.high:g} times the cost would mean that Trainium's share "
        f"was {PREPRINT_RATIO.low / max(shares):.1f} to {PREPRINT_RATIO.high / min(shares):.1f} times",
        f"take {60 * hours:.0f} minutes and {usd:.2f} USD on a g5.xlarge ({here['usd_per_hour']} USD an "
        f"hour, us-east-1, on demand, {here['as_of']})",
        f"A port of 20,000 USD costs as much as {20_000 / usd:,.0f} such runs",
        f"above {row['price_ratio']:.2f} times the images/s of a g5.xlarge**, on a {row['instance']}",
        f"({row['usd_per_hour']} USD an hour in {row['region']}, {row['usd_per_hour_gpu']} in",
        f"if you spend more than {20_000 / 12 / (1 - 0.77):,.0f} USD a month",
        f"in this range for {100 * quality['inside'].min():.0f} to {100 * quality['inside'].max():.0f} % of",
        f"for {100 * quality['within_two'].min():.0f} % or more",
    ):
        assert sentence in said(), sentence
    assert row["mixed"] == "two regions" and math.isclose(row["usd_per_hour"], 2.7396)
    assert set(prices.loc[prices["basis"] == "capacity_block", "until"]) == {"2025-01-01"}
    assert len(prices[prices["basis"].str.startswith("reserved")]) == 2
