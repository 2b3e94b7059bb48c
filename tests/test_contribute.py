"""From a stranger's machine to a merged record: `cxrbench contribute` in one clone, --receive in another."""

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from conftest import ROOT, SIZES, TINY, clone_of_the_tree, keep_recorded, must_fail, must_work, ran
from cxrbench.cli import app
from cxrbench.evidence.record import Record, read_record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.statistics import components
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell
from cxrbench.training import queue
from training.trainers import wait_until

CELLS = [Cell("phantom-few", TINY, "cpu", seed) for seed in (0, 1, 2)]
STUDY = read_study(ROOT / "config/config.yaml")


def small_study(**changes: Any) -> str:
    dataset = {"source": "phantom", "pixels": 32, "recipe": "r"}
    dataset |= {"images": SIZES}
    cells = {
        "dataset": "phantom-few",
        "architectures": [TINY],
        "platforms": ["cpu", "cuda"],
        "seeds": [0, 1, 2],
    }
    recipe = {"epochs": 1, "batch": 64, "averaging": 0.5}
    study = {"datasets": {"phantom-few": dataset}, "recipes": {"r": recipe}, "cells": [cells]}
    return yaml.safe_dump(study | changes)


def git(folder: Path, *words: object) -> str:
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org", "-c", "commit.gpgsign=false")
    return ran("git", *who, *words, cwd=folder, check=True).stdout


def clones(folder: Path, *recorded: str) -> tuple[Path, Path]:
    """Two clones of this tree, with its history, the small study and only these ``recorded`` cells."""
    first, second = folder / "first", folder / "second"
    git(folder, "clone", "-q", ROOT, first)
    clone_of_the_tree(first)
    keep_recorded(first, *recorded)
    (first / "config/config.yaml").write_text(small_study())
    git(first, "add", "-A")
    git(first, "commit", "-qm", "A small study")
    git(folder, "clone", "-q", first, second)
    return first, second


def of(clone: Path) -> dict[str, Any]:
    return {"cwd": clone, "env": os.environ | {"PYTHONPATH": str(clone / "src"), "USER": "wilhelmine"}}


@pytest.mark.slow
def test_a_strangers_records_reach_the_paper_of_another_clone(tmp_path: Path) -> None:
    mine, theirs = clones(tmp_path, "phantom-32px/resnet18/cpu/seed0")
    command = ("python", "-m", "cxrbench", "contribute", "--bench-minutes", "0")
    first = ran(*command, CELLS[0], **of(mine))
    assert first.returncode == 0, first.stderr[-3000:]
    assert "download: nothing" in first.stderr and "this command sends nothing" in " ".join(
        first.stderr.split()
    )
    done = ran(*command, "--platform", "cpu", "--hours", "1", **of(mine))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "(1 more are trained already)" in " ".join(done.stderr.split())
    (archive,) = (mine / "results").glob("contribution-*.tar.gz")
    whole = gzip.decompress(archive.read_bytes())
    names = (word for word in (socket.gethostname(), str(Path.home())) if len(word) > 5)  # shorter: by chance
    for word in (str(tmp_path), "wilhelmine", *names):
        assert word.encode() not in whole
    received = ran("python", "-m", "cxrbench", "contribute", "--receive", archive, **of(theirs))
    assert received.returncode == 0, received.stderr[-3000:]
    changes = received.stdout.partition("What changes in the paper:")[2]
    assert "cost:" in changes and "+" in changes and TINY in changes.replace("\\_", "_")
    assert "data/recorded/phantom-few/" in git(theirs, "status", "--porcelain", "-uall")
    assert "4 recorded cells are intact" in must_work("verify", cwd=theirs).stdout
    for cell in CELLS:
        assert (
            read_record(cell.folder(theirs / "data/recorded")).commit
            == git(mine, "rev-parse", "HEAD").strip()
        )
    (mine / "src/cxrbench/new.py").write_text("")
    assert "this code differs from commit" in ran(*command, CELLS[0], **of(mine)).stderr


