"""Documents from templates; the numbers of docs/practitioner.md are computed again, its advice follows."""

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.cost.estimate import equal_shares, work_of
from cxrbench.cost.prices import price, read_prices
from cxrbench.cost.published import leave_one_card_out
from cxrbench.cost.ratios import PREPRINT_RATIO, thresholds
from cxrbench.neuron.audit import read_audit
from cxrbench.paper import practitioner
from cxrbench.paper.documents import write_documents
from cxrbench.paper.entries import named_in_markdown
from cxrbench.paper.practitioner import jobs_in_markdown, jobs_table
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of
from cxrbench.study.config import Pricing, read_study

from .conftest import made_up

PAGE = ROOT / "docs/practitioner.md"
NETWORKS = ("convnext_pico", "convnext_tiny", "resnet18", "resnet50")


@pytest.fixture
def prices() -> pd.DataFrame:
    return read_prices(ROOT / "data/prices.csv")


def said() -> str:
    return " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_page_follows_prices_and_speeds(tmp_path: Path, monkeypatch) -> None:
    """If this fails after a price changed: make paper-from-evidence; cxrbench report --only documents."""
    monkeypatch.chdir(ROOT)
    read = made_up(study=read_study(ROOT / "config/config.yaml"))
    assert jobs_in_markdown(read) in PAGE.read_text(encoding="utf-8")
    dearer = tmp_path / "prices.csv"
    prices = pd.read_csv("data/prices.csv", dtype=str, keep_default_na=False)
    here = (prices["instance"] == "g5.xlarge") & (prices["basis"] == "on_demand")
    prices.loc[here, "usd_per_hour"] = "2.012"
    prices.to_csv(dearer, index=False)
    monkeypatch.setattr(practitioner, "PRICES", dearer)
    assert "g5.xlarge (2.01; spot 0.42)" in jobs_in_markdown(read)
    changed = {key: str(one) for key, one in values_of(read, ["example/usd", "example/runs"]).items()}
    assert changed == {"example/usd": "0.58", "example/runs": "34,631"}, "twice the price"


def test_a_key_is_named_where_it_is_printed_and_where_it_decides() -> None:
    """In a condition alone a key had no value, so README lost the sentence that a network is unfinished."""
    template = '{{ value("a/b") }} {% if value("c") not in ("0", "not run") %}; {{ value("d") }}{% endif %}'
    assert named_in_markdown(template) == {"a/b", "c", "d"}


def test_the_template_has_no_number_that_was_found(monkeypatch) -> None:
    """What a value says is named; what is left are sources, their dates, and names."""
    template = (ROOT / "paper/documents/docs/practitioner.md.jinja").read_text(encoding="utf-8")
    named = named_in_markdown(template)
    assert len(named) > 20
    prose = re.sub(r"\{\{.*?\}\}", "", template)
    read = made_up(study=read_study(ROOT / "config/config.yaml"))
    monkeypatch.chdir(ROOT)
    shown = values_of(
        read, [key for key in named if key.startswith(("jobs", "example", "threshold", "inference"))]
    )
    assert len(shown) > 20
    for key, value in shown.items():
        if re.fullmatch(r"[\d,]+\.?\d*", number := str(value)) and len(number) > 2:
            assert number not in prose, f"{key} is typed as {number}"


