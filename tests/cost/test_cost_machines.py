"""Machines are never averaged: a busy or fresh run is shown, marked, and moves no headline."""

import json
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, money_results
from cxrbench.cost.costs import comparable
from cxrbench.evidence.record import Timing
from cxrbench.paper.entries import named
from cxrbench.paper.items import tables
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of
from cxrbench.study.config import Pricing

RECORDED, STUDY, PRICES = ROOT / "data/recorded", ROOT / "config/config.yaml", ROOT / "data/prices.csv"
GROUP = ("phantom-32px", "resnet18", "cpu")
BUSY = "/".join(GROUP) + "/seed0"


def on(record, cpu, hours=2.0, share=None):
    """``record`` as if it had run on ``cpu`` for so long, beside others that used ``share`` of the cores."""
    timing = Timing(train_seconds=3600 * hours, others_share=share)
    host = record.host.model_copy(update={"cpu": cpu})
    return record.model_copy(update={"host": host, "timing": timing})


@pytest.fixture
def runs(make_record):
    """Seeds of cpu on two processors, all of xla_cpu on the second one, as the recorded evidence has them."""
    cell = "nih128-32px/convnext_pico/{}/seed{}"
    return [
        on(make_record(cell.format("cpu", 0)), "Intel", 4.0),
        on(make_record(cell.format("cpu", 1)), "Intel", 4.2),
        on(make_record(cell.format("cpu", 2)), "AMD", 1.0),
        on(make_record(cell.format("xla_cpu", 0)), "AMD", 3.0),
        on(make_record(cell.format("xla_cpu", 1)), "AMD", 3.2),
    ]


def test_a_cost_is_of_one_machine_and_has_a_spread(priced, runs):
    table = priced(runs, Pricing()).set_index("cell")
    intel, amd = (table.loc[f"nih128-32px/convnext_pico/cpu/seed{seed}"] for seed in (0, 2))
    assert intel["cost_to_usable"] == pytest.approx(4.1 * 0.10264) and intel["seeds"] == 2
    assert intel["usd_sd"] == pytest.approx(0.2 / 2**0.5 * 0.10264)
    assert amd["cost_to_usable"] == pytest.approx(0.10264) and pd.isna(amd["usd_sd"])


def test_platforms_are_compared_on_a_processor_that_they_share(priced, runs):
    """Over all machines cpu is the dearer of the two; on the shared processor it is the cheaper."""
    chosen, differs = comparable(priced(runs, Pricing()))
    usd = chosen.groupby("platform")["cost_to_usable"].mean()
    assert usd["cpu"] < usd["xla_cpu"] and differs == ""
    apart = priced([run for run in runs if not run.cell.endswith("cpu/seed2")], Pricing())
    assert comparable(apart)[1] == "processors differ: cpu Intel, xla_cpu AMD"


def test_a_shared_busy_processor_is_taken_last_and_named(priced, make_record, runs):
    cell = "nih128-32px/convnext_pico/cpu/seed3"
    table = priced([*runs, on(make_record(cell), "AMD", 0.1, share=0.5)], Pricing())
    chosen, _ = comparable(table)
    assert cell not in set(chosen["cell"])
    alone = table[table["cell"].isin([cell]) | (table["platform"] == "xla_cpu")]
    assert comparable(alone)[1] == "busy machine: cpu"


def test_records_without_a_processor_share_no_machine(priced, make_record):
    records = [on(make_record(f"nih128-32px/resnet18/cpu/seed{seed}"), " ", 1.0 + seed) for seed in (0, 1)]
    table = priced(records, Pricing())
    assert table["cost_to_usable"].tolist() == pytest.approx([0.10264, 2 * 0.10264])
    assert table["machine"].nunique() == 2 and table["machine"].str.startswith("unknown processor of ").all()


# ------------------------------------------------------------------ tables and figures


def built(folder: Path, busy: bool) -> Results:
    """Tables of the phantom cells: as recorded, or with one trained again on this machine, busy and slow."""
    cells = folder / "results/cells"
    for path in sorted(RECORDED.glob("phantom-32px/*/*/seed*/record.json")):
        target = cells / path.relative_to(RECORDED)
        target.parent.mkdir(parents=True)
        record = json.loads(path.read_text())
        if busy and BUSY in str(target):
            record["timing"] |= {"train_seconds": record["timing"]["train_seconds"] * 9, "others_share": 0.5}
        target.write_text(json.dumps(record))
    return money_results(folder / "results", STUDY, PRICES, RECORDED)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Results]:
    """The same study without a fresh run, and with one made on a busy machine."""
    return tuple(built(tmp_path_factory.mktemp(f"busy{busy}"), busy) for busy in (False, True))


def test_a_busy_run_moves_no_headline_and_no_case(both: tuple[Results, Results]) -> None:
    pd.testing.assert_frame_equal(*(read.runs(GROUP).reset_index(drop=True) for read in both))
    for name in ("break_even", "decisions"):
        pd.testing.assert_frame_equal(*(read.tables[name] for read in both))
    keys = [key for key in named(ROOT / "paper") if key.startswith(("cost/", "price/", "day/"))]
    before, after = (values_of(read, keys) for read in both)
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"cost/runs/load sentence"}
    assert "Marked: 1 on a busy machine." in after["cost/runs/load sentence"]


@pytest.mark.parametrize("name", ["cost", "cost_units"])
def test_a_busy_run_is_a_marked_row_beside_the_others(both: tuple[Results, Results], name: str) -> None:
    before, after = (tables()[name].make(read).texts for read in both)
    marked = after["Machine"].str.endswith("fresh; busy (50 % used by others)")
    assert marked.sum() == 1
    pd.testing.assert_frame_equal(after[~marked].reset_index(drop=True), before)
    machine = "AMD EPYC family 25 model 17"
    assert set(before["Machine"]) == {f"{machine} (AVX512), 2 cores", f"{machine}, 2 cores"}


def test_dollars_of_several_seeds_have_a_spread_and_of_one_seed_say_so(both: tuple[Results, Results]) -> None:
    table = tables()["cost_units"].make(both[1]).texts
    fresh = table["Machine"].str.contains("fresh")
    assert table.loc[~fresh, "Usable model"].str.contains(" ± ").all()
    assert table.loc[fresh, "Usable model"].str.endswith("(1 seed)").all()
