"""Parallel pre-compilation: the step says what came of it (test_neuron_day.py: of every graph of a run)."""

import json
import sys
from pathlib import Path

import pytest

from conftest import must_fail, ran
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file, write_text
from cxrbench.study import platforms
from cxrbench.study.config import Limits
from cxrbench.training import precompile
from cxrbench.training.child import TRIAL
from training.trainers import custom_network


def summary(graphs: int, succeeded: int, failed: int) -> str:
    """The end of a run as Neuron's documentation shows it (pytorch-neuron-parallel-compile.rst)."""
    counts = {"graphs": graphs, "successful compilations": succeeded, "failed compilations": failed}
    start = "INFO: 2023-08-24 20:21:11.000895:  161136  INFO ||NEURON_PARALLEL_COMPILE||:"
    return "".join(f"{start} Total {words}: {count}\n" for words, count in counts.items())


@pytest.fixture
def machine(tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine that says it has a trn1, with a tool that notes how it was called."""
    monkeypatch.setattr(platforms, "unavailable", lambda name: None)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    cleared = f'[ "$1" = --command ] && {{ echo "$@" >> \'{tmp_path}/cleared\'; exit; }}\n'
    note = f"{cleared}printf '%s\\n' \"$@\" > '{tmp_path}/words'; env > '{tmp_path}/environment'"

    def put(prints: str, code: int = 0) -> None:
        tools("neuron_parallel_compile", prints, f"{note}; exit {code}")

    return put


def test_the_trial_is_started_as_the_trainer_will_be(machine, make_job, tmp_path: Path) -> None:
    machine(summary(2, 2, 0))
    job = make_job(platform="neuron", micro_batch=32, limits=Limits(processes=2))
    result = precompile.precompile(job)
    trainer = [sys.executable, "-m", "cxrbench.training.child", str(job.work / "trial/job.json"), "--trial"]
    assert (tmp_path / "words").read_text().split() == trainer
    assert (tmp_path / "cleared").read_text() == "--command clear-locks\n"  # of an earlier try
    variables = (tmp_path / "environment").read_text()
    assert "NEURON_CC_FLAGS=--auto-cast=none --model-type=generic --optlevel=2" in variables
    assert f"NEURON_COMPILE_CACHE_URL={tmp_path / 'cache'}\n" in variables
    assert "NEURON_PARALLEL_COMPILE_MAX_RETRIES=1\n" in variables
    assert json.loads((job.work / "precompile.json").read_text()) == result
    assert not (job.work / "trial").exists()


# Words of torch_neuronx/parallel_compile/neuron_parallel_compile.py: after a trial that failed (the tool ends
# with 1), and after one of which every graph is in the cache.
FAILED = "ERROR ||NEURON_PARALLEL_COMPILE||: There was an error in the training script.\n"
NONE_NEW = (
    "INFO ||NEURON_PARALLEL_COMPILE||: No todo hlos found in cache or hlo_tasklist, "
    "parallel_compile return before spawning workers....\n"
)


def test_graphs_of_a_device_are_collected_in_a_cache_of_their_own(machine, tools, make_job, tmp_path) -> None:
    job, where = make_job(platform="neuron"), '"$NEURON_COMPILE_CACHE_URL/neuronxcc-2.26/MODULE_$n+a"'
    keeps = f"mkdir -p {where}; echo $n > {where}/model.hlo_module.pb; echo > {where}/model.neff"
    note = f"printf '%s\\n' \"$@\" > '{tmp_path}/words'"
    tools("neuron_parallel_compile", "", f"{note}\nfor n in 1 2; do {keeps}; done")
    assert precompile.collect(job, tmp_path / "graphs") == 2
    assert (tmp_path / "words").read_text().split()[:2] == ["--command", "collect"]
    files = list((tmp_path / "graphs").iterdir())
    assert {file.name for file in files} == {f"{sha256_file(file)}.pb" for file in files} and len(files) == 2
    assert not list((tmp_path / "cache").rglob("*.pb"))  # the machine's own
    machine("")
    with pytest.raises(UserError, match=r"kept no model\.hlo_module\.pb \(see .*precompile\.log"):
        precompile.collect(job, tmp_path / "none")


BATCH_48 = r"/neuron/seed0: the batch of 64 is not a multiple of micro_batch 48 .*\.log"
ONE_FAILS = """import os
        if os.environ['RANK'] == '1': raise ValueError('odd size')
        return super().forward(x)"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("micro_batch", "code", "message"),
    [
        (48, 78, BATCH_48),
        (32, 1, r"exit code 1: ValueError: odd size \(see .*\.log"),  # and not what it does to the other
    ],
)
def test_the_error_of_a_trial_is_told_through_torchrun(
    micro_batch, code, message, machine, make_job, tmp_path, monkeypatch
) -> None:
    """The trial as Neuron's tool would start it, here on the CPU."""
    monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", ONE_FAILS))
    job = make_job(architecture="resnet10t", micro_batch=micro_batch, limits=Limits(processes=2))
    trial = job.model_copy(update={"work": job.work / "as it is tried"})
    done = ran(*trial.command(TRIAL))
    assert done.returncode == code
    machine(f"INFO: trial....{done.stdout}{done.stderr}{FAILED}", code=1)
    with pytest.raises(UserError, match=message):
        precompile.precompile(job.model_copy(update={"platform": "neuron"}))


