"""The trainer as users meet it: a record whatever happens, the same bits every time, resumed when stopped."""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from columns import SCORES
from conftest import ROOT, TINY, a_job, ran, scores
from cxrbench.common.errors import UserError
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import without_folders
from cxrbench.evidence.store import check_evidence
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.names import Cell
from cxrbench.training.process import parse_events
from cxrbench.training.supervisor import run

from .trainers import start, stop, stub_timm, trainer_of, wait_for_checkpoint

OFTEN = Limits(checkpoint_minutes=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, packed: Path, recipe: Recipe) -> Path:
    """The evidence of one uninterrupted run."""
    folder = tmp_path_factory.mktemp("finished")
    run(a_job(folder, packed, recipe), folder / "out")
    return folder / "out"


def test_a_finished_cell_has_a_whole_record_and_its_predictions(finished: Path, packed, recipe) -> None:
    record = check_evidence(finished, Cell("phantom-32px", TINY, "cpu", 0))
    assert record.status == "ok" and record.phase == "done" and record.failure is None
    assert [one.epoch for one in record.history] == [1, 2]
    assert record.recipe_hash == recipe.hash()
    assert record.timing.train_seconds > 0 and record.timing.images_per_second > 0
    assert record.dataset.images == {"train": 900, "val": 500, "test": 520}
    assert record.host.cores_used == min(2, record.host.cores)
    assert record.versions["torch"].startswith("2.")
    assert str(ROOT) not in (finished / "train.log").read_text()
    predictions = read_predictions(finished / "predictions.parquet")
    index = pd.read_parquet(packed / "index.parquet")
    expected = pd.concat([index[index["split"] == split] for split in ("val", "test")])
    assert predictions["image"].tolist() == expected["image"].tolist()
    assert (predictions["label_Hernia"].to_numpy() == expected["Hernia"].to_numpy()).all()
    assert predictions[SCORES].dtypes.eq("float32").all()


@pytest.mark.slow
def test_the_same_cell_gives_the_same_bits_with_streamed_images(finished, make_job, tmp_path: Path) -> None:
    run(make_job(limits=Limits(resident_gib=0)), tmp_path / "again")
    assert (scores(finished) == scores(tmp_path / "again")).all()


@pytest.mark.slow
def test_a_stopped_run_saves_exits_75_and_resumes_bit_for_bit(finished, make_job, tmp_path) -> None:
    job = make_job(limits=OFTEN)
    stop(job, start(job, tmp_path))
    assert not (tmp_path / "out/record.json").exists()
    record = run(job, tmp_path / "out")
    assert record.status == "ok" and record.attempts == 2
    assert "resumed after step" in (tmp_path / "out/train.log").read_text()
    assert (scores(finished) == scores(tmp_path / "out")).all()


@pytest.mark.slow
@pytest.mark.fault("a second trainer of one cell", "an error that names the first; its lock ends with it")
def test_a_cell_has_one_trainer_and_a_killed_runner_leaves_no_lock(finished, make_job, tmp_path) -> None:
    job = make_job(limits=OFTEN)
    process = start(job, tmp_path)
    wait_for_checkpoint(job, process)
    with pytest.raises(UserError, match=rf"process {process.pid} on .* since .*: kill {process.pid}\); wait"):
        run(job, tmp_path / "out")
    trainer = trainer_of(process)
    process.kill()
    process.wait(60)
    with contextlib.suppress(ProcessLookupError):  # it may have seen its parent go
        os.kill(trainer, signal.SIGKILL)
    assert run(job, tmp_path / "out").attempts == 2
    assert (scores(finished) == scores(tmp_path / "out")).all()
    assert not list(tmp_path.rglob("*.lock"))


def test_the_lock_of_a_lost_node_is_waited_for(make_job) -> None:
    job = make_job()
    with job.locked():
        (lock,) = job.work.parent.glob("*.lock")
        lock.write_text(json.dumps(["a-lost-node", 1, "training it", "2026-01-01T00:00:00+00:00"]))
        waiting = threading.Thread(target=lambda: job.locked().__enter__())
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
    waiting.join(30)
    assert not waiting.is_alive()


def test_two_deaths_without_progress_are_a_crash(make_job, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", stub_timm(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)"))
    record = run(make_job(), tmp_path / "out")
    assert (record.status, record.attempts) == ("crashed", 2)
    assert record.failure.signal == "SIGSEGV" and record.failure.fingerprint == "SIGSEGV"
    check_evidence(tmp_path / "out", Cell("phantom-32px", TINY, "cpu", 0))


@pytest.mark.parametrize("home", ["/", None])
def test_a_log_keeps_its_paths_where_home_is_the_root_or_unknown(home: str | None, monkeypatch) -> None:
    """Containers run as a user without a home."""
    monkeypatch.delenv("HOME")
    if home:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert without_folders(b"read /opt/data/x.npy\n") == "read /opt/data/x.npy\n"


def test_a_loss_that_is_not_a_number_is_diverged(make_job, recipe, tmp_path) -> None:
    wild = recipe.model_copy(update={"learning_rate": 1e30})
    record = run(make_job(recipe=wild), tmp_path / "out")
    assert record.status == "diverged" and "loss is" in record.failure.fingerprint
    assert record.timing.train_seconds > 0
    assert not (tmp_path / "out/predictions.parquet").exists()