def test_the_advice_follows_from_the_table(prices) -> None:
    """The cheapest by the geometric middle of its range, and which instances end the largest job in a day."""
    template = (ROOT / "paper/documents/docs/practitioner.md.jinja").read_text(encoding="utf-8")
    assert "compared by the geometric mean of each range" in template and "The middle of" not in template
    table = jobs_table(prices, Pricing()).set_index(["job", "instance"])
    for job in ("small", "large", "very large"):
        usd = table.loc[job]["usd_middle"].sort_values()
        assert [*usd.index[:2]] == ["g6e.xlarge", "g7e.2xlarge"] and usd.iloc[1] < 1.1 * usd.iloc[0], job
    hours = table["hours_middle"]
    assert 0.5 < hours["small", "g5.xlarge"] < 2 and 16 < hours["large", "g5.xlarge"] < 32
    assert 10 * 24 < hours["very large", "g5.xlarge"] < 18 * 24
    small = table.loc["small"]["usd_middle"]
    assert (small[["g5.xlarge", "g6.xlarge", "g7e.2xlarge", "p5.4xlarge"]] - small["g6e.xlarge"] < 0.5).all()
    spot, demand = (
        price(prices, "p4d.24xlarge", "us-east-1", basis)["usd_per_hour"] for basis in ("spot", "on_demand")
    )
    assert spot < demand / 4, "far below its price on demand"
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
    first = PAGE.read_text().split("<!-- begin jobs -->")[0]
    assert {*re.findall(r"\b[gp]\d\w*\b", first)} >= {"g5", "g6e", "p4d", "p5"}
    assert (
        "| a g6e.xlarge or a g7e.2xlarge | Again their means are nearly equal, the g6e's without its volume."
        in words
    )
    assert "is likely to finish the very large job within a day" in words
    usd = table["hours_middle"] * table["spot"]  # by job and instance
    single = table["accelerators"] == 1
    for job in ("small", "large", "very large"):
        assert usd[job].idxmin() == "p4d.24xlarge" and usd[single][job].idxmin() == "g6e.xlarge", job
        assert {*usd[job].nsmallest(2).index} == {"p4d.24xlarge", "p5.48xlarge"}, job
    assert "a g6e.xlarge remains the cheapest single GPU." in words
    for job in ("large", "very large"):
        assert usd[job, "p4d.24xlarge"] / usd[job, "g6e.xlarge"] == pytest.approx(0.25, abs=0.04)
    assert (
        "With all eight GPUs busy, a p4d.24xlarge costs about a quarter as much, but 1.8 to 11 times" in words
    )
    assert "rent a g5.xlarge: its upper ends are the lowest of single GPUs." in words
    for job in ("small", "large", "very large"):
        assert table["usd_high"][single][job].idxmin() == "g5.xlarge", job
    p4d = prices[(prices["instance"] == "p4d.24xlarge") & (prices["basis"] == "spot")].set_index("region")
    times = p4d["usd_per_hour"].drop("us-east-1") / p4d.loc["us-east-1", "usd_per_hour"]
    assert (round(times.min(), 1), round(times.max())) == (1.8, 11)
    assert {*prices[prices["instance"].str.startswith("g7e")]["region"]} == {"us-east-1"}
    example, speeds = practitioner.EXAMPLE.speed, table.loc[("small", "g5.xlarge")]
    seen = 120_000 * 20 / 3600
    assert seen / speeds["hours_high"] < example < seen / speeds["hours_low"], "as `cost mine` projects"
    for job in ("large", "very large"):  # by `cost mine` with a volume for the g6e; without one here
        g7e, g6e = table.loc[(job, "g7e.2xlarge")], table.loc[(job, "g6e.xlarge")]
        assert 1 < g7e["usd_middle"] / g6e["usd_middle"] < 1.1
        assert g7e["hours_middle"] / g6e["hours_middle"] == pytest.approx(0.6, abs=0.05)
        p5 = table.loc[(job, "p5.4xlarge")]
        assert p5["hours_middle"] / g6e["hours_middle"] == pytest.approx(1 / 3, abs=0.05)
        assert p5["usd_low"] < g6e["usd_high"] and p5["usd_middle"] / g6e["usd_middle"] < 1.2
    sold = prices[prices["instance"] == "trn2.3xlarge"]["region"]
    assert {*sold} == {"ap-southeast-4", "sa-east-1"}


