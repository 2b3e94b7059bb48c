"""Speed and cost stay within one machine: what heads a row, what is marked, what a record holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, cxrbench
from cxrbench.evidence.machine import GROUP, headline, machine_of, processor_of, short_processor
from cxrbench.evidence.record import read_record
from cxrbench.evidence.sums import write_sums
from cxrbench.study.cells import Cell

RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "dataset": st.just("nih"),
            "architecture": st.sampled_from(["resnet18", "resnet34"]),
            "platform": st.sampled_from(["cpu", "cuda"]),
            "origin": st.sampled_from(["recorded", "fresh"]),
            "machine": st.sampled_from(["A", "B", "C"]),
            "busy": st.booleans(),
            "status": st.sampled_from(["ok", "crashed"]),
        }
    ),
    min_size=1,
    max_size=20,
).map(pd.DataFrame)
SAME = ["machine", "origin", "busy"]


@given(RUNS)
def test_what_heads_a_row_is_of_one_machine_and_complete(runs: pd.DataFrame) -> None:
    chosen = headline(runs)
    for _, group in runs.groupby(GROUP):
        heads = group[chosen[group.index]]
        assert len(heads[SAME].drop_duplicates()) == 1
        assert len(heads) == len(group.merge(heads[SAME].drop_duplicates()))


@given(RUNS)
def test_a_busy_run_never_moves_a_quiet_headline_nor_a_fresh_one_a_recorded(runs: pd.DataFrame) -> None:
    chosen = headline(runs)
    for worse in (runs["busy"], runs["busy"] | (runs["origin"] == "fresh")):
        better = runs[~worse]
        alone = headline(better)
        assert list(chosen[better.index][alone]) == [True] * alone.sum()


def test_another_processor_library_or_core_count_is_another_machine() -> None:
    record = read_record(ROOT / "data/recorded/nih128-32px/resnet18/xla_cpu/seed0")
    assert machine_of(record, "xla_cpu") == "AMD EPYC, 2 cores, torch 2.9.1, torch_xla 2.9.0"
    host, versions = record.host, record.versions
    others = [
        record.model_copy(update={"host": host.model_copy(update={"cpu": "Intel"})}),
        record.model_copy(update={"host": host.model_copy(update={"cores": 4})}),
        record.model_copy(update={"versions": versions | {"torch": "2.11.0"}}),
        record.model_copy(update={"versions": versions | {"torch_xla": "2.9.1"}}),
    ]
    assert len({machine_of(each, "xla_cpu") for each in (record, *others)}) == 5


def test_a_record_that_names_no_processor_shares_a_machine_with_no_other() -> None:
    records = [read_record(ROOT / f"data/recorded/nih128-64px/resnet18/cpu/seed{seed}") for seed in (0, 1)]
    unknown = [
        each.model_copy(update={"host": each.host.model_copy(update={"cpu": " "})}) for each in records
    ]
    assert processor_of(unknown[0]).startswith("unknown processor")
    assert len({machine_of(each, "cpu") for each in unknown}) == 2


def test_processors_are_shortened_to_what_tells_them_apart() -> None:
    assert short_processor("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz") == "Intel Xeon Platinum 8481C"
    assert short_processor("Intel(R) Xeon(R) Processor, 2 cores") == "Intel Xeon, 2 cores"


def test_a_busy_run_stands_beside_the_recorded_one_and_not_in_its_place(tmp_path: Path) -> None:
    cell = Cell.parse("nih128-64px/resnet18/cpu/seed0")
    recorded, mine = tmp_path / "recorded", tmp_path / "mine"
    for seed in range(3):
        each = Cell(cell.dataset, cell.architecture, cell.platform, seed)
        shutil.copytree(each.folder(ROOT / "data/recorded"), each.folder(recorded))
    write_sums(recorded)
    shutil.copytree(recorded, mine)
    words = ["cost", "table", mine, "--recorded", recorded, "--study", ROOT / "config/config.yaml", "--json"]
    before = pd.DataFrame(json.loads(cxrbench(*words).stdout))
    assert before["headline"].all() and set(before["origin"]) == {"recorded"}
    path = cell.folder(mine) / "record.json"
    record = json.loads(path.read_text())
    record["timing"] |= {"others_share": 0.5, "train_seconds": 7 * record["timing"]["train_seconds"]}
    path.write_text(json.dumps(record))
    after = pd.DataFrame(json.loads(cxrbench(*words).stdout))
    kept = after[after["headline"]].reset_index(drop=True).drop(columns="others_share")
    pd.testing.assert_frame_equal(kept, before.drop(columns="others_share"))
    (fresh,) = after[~after["headline"]].to_dict("records")
    assert fresh["cell"] == str(cell) and fresh["busy"] and fresh["origin"] == "fresh"
    assert fresh["usd_train"] > 5 * before["usd_train"].max()