def must_end(*words: object, **how: Any) -> str:
    """The messages of a command that works, in one line."""
    done = ran(*words, **how)
    assert done.returncode == 0, done.stderr[-3000:]
    return " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.fault("Ctrl-C during a contribution", "exit code 75; the same command goes on")
def test_after_an_interruption_the_same_command_goes_on(tmp_path: Path) -> None:
    mine, _ = clones(tmp_path, "phantom-32px/resnet18/cpu/seed0")
    cells, results = CELLS[:2], mine / "results"
    command = (sys.executable, "-m", "cxrbench", "contribute", "--bench-minutes", "0", *map(str, cells))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, start_new_session=True, **pipes, **of(mine))
    wait_until((cells[0].folder(results / "checkpoints") / "job.json").exists, "training", first)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal sends it
    said = first.communicate()[1]
    assert first.returncode == 75 and "Traceback" not in said, said
    assert not list(results.glob("contribution-*")) and not cells[1].folder(results / "runs").exists()
    must_end(*command, **of(mine))
    assert all((cell.folder(results / "runs") / "record.json").exists() for cell in cells)
    assert len(list(results.glob("contribution-*.tar.gz"))) == 1


UNLIKE = """
from cxrbench.platforms.cpu import CpuPlatform


class Unlike(CpuPlatform):
    name = "unlike"

    def network(self, network):
        network.bn1.eps = 1.0
        return super().network(network)
"""


