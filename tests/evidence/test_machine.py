"""Speed and cost stay within one machine: what heads a row, what is marked, what a record holds."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.cost.costs import headline
from cxrbench.evidence.record import BUSY, read_record, short_processor
from cxrbench.study.names import GROUP
from cxrbench.training.supervisor import run

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
    assert record.machine == "AMD EPYC, 2 cores, torch 2.9.1, torch_xla 2.9.0"
    host, versions = record.host, record.versions
    others = [
        record.model_copy(update={"host": host.model_copy(update={"cpu": "Intel"})}),
        record.model_copy(update={"host": host.model_copy(update={"cores": 4})}),
        record.model_copy(update={"versions": versions | {"torch": "2.11.0"}}),
        record.model_copy(update={"versions": versions | {"torch_xla": "2.9.1"}}),
    ]
    assert len({each.machine for each in (record, *others)}) == 5


def test_processors_are_shortened_to_what_tells_them_apart() -> None:
    assert short_processor("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz") == "Intel Xeon Platinum 8481C"
    assert short_processor("Intel(R) Xeon(R) Processor, 2 cores") == "Intel Xeon, 2 cores"


@pytest.mark.slow
def test_a_record_holds_the_load_of_its_machine(make_job, tmp_path: Path) -> None:
    burn = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(burn) for _ in range(max(1, (os.cpu_count() or 1) // 2))]
    try:
        share = run(make_job(), tmp_path / "out").timing.others_share
    finally:
        for process in others:
            process.kill()
            process.wait()
    assert share is not None and BUSY < share <= 1
