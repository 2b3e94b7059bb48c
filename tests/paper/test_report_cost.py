"""The paper's tables and figures about money: an instance is one row of data, a projection says so."""

import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml

from conftest import ROOT, change_record, money_results
from cxrbench.cost.costs import cost_table, pricing_of
from cxrbench.cost.porting import CASES, break_even_table, decision_table
from cxrbench.cost.prices import read_prices
from cxrbench.paper.cost_tables import load_sentence
from cxrbench.paper.items import as_text, figures, tables
from cxrbench.paper.latex import listing, placed
from cxrbench.paper.ledger import claims_one_by_one
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of
from cxrbench.study.config import read_study

PRICES, STUDY = ROOT / "data/prices.csv", ROOT / "config/config.yaml"
CELL = Path("nih128-64px/resnet18/cpu/seed0")
NEW = "g7.xlarge"
COMPARED = ["trn1.2xlarge", "g5.2xlarge", "trn1.32xlarge", "p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge"]
ROWS = (
    f"{NEW},us-east-1,on_demand,0.5,L4,1,24,1,4,32,a test,2026-11-01,,,\n"
    f"{NEW},us-east-1,spot,0.4,L4,1,24,1,4,32,a test,2026-11-01,,,\n"
)


def as_if_run_on(platform: str, seconds: float, into: Path, **host: str) -> None:
    """The recorded cell under another platform's name, its time and host changed: nothing ran there."""
    cell = Path(str(CELL).replace("/cpu/", f"/{platform}/"))
    (into / cell).mkdir(parents=True)
    shutil.copy(ROOT / "data/recorded" / CELL / "record.json", into / cell)
    change_record(into / cell, cell=str(cell), host=host, timing={"train_seconds": seconds})


def built(folder: Path) -> Results:
    """The tables of a study with cells on two platforms, and with one instance more in its price table."""
    prices, study, results = folder / "prices.csv", folder / "study.yaml", folder / "results"
    prices.write_text(PRICES.read_text() + ROWS)
    value = yaml.safe_load(STUDY.read_text())
    value["prices"]["instances"]["cuda"] = NEW
    study.write_text(yaml.safe_dump(value))
    as_if_run_on("cuda", 100, results / "cells")
    as_if_run_on("neuron", 90, results / "cells")
    return money_results(results, study, prices, folder / "recorded")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return built(tmp_path_factory.mktemp("money"))


def test_a_new_instance_is_found_in_tables_and_figures(results: Results) -> None:
    for name in ("prices", "ratios", "break_even"):
        assert NEW in results.tables[name].to_csv(), name
    for name in ("cost", "cost_units", "ratios", "prices"):
        assert tables()[name].make(results).texts.eq(NEW).any().any(), name
    figure = figures()["prices"].make(results)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    at = names.index(NEW)
    points = [point for line in figure.axes[0].lines for point in zip(*line.get_data(), strict=True)]
    assert {float(x) for x, y in points if y == at} == {0.5, 0.4}
    elsewhere = {"trn2.3xlarge (ap-southeast-4)", "trn2.48xlarge (us-east-2)"}
    assert set(names) == {NEW, *COMPARED, "c7a.large", "trn1n.32xlarge", *elsewhere}
    plt.close(figure)


def test_every_table_names_kind_region_basis_and_date(results: Results) -> None:
    words = {"measured", "proxy", "projected", "published"}
    for name in (name for name, item in tables().items() if item.function.startswith("cost_tables:")):
        made = tables()[name].make(results)
        table = made.rows
        assert r"\label{tab:" in placed(tables()[name], made)
        assert set(table["Kind"].str.split(":").str[0]) <= words, name
        assert name == "prices" or {"Region", "Basis", "Price of"} <= set(table.columns), name


def test_our_own_cells_save_at_one_price_and_not_at_another(results: Results) -> None:
    """90 s on trn1.2xlarge against 100 s on the new instance: dearer on demand, cheaper on spot."""
    cases = results.table("break_even")
    ours = cases[cases["case"] == "nih128-64px resnet18"].set_index("basis")
    demand, spot = ours.loc["on_demand"], ours.loc["spot"]
    assert demand["saving"] < 0 and demand["kind"] == "proxy"
    assert demand["as_of"] == "2026-11-01 and 2026-07-20"
    assert spot["saving"] > 0 and spot["as_of"] == "2026-11-01 and undated"


def test_what_others_ran_is_projected_at_every_price(results: Results) -> None:
    cases = results.table("break_even")
    cases = cases[cases["case"].isin([case.case for case in CASES])]
    assert set(cases["kind"]) == {"projected"}, "nobody published what they save at these prices"
    assert len(cases) > cases["case"].nunique() > cases["source"].nunique() == 2


def test_decisions_are_made_at_every_price_at_which_the_preprints_ratio_is_another(results: Results) -> None:
    """us-east-2's spot price alone lets the ratio fall below one: there it depends, and nowhere else."""
    plain = decision_table(read_prices(PRICES), read_study(STUDY).prices)
    spot = plain[plain["basis"] == "spot"]
    assert set(spot["region"]) == {"us-east-1", "us-east-2", "us-west-2"}
    assert set(plain.loc[plain["pays"] == "at one end", "region"]) == {"us-east-2"}
    assert set(plain["verdict"]) == {"stay", "not shown"}, "no published ratio decides for a port"
    assert (plain["ongoing"] == 0).all() and len(plain) == 25 and set(plain["kind"]) == {"projected"}
    stays = plain[plain["verdict"] == "stay"]
    assert (stays["break_even_from"] > stays["months"]).all(), (
        "what stays breaks even after its horizon, if ever"
    )