@pytest.mark.slow
@pytest.mark.fault("a contribution from a device with a wrong operator", "the operator; nothing is trained")
def test_the_operator_that_drifts_is_named_and_nothing_is_trained(tmp_path: Path) -> None:
    clone_of_the_tree(mine := tmp_path / "mine")
    (mine / "src/cxrbench/platforms/unlike.py").write_text(UNLIKE)
    names = mine / "src/cxrbench/study/platforms.py"
    head = "ENTRIES: dict[str, Entry] = {\n"
    names.write_text(names.read_text().replace(head, f'{head}    "unlike": Entry("unlike", "Unlike"),\n'))
    (mine / "config/config.yaml").write_text(small_study())
    cell = Cell("phantom-few", TINY, "unlike", 0)
    how = of(mine)
    how["env"]["CXRBENCH_COMMIT"] = "0" * 40
    done = ran(sys.executable, "-m", "cxrbench", "contribute", cell, **how)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert (
        f"{cell} is not trained, its step differs from the exact one: bn1 (BatchNorm2d): "
    ) in done.stderr.splitlines()[-1]
    assert not (mine / "results/runs").exists()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the small study; the code counts as that of a commit."""
    monkeypatch.setenv("CXRBENCH_COMMIT", "0" * 40)
    (tmp_path / "config").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "config/config.yaml").write_text(small_study())
    (tmp_path / "data/registry.csv").write_text((ROOT / "data/registry.csv").read_text())
    return tmp_path


def test_it_says_first_what_it_will_do_and_send(place: Path) -> None:
    said = " ".join(must_work("contribute", *CELLS[:2], "--dry-run", cwd=place).stderr.split())
    for words in (
        "machine: ",
        f"to train: {CELLS[0]}, {CELLS[1]} time: unknown; nothing is recorded of 2 cells",
        "sends nothing",
    ):
        assert words in said
    assert not (place / "results/runs").exists()


@pytest.mark.slow
@pytest.mark.fault(
    "a contribution from a machine or a checkout that cannot give one", "one message, before any work"
)
@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ([CELLS[0]], {"limits": {"memory_gib": 10**6}}, "GiB of memory, this machine has"),
        ([CELLS[0], "phantom-few/resnet18/xla_cpu/seed0"], {}, "contribute them one after the other"),
        (["phantom-few/resnet81/cpu/seed0"], {}, "timm knows no architecture 'resnet81'"),
        (["phantom-fwe/resnet18/cpu/seed0"], {}, "did you mean 'phantom-few'"),
        (["--platform", "cpu", "--hours", "0"], {}, "nothing"),
    ],
)
def test_what_cannot_be_contributed_is_one_message(
    place: Path, words: Any, changes: Any, message: str
) -> None:
    (place / "config/config.yaml").write_text(small_study(**changes))
    if message == "nothing":
        (place / "config/config.yaml").write_text(small_study(cells=[]))
        message = "no planned cell of cpu"
    said = must_fail("contribute", *words, cwd=place)
    assert message in " ".join(said.split()) and not (place / "results/runs").exists()


def test_changed_code_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRBENCH_COMMIT", f"{'0' * 40}-dirty")
    assert "this code differs from commit 000000000000" in must_fail("contribute", CELLS[0], cwd=place)


def test_another_torch_than_the_locks_is_said_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("cxrbench.cli.contributor.installed", lambda name: {"torch": "2.7.0"}.get(name))
    said = CliRunner().invoke(app, ["contribute", str(CELLS[0]), "--dry-run"]).output
    assert re.search(r"^torch is 2[.]7[.]0, the lock has \S+: the record says so$", said, re.M), said


def test_a_download_starts_only_when_asked_for_and_where_there_is_room(place: Path) -> None:
    cell = f"nih128-64px/{TINY}/cpu/seed0"
    words = ("contribute", cell, "--study", ROOT / "config/config.yaml")
    assert "add --fetch" in must_fail(*words, cwd=place, code=3)
    registry = place / "data/registry.csv"
    registry.write_text(registry.read_text().replace("3952623504", "39526235040000000"))
    assert "GB are needed" in must_fail(*words, "--fetch", cwd=place)


def recorded(*names: str) -> dict[Cell, Record]:
    store = EvidenceStore(ROOT / "data/recorded")
    run = store.record(Cell.parse("nih128-64px/resnet18/cpu/seed0"))
    assert run
    return {Cell.parse(name): run for name in names}


def test_seeds_of_one_network_come_first_where_a_verdict_is_nearest() -> None:
    assert queue.VERDICT == components.MIN_SEEDS
    names = [
        f"nih128-64px/{network}/cpu/seed{seed}" for network in ("resnet18", "resnet50") for seed in (0, 1, 2)
    ]
    records = recorded(
        *names, "nih128-64px/resnet50/cuda/seed1", *(f"phantom-32px/resnet18/cpu/seed{n}" for n in "012")
    )
    order = queue.in_order(STUDY, records, "cuda")
    assert [str(cell) for cell in order[:3]] == [
        *(f"nih128-64px/resnet50/cuda/seed{seed}" for seed in (0, 2)), "nih128-64px/resnet50/cuda/seed3"
    ]  # fmt: skip
    assert {cell.dataset for cell in order[-6:]} == {"phantom-32px"} and len(set(order)) == len(order)
    records |= dict.fromkeys(order[:2], records[Cell.parse(names[0])])
    assert str(queue.in_order(STUDY, records, "cuda")[0]) == "nih128-64px/resnet18/cuda/seed0"


def test_as_many_fit_as_the_hours_allow_and_an_unknown_length_only_alone() -> None:
    records = recorded("nih128-64px/resnet18/cpu/seed0")
    order = queue.in_order(STUDY, records, "cuda")
    minutes = queue.minutes_of(order[0], STUDY, records)
    assert minutes and minutes == pytest.approx(16.2, abs=0.1)
    chosen = queue.fitting(order, 2.5 * minutes / 60, STUDY, records)
    assert [str(cell) for cell in chosen] == [f"nih128-64px/resnet18/cuda/seed{seed}" for seed in (0, 1)]
    assert queue.fitting(order, 0.01, STUDY, records) == []
    assert len(queue.fitting(queue.in_order(STUDY, {}, "cuda"), 1, STUDY, {})) == 1
