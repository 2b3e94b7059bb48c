"""One cell over several processes: trained as one does, every image scored once, stopped and resumed."""

import os
import signal

import pandas as pd
import pytest

from columns import SCORES
from cxrbench.evidence.predictions import read_predictions
from cxrbench.study.config import Limits, Recipe
from cxrbench.training.endings import Ending
from cxrbench.training.supervisor import run

from .trainers import children, start, stop, stub_timm, trainer_of, wait_for_checkpoint, wait_until


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    """28 steps without stochastic depth, one thread a process."""
    return Recipe(epochs=2, batch=64, averaging=0.9, threads=1)


TWO = {"micro_batch": 32, "limits": Limits(processes=2, checkpoint_minutes=0)}


@pytest.mark.slow
def test_two_processes_that_were_stopped_train_like_one_and_score_each_image_once(
    make_job, tmp_path, packed
) -> None:
    one = run(make_job("one", architecture="convnext_atto"), tmp_path / "out1")
    job = make_job("two", architecture="convnext_atto", **TWO)
    stop(job, start(job, tmp_path))
    two = run(job, tmp_path / "out2")
    assert (one.status, two.status, two.attempts) == ("ok", "ok", 2), two.failure
    assert "resumed after step" in (tmp_path / "out2/train.log").read_text()
    for a, b in zip(one.history, two.history, strict=True):
        assert b.train_loss == pytest.approx(a.train_loss, rel=1e-4)
        assert b.val_loss == pytest.approx(a.val_loss, rel=1e-4)
    first, second = (read_predictions(tmp_path / name / "predictions.parquet") for name in ("out1", "out2"))
    pd.testing.assert_frame_equal(first.drop(columns=SCORES), second.drop(columns=SCORES))
    assert (first[SCORES] - second[SCORES]).abs().max().max() < 1e-3
    assert two.host.cores_used == min(2, two.host.cores) and two.recipe_hash == one.recipe_hash
    assert two.platform["processes"] == 2 and two.platform["batchnorm_statistics"] == "no BatchNorm"


COUNTS = """from cxrbench.platforms.cpu import CpuPlatform
        CpuPlatform.energy_joules = lambda self: {answer}
        return super().forward(x)"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "joules", "reason"),
    [
        ("(10.0 + self.rank, None)", 21, None),
        ("((None, 'no counter'), (1.0, None))[self.rank == 0]", None, "no counter"),
    ],
    ids=["both", "one has no counter"],
)
def test_energy_is_that_of_all_processes_or_of_none(
    broken_job, tmp_path, answer: str, joules: float | None, reason: str | None
) -> None:
    record = run(broken_job(COUNTS.format(answer=answer), **TWO), tmp_path / "out")
    assert record.status == "ok", record.failure
    assert (record.energy.joules, record.energy.reason) == (joules, reason)


# Its second step never ends, as a long compile does not; nobody hears there that training is to stop.
STALLS = """import os, pathlib, signal
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 2 and "STALL" in os.environ:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            pathlib.Path(os.environ["STALL"], os.environ["RANK"]).touch()
            signal.pause()
        return super().forward(x)"""


@pytest.mark.slow
def test_two_processes_that_do_not_hear_are_interrupted_and_go_on(broken_job, tmp_path) -> None:
    (tmp_path / "stalled").mkdir()
    job = broken_job(STALLS, **TWO)
    process = start(job, tmp_path, STALL=str(tmp_path / "stalled"))
    wait_until(lambda: len(list((tmp_path / "stalled").iterdir())) == 2, "stalled step", process)
    kept = list(job.checkpoints.iterdir())
    process.terminate()
    assert process.wait(120) == Ending.INTERRUPTED.exit_code
    assert not (tmp_path / "out").exists()
    assert kept and list(job.checkpoints.iterdir()) == kept
    record = run(job, tmp_path / "out")
    assert (record.status, record.attempts) == ("ok", 2), record.failure
    assert "resumed after step 1 " in (tmp_path / "out/train.log").read_text()


@pytest.mark.slow
def test_two_processes_go_on_when_one_was_killed(make_job, tmp_path) -> None:
    job = make_job(**TWO)
    process = start(job, tmp_path)
    wait_for_checkpoint(job, process)
    os.kill(children(trainer_of(process))[-1], signal.SIGKILL)
    assert process.wait(300) == 0
    assert '"attempts": 2' in (tmp_path / "out/record.json").read_text()
    assert "resumed after step" in (tmp_path / "out/train.log").read_text()


@pytest.mark.slow
def test_a_process_that_crashes_counts_as_a_crashed_trainer(make_job, tmp_path, monkeypatch) -> None:
    dies = (
        "import __main__\n"
        "if os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "while not __main__._stops:\n"  # torchrun stops the other one, which then fails
        "    time.sleep(0.01)\n"
        "raise RuntimeError('stopped')"
    )
    monkeypatch.setenv("PYTHONPATH", stub_timm(tmp_path, dies))
    record = run(make_job(**TWO), tmp_path / "out")
    assert (record.status, record.attempts) == ("crashed", 2)
    failure = record.failure
    assert (failure.signal, failure.fingerprint, failure.returncode) == ("SIGSEGV", "SIGSEGV", None)


@pytest.mark.slow
def test_the_exception_of_one_process_is_named_not_what_it_does_to_the_other(broken_job, tmp_path) -> None:
    odd = "import os\n        if os.environ['RANK'] == '1': raise ValueError('odd size')"
    record = run(broken_job(f"{odd}\n        return super().forward(x)", **TWO), tmp_path / "out")
    assert (record.status, record.phase, record.attempts) == ("crashed", "train", 1)
    failure = record.failure
    assert (failure.fingerprint, failure.returncode) == ("ValueError: odd size", 1)
    assert not any("ChildFailedError" in line for line in failure.last_lines)