def test_every_number_of_the_page_is_recomputed(prices) -> None:
    here, there = (price(prices, name, "us-east-1", "on_demand") for name in ("g5.xlarge", "trn1.2xlarge"))
    audit = read_audit(ROOT / "data/recorded")
    shares = [
        equal_shares(work_of(audit, name, 224, precision), precision, there.to_dict(), here.to_dict())
        for name in NETWORKS
        for precision in ("bf16", "fp32")
    ]
    hours = 10 * (60_000 + 6_000 / 3) / 600 / 3600
    usd = hours * here["usd_per_hour"]
    row = thresholds(prices, "g5.xlarge", Pricing()).iloc[0]
    quality = leave_one_card_out()
    blocks = prices[prices["basis"] == "capacity_block"]
    trn2 = blocks.loc[blocks["instance"] == row["instance"], "usd_per_hour"]
    g6e = price(prices, "g6e.xlarge", "us-east-1", "on_demand")["usd_per_hour"]
    h100 = blocks.loc[blocks["instance"] == "p5.4xlarge", "usd_per_hour"].min()
    for sentence in (
        f"costs {min(shares):.2f} to {max(shares):.2f} times as much on Trainium. This is "
        "on demand, for 4 networks",
        f"the preprint's cost**, {PREPRINT_RATIO.low:g} to {PREPRINT_RATIO.high:g} times a GPU's",
        f"take {60 * hours:.0f} minutes and {usd:.2f} USD on a g5.xlarge at an assumed 600 images/s",
        f"A port of 20,000 USD costs as much as {20_000 / usd:,.0f} such runs",
        f"A {row['instance']} is the smallest",
        f"| g5.xlarge | {trn2.min() / here['usd_per_hour']:.2f} (on demand, us-east-1, "
        f"{here['as_of']}) | {row['price_ratio']:.2f} (spot, us-east-1, undated) |",
        f"| g6e.xlarge | {trn2.min() / g6e:.2f} (on demand, us-east-1, ",
        f"| p5.4xlarge | {trn2.min() / h100:.2f} (capacity block, ap-northeast-1, ",
        f"if you spend more than {20_000 / 12 / (1 - 1 / 1.3):,.0f} USD a month",
        f"in this range for {100 * quality['inside'].min():.0f} to {100 * quality['inside'].max():.0f} % of",
        f"of the middle for {100 * quality['within_two'].min():.0f} % or more",
    ):
        assert sentence in said(), sentence
    assert row["mixed"] == "two regions" and math.isclose(row["usd_per_hour"], 2.7396)
    own = f"Prices of a trn2.3xlarge: {trn2.min():g} USD/h (capacity block, ap-southeast-4, "
    assert f"{own}{blocks['as_of'].max()}); {row['usd_per_hour']:g} USD/h (spot, " in said()
    assert len(prices[prices["basis"].str.startswith("reserved")]) == 2


def test_a_study_of_another_region_has_no_such_values_and_no_error(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    study = read_study(ROOT / "config/config.yaml")
    elsewhere = study.model_copy(update={"prices": Pricing(region="mars-1"), "datasets": {}})
    template = (ROOT / "paper/documents/docs/practitioner.md.jinja").read_text(encoding="utf-8")
    keys = {"download/nih128-32px"} | {
        key for key in named_in_markdown(template) if key.startswith(("jobs/", "ex"))
    }
    shown = values_of(made_up(study=elsewhere), keys)
    assert "download/nih128-32px" not in shown and "example/usd" not in shown and "example/images" in shown
    assert not [key for key in shown if key.startswith(("jobs/cheapest", "jobs/in a day"))]


def checkout(folder: Path, template: str) -> Path:
    """A folder with one template."""
    (folder / "paper/documents").mkdir(parents=True)
    (folder / "paper/documents/PAGE.md.jinja").write_text(template)
    (folder / "docs").mkdir()
    return folder


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("one\n{{ findngs }}\n", "'findngs' is undefined"),
        ("one\n{{ value('cells/run' }}\n", "PAGE.md.jinja:2: unexpected '}'"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_named(
    read: Results, tmp_path: Path, template: str, said: str
) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        write_documents(read, checkout(tmp_path, template))
    assert "paper/documents/PAGE.md.jinja" in str(raised.value) and str(raised.value).endswith(
        "mend it there"
    )
    assert not (tmp_path / "PAGE.md").exists()


def test_a_template_has_values_and_says_what_was_not_run(read: Results, tmp_path: Path) -> None:
    template = 'Of {{ value("cells/total") }} cells {{ value("cells/ran/on the moon") }}. {{ status }}'
    written = write_documents(read, checkout(tmp_path, template))
    assert [path.name for path in written] == ["PAGE.md", "variance.png"]
    assert re.match(r"Of \d{3} cells not run\. \*\*Nothing here has run", (tmp_path / "PAGE.md").read_text())
