"""docs/neuron.md and docs/cuda.md agree with data and code."""

import re

import pytest

from conftest import ROOT
from cxrbench.cost.prices import newest, price, read_prices
from cxrbench.study.platforms import PLATFORMS
from cxrbench.training.precompile import TOOL

PAGES = {name: (ROOT / f"docs/{name}.md").read_text() for name in ("neuron", "cuda")}
DOCS = PAGES["neuron"]
PRICES = read_prices(ROOT / "data/prices.csv")
ROW = re.compile(
    r"^\| (?P<instance>\w+\.\w+) \| `(?P<platform>\w+)` \| (?P<cores>\d+) \| \d+ \| (?P<prices>.*) \|$", re.M
)
PRICE = re.compile(r"(?P<usd>[\d.]+) \((?P<region>[\w-]+), (?P<as_of>[\w-]+)\)")


@pytest.mark.parametrize(
    ("page", "instances"),
    [
        ("neuron", ["trn1.2xlarge", "trn1.32xlarge", "trn2.3xlarge", "trn2.48xlarge"]),
        ("cuda", ["g5.xlarge", "g6e.xlarge", "g7e.2xlarge", "p5.4xlarge"]),
    ],
)
def test_every_price_in_the_docs_is_a_row_of_the_price_table(page: str, instances: list[str]) -> None:
    rows = list(ROW.finditer(PAGES[page]))
    assert [row["instance"] for row in rows] == instances
    for row in rows:
        for basis, cell in zip(("on_demand", "spot"), row["prices"].split(" | "), strict=True):
            listed = newest(PRICES, basis=basis, instance=row["instance"])
            if cell == "not listed":
                assert listed.empty
                continue
            if cell == "none below on demand":
                demand = price(PRICES, row["instance"], "us-east-1", "on_demand")["usd_per_hour"]
                assert basis == "spot" and listed["usd_per_hour"].min() >= demand
                continue
            printed = PRICE.fullmatch(cell)
            known = price(PRICES, row["instance"], printed["region"], basis)
            assert float(printed["usd"]) == known["usd_per_hour"]
            assert printed["as_of"] == (known["as_of"] or "undated")
            assert int(row["cores"]) == known["cores"]
        assert row["platform"] in PLATFORMS


def test_the_page_names_the_tool_that_compiles_ahead() -> None:
    assert TOOL in DOCS


def test_the_first_hour_adds_up_and_costs_its_minutes() -> None:
    table = DOCS.split("<!-- begin first hour -->")[1].split("<!-- end first hour -->")[0]
    hourly = price(PRICES, "trn1.2xlarge", "us-east-1", "on_demand")["usd_per_hour"]
    assert f"{hourly:g} USD an hour" in table
    spans = re.findall(r"^\| (.*?) \| ([\d.]+)(?: to ([\d.]+))? \| ([\d.]+)(?: to ([\d.]+))? \|", table, re.M)
    spans = [(name, low, high or low, least, most or least) for name, low, high, least, most in spans]
    assert len(spans) == 5
    for _, *ends in spans:
        for minutes, dollars in zip(map(float, ends[:2]), map(float, ends[2:]), strict=True):
            assert dollars == pytest.approx(minutes / 60 * hourly, abs=0.006)
    for column in (1, 2):
        *parts, whole = (float(row[column]) for row in spans)
        assert sum(parts) == whole
    for row in spans[1:3]:  # programs, at so many minutes each
        programs = int(re.search(r"(\d) (?:more )?program", row[0])[1])
        assert [float(minutes) for minutes in row[1:3]] == [2 * programs, 44 * programs]
    images, speed = re.search(r"([\d,]+) images \|", table)[1], re.search(r"(\d+) images/s", table)[1]
    assert float(spans[3][1]) == round(20 * int(images.replace(",", "")) / int(speed) / 60)
    reported = (ROOT / "data/reported.csv").read_text()
    assert f"({speed} images a second by our division)" in reported