@pytest.mark.parametrize(
    ("prints", "code", "counts"),
    [(summary(2, 2, 0), 0, (2, 2, 0)), (summary(2, 1, 1), 1, (2, 1, 1)), (NONE_NEW, 0, (None, None, None))],
)
def test_graphs_are_counted_and_failures_left_to_training(prints, code, counts, machine, make_job) -> None:
    machine(prints, code)
    found = precompile.precompile(make_job(platform="neuron"))
    assert (found["graphs"], found["succeeded"], found["failed"]) == counts


NOT_TRIED = summary(0, 0, 0)
NO_LIBRARY = "something\nModuleNotFoundError: No module named 'libneuronxla'\n"


@pytest.mark.parametrize(
    ("prints", "code", "message"),
    [
        (NOT_TRIED, 0, r"compiled none: .* --command clear-locks`, .*precompile\.log"),
        (NO_LIBRARY, 1, r"exit code 1: ModuleNotFoundError: .*precompile\.log"),
    ],
)
def test_a_tool_that_compiles_nothing_is_one_message(prints, code, message, machine, make_job) -> None:
    machine(prints, code)
    with pytest.raises(UserError, match=message):
        precompile.precompile(make_job(platform="neuron"))


def test_what_earlier_tries_took_is_kept(machine, make_job) -> None:
    job = make_job(platform="neuron")
    write_text(job.work / "precompile.json", '{"seconds": 3600.0, "graphs": 2, "succeeded": 0, "failed": 0}')
    machine(NOT_TRIED)
    with pytest.raises(UserError, match="compiled none"):
        precompile.precompile(job)
    failed = json.loads((job.work / "precompile.json").read_text())["seconds"]
    machine(summary(2, 2, 0))
    assert precompile.precompile(job)["seconds"] >= failed >= 3600


def test_mistakes_are_one_sentence(machine, make_job) -> None:
    with pytest.raises(UserError, match="only platform neuron compiles ahead; start"):
        precompile.precompile(make_job())
    with pytest.raises(UserError, match="neuron_parallel_compile is not on the PATH"):
        precompile.precompile(make_job(platform="neuron"))


def test_the_command_says_why_it_cannot(tmp_path: Path) -> None:
    if Path("/dev/neuron0").exists():
        pytest.skip("this machine has a Neuron device")
    message = must_fail("precompile", "nih128-64px/resnet18/neuron/seed0", "--work", tmp_path)
    assert message.startswith("cxrbench: platform neuron cannot run here: there is no Neuron device")
