"""The machine's trouble is never evidence: no record, a message, and the state kept for the next call."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from cxrbench.common.errors import UserError
from cxrbench.study import platforms
from cxrbench.study.config import Limits
from cxrbench.training.job import checkpoints
from cxrbench.training.supervisor import ATTEMPTS, run

from .trainers import start, stub_timm

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


def on(disk: Path, job):
    """``job`` with its work folder on ``disk``."""
    return job.model_copy(update={"work": job.cell.folder(disk)})


def refusal(process: subprocess.Popen) -> str:
    """The message of a `cxrbench train` that ends with an error, not with a traceback of the runner."""
    message = process.communicate(timeout=300)[1]
    assert process.returncode == 1, message
    assert "Traceback" not in message
    return message


@pytest.mark.slow
@pytest.mark.fault("the disk fills while a checkpoint is saved", "exit code 1, the file, and how to go on")
def test_a_full_disk_while_saving_is_an_error_and_training_goes_on(small_disk, make_job, tmp_path) -> None:
    job = on(small_disk("size=14m"), make_job(limits=Limits(checkpoint_minutes=0)))
    assert "new.pt: the disk is full; free some space" in refusal(start(job, tmp_path))
    assert not (tmp_path / "out").exists() and checkpoints(job.checkpoints)
    small_disk("size=200m")
    record = run(job, tmp_path / "out")
    assert (record.status, record.attempts) == ("ok", 2)
    assert "resumed after step" in (tmp_path / "out/train.log").read_text()


@pytest.mark.slow
@pytest.mark.fault("a limit on the size of files (ulimit -f)", "exit code 1 and what the system refused")
def test_a_file_that_may_not_grow_is_an_error(make_job, tmp_path) -> None:
    process = start(make_job(), tmp_path)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2**20, 2**20))
    assert "File too large" in refusal(process)
    assert not (tmp_path / "out").exists()


@pytest.mark.fault("the disk fills under the log", "exit code 1, the folder, and how to go on")
def test_a_log_that_fills_the_disk_is_an_error(small_disk, broken_job, tmp_path) -> None:
    job = on(small_disk("size=1m"), broken_job("print('x' * 2**21); return super().forward(x)"))
    assert "the disk is full; free some space on" in refusal(start(job, tmp_path))
    assert not (tmp_path / "out").exists() and (job.work / ATTEMPTS).exists()


@pytest.mark.slow
@pytest.mark.fault("the disk is full when the evidence is written", "an error; no half of it; the state kept")
def test_evidence_that_finds_no_room_is_an_error_and_written_later(small_disk, make_job, tmp_path) -> None:
    disk, job = small_disk("size=16k"), make_job()
    with pytest.raises(UserError, match="the disk is full"):
        run(job, disk / "out")
    assert list((disk / "out").iterdir()) == []
    assert checkpoints(job.checkpoints)
    assert run(job, tmp_path / "out").status == "ok"
    assert not job.work.exists()


@pytest.mark.fault("evidence may not be written", "an error before anything is trained")
def test_a_read_only_place_is_refused_before_training(small_disk, make_job) -> None:
    disk = small_disk("size=1m,ro")
    with pytest.raises(UserError, match=r"disk: this may not be written; change its permissions"):
        run(make_job(), disk / "out")


@pytest.mark.fault("the host has no memory for the trainer", "an error that names limits.memory_gib")
def test_host_memory_that_no_limit_declares_is_an_error(broken_job, tmp_path) -> None:
    job = broken_job("torch.empty(1 << 50)", limits=Limits(out_of_memory="record"))
    with pytest.raises(UserError, match=r"out of memory \(host\) .* declare it as limits\.memory_gib"):
        run(job, tmp_path / "out")
    assert not (tmp_path / "out").exists() and (job.work / ATTEMPTS).exists()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.fault("the kernel kills the trainer for want of memory", "an error that says so")
def test_the_kernels_killer_is_no_crash(broken_job, tmp_path) -> None:
    group = MEMORY_GROUPS / f"cxrbench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group with a memory limit can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(2**30))
        process = start(broken_job("torch.ones(1 << 30); return super().forward(x)"), tmp_path)
        (group / "cgroup.procs").write_text(str(process.pid))
        assert "the kernel killed a process for want of host memory" in refusal(process)
        assert not (tmp_path / "out").exists()
    finally:
        group.rmdir()


@pytest.mark.fault("an interrupted compilation leaves a lock", "the next start clears it before it compiles")
def test_locks_are_cleared_at_every_start_but_the_first(make_job, tmp_path, monkeypatch) -> None:
    job, cleared = make_job(platform="gpu"), []
    monkeypatch.setattr(platforms, "recover", cleared.append)
    for before in ([], ["gpu"]):
        with pytest.raises(UserError, match="unknown platform 'gpu'"):
            run(job, tmp_path / "out")
        assert cleared == before


# Killed at the third step of each start, as often as there are letters in the file.
KILLS = """import os, signal, pathlib
        self.calls, left = getattr(self, "calls", 0) + 1, pathlib.Path(os.environ["KILLS"])
        if self.calls == 3 and left.read_text():
            left.write_text(left.read_text()[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)"""


@pytest.mark.slow
@pytest.mark.fault(
    "SIGKILL of the trainer, thrice between checkpoints", "it resumes each time; the record is ok"
)
def test_kills_between_checkpoints_are_no_crash(broken_job, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KILLS", str(tmp_path / "kills"))
    (tmp_path / "kills").write_text("xxx")
    record = run(broken_job(KILLS), tmp_path / "out")
    assert (record.status, record.attempts) == ("ok", 4), record.failure


@pytest.mark.fault("SIGKILL of the trainer whenever it starts", "an error after two; the state kept")
def test_kills_before_any_step_are_an_error(make_job, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", stub_timm(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    job = make_job()
    with pytest.raises(UserError, match="SIGKILL from outside ended the trainer twice in phase setup"):
        run(job, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert '"count": 2' in (job.work / ATTEMPTS).read_text()