def test_the_bound_from_the_rooflines_is_that_of_plain_arithmetic(results: Results) -> None:
    """Price over the lower of peak over work and bandwidth over least traffic, from the recorded audit."""
    audit = pd.read_csv(ROOT / "data/recorded/audit/audit.csv")
    steps = audit[(audit["pixels"] == 224) & (audit["batch"] == 32) & (audit["part"] == "step")]
    names = ["convnext_pico", "convnext_tiny", "resnet18", "resnet50"]
    found = []
    for row in steps[steps["architecture"].isin(names)].itertuples():
        flop, moved = 6e9 * row.gmac, row.traffic_least_mib_per_image * 2**20
        gpu, trainium = {"bf16": (121e12, 184e12), "fp32": (30.3e12, 46e12)}[row.precision]
        here = 0.5 / min(gpu / flop, 300e9 / moved)  # the new instance has one L4
        there = 1.34375 / min(trainium / flop, 2 * 440.23414784e9 / moved)
        found.append(there / here)
    assert len(found) == 8
    said = values_of(results, ["cost/shares", "cost/handicap"])
    assert as_text("{cost/shares}", said) == f"{min(found):.2f} to {max(found):.2f}"
    assert as_text("{cost/handicap}", said) == f"{3 / max(found):.1f} to {5 / min(found):.1f}"


def test_a_price_of_another_region_has_its_source(results: Results) -> None:
    sources = values_of(results, ["cost/ratio sources"])["cost/ratio sources"]
    assert "vms.csv (spot, on demand); " in sources and "a test (on demand, spot)" in sources


@pytest.mark.parametrize(
    ("unknown", "busy", "sentence"),
    [
        (3, 0, "For none of the 3 runs is it known how busy the machine was otherwise."),
        (
            *(2, 0),
            "For 2 of the 3 runs it is not known how busy the machine was otherwise. "
            "Where it is known, no machine was busy.",
        ),
        (
            *(1, 1),
            "For 1 of the 3 runs it is not known how busy the machine was otherwise. "
            "Marked: 1 on a busy machine.",
        ),
        (0, 0, "Where it is known, no machine was busy."),
    ],
)
def test_it_is_said_of_how_many_runs_the_machines_load_is_known(
    unknown: int, busy: int, sentence: str
) -> None:
    assert load_sentence(3, unknown, busy) == sentence
    for name in ("cost", "cost_units"):
        assert tables()[name].caption.endswith(". {cost/runs/load sentence}")


def test_break_even_names_the_instance_that_its_dollars_are_of(tmp_path: Path) -> None:
    as_if_run_on("cuda", 100, tmp_path, instance="g5.2xlarge")
    as_if_run_on("neuron", 100, tmp_path, instance="trn1.2xlarge")
    costs, pricing = cost_table([tmp_path], PRICES, pricing_of(STUDY)), pricing_of(STUDY)
    assert pricing.instances["cuda"] == "g5.xlarge"
    table = break_even_table(costs, read_prices(PRICES), pricing)
    ours = table[(table["source"] == "this paper's cells") & (table["region"] == "us-east-1")]
    row = ours[ours["basis"] == "on_demand"].iloc[-1]
    assert (row["here"], row["there"], row["kind"]) == ("g5.2xlarge", "trn1.2xlarge", "measured")
    assert row["usd_here"] == pytest.approx(costs.set_index("instance").loc["g5.2xlarge", "usd_total"])


def test_the_ledger_prints_the_claims_of_the_preprint_and_ours() -> None:
    nan = float("nan")
    claims = pd.DataFrame(
        {
            "id": ["A1", "A2", "A3", "A4"], "source": ["preprint", "ours", "ours", "another text"],
            "says": ["5 % of a_b", "nothing", "so", "no"], "stated": ["5", "", "yes", ""],
            "unit": ["%", "", "", ""], "computed_low": [5, nan, 0, nan], "computed_high": [5, nan, 0, nan],
            "now_low": [2.08416, nan, 0, nan], "now_high": [2.08416, nan, 0, nan],
            "verdict": ["stale", "not testable here", "contradicted", "stale"],
            "yes_no": [False, False, True, False], "assumes": ["", "it is dry", "", ""], "if_assumed": "",
        }
    )  # fmt: skip
    text = listing(claims_one_by_one(claims))
    assert r"A1 & 5\,\% of a\_\allowbreak{}b & 5\,\% & 5; now 2.084 & stale \\" in text
    assert r"A2 & nothing Tested if it is dry. &  &  & not testable here \\" in text
    assert r"A3 & so & yes & no & contradicted \\" in text and "A4" not in text


def test_without_any_cell_there_are_still_prices_and_published_cases(tmp_path: Path) -> None:
    made = money_results(tmp_path, STUDY, PRICES, tmp_path).tables
    assert made["cost"].empty and len(made["ratios"]) and len(made["break_even"])