@pytest.mark.slow
def test_strict_makes_a_failed_training_an_error_and_keeps_its_record(make_job, recipe, tmp_path) -> None:
    wild = recipe.model_copy(update={"learning_rate": 1e30, "epochs": 1})
    process = start(make_job(recipe=wild), tmp_path, "--strict")
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1 and "diverged" in said
    assert json.loads((tmp_path / "out/record.json").read_text())["status"] == "diverged"


@pytest.mark.slow
def test_too_long_is_timed_out_and_kills_no_later_trainer(make_job, recipe, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cxrbench.training.process._PAUSE", 3)  # between two looks for processes left to kill
    long = make_job("late", recipe=recipe.model_copy(update={"epochs": 99}), limits=Limits(hours=1 / 3600))
    record = run(long, tmp_path / "late out")
    assert record.status == "timed_out" and record.failure.kind == "stopped after 0.000277778 h"
    assert record.timing.total_seconds >= 1  # a failure costs what it took
    assert run(make_job(), tmp_path / "out").attempts == 1


@pytest.mark.slow
def test_a_network_for_another_input_size_is_a_result(make_job, tmp_path) -> None:
    record = run(make_job(architecture="levit_128s"), tmp_path / "out")
    assert record.status == "crashed" and record.failure.fingerprint


@pytest.mark.slow
def test_memory_stays_flat_over_epochs(make_job, recipe, tmp_path) -> None:
    def peak(epochs: int) -> float:
        job = make_job(str(epochs), recipe=recipe.model_copy(update={"epochs": epochs}))
        return run(job, tmp_path / str(epochs) / "out").peak_memory_mib

    assert peak(10) < 1.03 * peak(3)


REFUSED = "import sys; from cxrbench.training.child import main; list(map(main, sys.argv[1:]))"


def test_the_trainer_refuses_what_it_cannot_train(make_job, packed, tmp_path) -> None:
    """In one process, which loads torch once."""
    damaged = shutil.copytree(packed, tmp_path / packed.name)
    images = (damaged / "images.npy").read_bytes()
    (damaged / "images.npy").write_bytes(images[:-1] + bytes([images[-1] ^ 1]))
    mistakes = [
        ({"platform": "cuda"}, "platform cuda cannot run here: there is no NVIDIA driver"),
        ({"platform": "gpu"}, "unknown platform 'gpu'"),
        ({"architecture": "resnet81"}, "unknown architecture 'resnet81'; did you mean 'resnet18'"),
        ({"recipe": Recipe(epochs=1, batch=1024), "micro_batch": 1024}, "fewer than one batch"),
        ({"micro_batch": 48}, "is not a multiple of micro_batch 48"),
        ({"packed": Path("nowhere/d")}, "not packed yet; run `cxrbench data pack d`"),
        ({"packed": damaged}, "images.npy: not the file that was packed"),
    ]
    if Path("/proc/driver/nvidia/version").exists():
        del mistakes[0]
    for number, (changes, _) in enumerate(mistakes):
        (tmp_path / f"{number}.json").write_text(make_job(**changes).model_dump_json())
    done = ran(sys.executable, "-c", REFUSED, *sorted(tmp_path.glob("*.json")), check=True)
    events = [event for line in done.stdout.splitlines() for event in parse_events(line)[0]]
    refused = [event["message"] for event in events if event["event"] == "refused"]
    assert len(refused) == len(mistakes)
    for message, (_, expected) in zip(refused, mistakes, strict=True):
        assert expected in message and "\n" not in message


def test_a_checkpoint_of_another_recipe_is_refused(make_job, recipe, tmp_path) -> None:
    job = make_job(limits=OFTEN)
    stop(job, start(job, tmp_path))
    other = job.model_copy(update={"recipe": recipe.model_copy(update={"weight_decay": 0.1})})
    with pytest.raises(UserError, match="another recipe"):
        run(other, tmp_path / "out")


@pytest.mark.slow
def test_a_damaged_checkpoint_falls_back_to_the_one_before(finished, make_job, tmp_path) -> None:
    job = make_job(limits=OFTEN)
    stop(job, start(job, tmp_path), checkpoints=2)
    newest = max(job.checkpoints.glob("step*"))
    newest.write_bytes(newest.read_bytes()[:-1000])
    record = run(job, tmp_path / "out")
    assert record.status == "ok"
    assert f"checkpoint {newest.name} is damaged" in (tmp_path / "out/train.log").read_text()
    assert (scores(finished) == scores(tmp_path / "out")).all()


@pytest.mark.fault("SIGKILL of the runner at eight random moments", "the same bits as without")
@pytest.mark.slow
def test_eight_kills_at_random_moments_change_no_bit(finished, make_job, tmp_path) -> None:
    rng = random.Random(0)
    job = make_job(limits=OFTEN)
    kills = 0
    while kills < 8:
        process = start(job, tmp_path)
        deadline = time.monotonic() + rng.uniform(0.5, 4)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is not None:  # finished before its moment: begin again with another cell's worth
            assert process.returncode == 0
            assert (scores(finished) == scores(tmp_path / "out")).all()
            shutil.rmtree(tmp_path / "out")
            continue
        process.kill()  # the runner dies, and its trainer with it
        process.wait()
        kills += 1
    record = run(job, tmp_path / "out")
    assert record.status == "ok"
    assert (scores(finished) == scores(tmp_path / "out")).all()
