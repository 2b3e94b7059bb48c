"""What a trainer's last words mean: real public lines, real failures."""

import csv
import json
import signal
import tomllib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import psutil
import pytest

from conftest import ROOT, serving
from cxrbench.common.errors import UserError
from cxrbench.evidence.expected import accept, expected_status, read_expected, unexpected
from cxrbench.study.config import Limits, Recipe
from cxrbench.training.endings import Ending, classify, error_line, normalise
from cxrbench.training.job import Job
from cxrbench.training.process import EVENT
from cxrbench.training.supervisor import Interrupted, run

from .trainers import start, stop, stub_timm, wait_until, wall_seconds

LINES = [
    row
    for name in ("neuron_log_lines.csv", "log_lines.csv")
    for row in csv.DictReader((Path(__file__).parent / name).open())
]
PHASES = ("setup", "compile", "train", "evaluate")


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["source"].rpartition("github.com/")[2])
def test_public_lines_are_recognised(row: dict[str, str]) -> None:
    log = f"some line before\n{row['line']}\nTraceback (most recent call last):\nRuntimeError: it failed\n"
    status, _, fingerprint, *_ = classify(log)
    assert (status or "machine", fingerprint) == (row["status"], row["fingerprint"])


def test_every_pattern_has_a_line_that_it_is_for() -> None:
    known = tomllib.loads((ROOT / "src/cxrbench/training/failures.toml").read_text())["pattern"]
    codes = csv.DictReader((Path(__file__).parent / "neuron_codes.csv").open())
    texts = [row["line"] for row in LINES] + [f"[{row['code']}] in nrt_execute()" for row in codes]
    unseen = {entry["kind"] for entry in known} - {found.kind for text in texts if (found := classify(text))}
    assert unseen == set()


def dying(job, monkeypatch, tmp_path: Path, phase: str, line: str) -> None:
    """Let the job's trainer be a shell that reaches a phase, prints a line and fails."""
    said = tmp_path / "said"
    said.write_text(f'{EVENT}{{"event": "phase", "phase": "{phase}"}}\n{line}\n')
    monkeypatch.setattr(type(job), "command", lambda self: ["/bin/sh", "-c", f"cat {said}; exit 1"])


def judged_at(phase: str, row: dict[str, str], make_job, monkeypatch, tmp_path: Path) -> None:
    """A line at a phase is an outcome of the cell where the table says so, else an error and no record."""
    job, out = make_job(limits=Limits(out_of_memory="record", memory_gib=64)), tmp_path / "out"
    dying(job, monkeypatch, tmp_path, phase, row["line"])
    # Want of host memory is a result where the cell says how much it may have.
    if row["status"] == "machine" and "DefaultCPUAllocator" not in row["line"]:
        with pytest.raises(UserError, match=f"in phase {phase}: .*then run this again"):
            run(job, out)
        assert not out.exists() and job.work.exists()
    else:
        record = run(job, out)
        status = "out_of_memory" if row["status"] == "machine" else row["status"]
        assert (record.status, record.phase, record.failure.kind != "") == (status, phase, True)


@pytest.mark.fault("a fault of the machine at any phase", "an error with a remedy; no record, state kept")
@pytest.mark.parametrize("number", range(len(LINES)))
def test_an_outcome_is_only_what_the_network_causes(number, make_job, monkeypatch, tmp_path: Path) -> None:
    judged_at(PHASES[number % len(PHASES)], LINES[number], make_job, monkeypatch, tmp_path)


@pytest.mark.fault(
    "cuDNN has no engine for a depthwise convolution", "once more without cuDNN, in the record"
)
def test_what_failed_is_left_out_once_before_the_failure_counts(
    make_job, monkeypatch, tmp_path: Path
) -> None:
    job, command = make_job(), Job.command
    first, then = (
        "GET was unable to find an engine to execute this computation",
        "device-side assert triggered",
    )
    script = (
        f"if grep -q cudnn_depthwise {job.work}/job.json; then echo 'RuntimeError: CUDA error: {then}'; "
        f"else echo 'RuntimeError: {first}'; fi; exit 1"
    )
    monkeypatch.setattr(Job, "command", lambda self: [command(self), ["/bin/sh", "-c", script]][1])
    record = run(job, tmp_path / "out")
    assert (record.status, record.attempts, record.failure.fingerprint) == ("crashed", 2, then)


def test_a_step_that_cannot_be_recorded_is_taken_without_in_a_new_process(broken_job, tmp_path) -> None:
    raises = "from cxrbench.study.platforms import RecordingFailed; raise RecordingFailed('no memory left')"
    job = broken_job(raises)
    record = run(job, tmp_path / "out")
    assert json.loads((job.work / "job.json").read_text())["without"] == {"recording": "no memory left"}
    assert (record.status, record.attempts) == ("crashed", 2)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_an_outcome_is_so_at_every_phase(phase, make_job, monkeypatch, tmp_path: Path) -> None:
    for number, row in enumerate(LINES):
        (folder := tmp_path / str(number)).mkdir()
        judged_at(phase, row, lambda it=number, **how: make_job(f"{it}", **how), monkeypatch, folder)


def test_a_fingerprint_is_the_same_for_the_same_failure() -> None:
    first = "RuntimeError: bad address 0x7f3a91 in /srv/a/net.py after 17 steps"
    second = "RuntimeError: bad address 0x11bc0e in /mnt/b/net.py after 9 steps"
    assert normalise(first) == normalise(second)
    assert normalise(first) != normalise("RuntimeError: another thing")


def test_an_unknown_failure_is_named_by_its_exception_not_by_the_last_line() -> None:
    log = "Traceback (most recent call last):\n  File x\nValueError: odd size\n[W] cleanup\n"
    assert error_line(log) == "ValueError: odd size"
    assert classify("") is None and error_line("") == "no output"


@pytest.mark.slow
def test_a_graph_that_xla_does_not_compile_is_a_result(broken_job, tmp_path) -> None:
    # In a graph of its own: beside other kernels, torch_xla 2.9's CPU compiler dies of it (a double free).
    cut = "torch_xla.sync(wait=True)"
    call = (
        "import torch_xla; from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call\n"
        f"        y = super().forward(x); {cut}\n"
        "        shapes, types = [list(y.shape)], [y.dtype]\n"
        "        z = stablehlo_custom_call([y], 'no_such_target', shapes, types, api_version=4)\n"
        f"        {cut}; return y + z"
    )
    record = run(broken_job(call, platform="xla_cpu"), tmp_path / "out")
    assert record.phase == "compile" and record.timing.compile_seconds > 0
    assert (record.status, record.failure.kind) == ("compile_failed", "XLA does not compile the graph")
    assert "no_such_target" in record.failure.fingerprint


def test_memory_that_ends_in_other_words_is_out_of_memory() -> None:
    for line in (
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Out of memory allocating 4294967296 bytes.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ):
        assert classify(line)[0] == "out_of_memory", line


# A compiler in the trainer's group, one in a session of its own, one with another environment.
HANGS = """import os, subprocess, time
        ways = {}, {"start_new_session": True}, {"env": {"PATH": os.environ["PATH"]}}
        compilers = [subprocess.Popen(["sleep", "1000"], **how) for how in ways]
        open(os.environ["COMPILERS"], "w").write(" ".join(str(one.pid) for one in compilers))
        time.sleep(1000)"""


def ended(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def test_a_compiler_that_hangs_ends_with_its_trainer(broken_job, tmp_path) -> None:
    compilers = tmp_path / "compilers"
    process = start(broken_job(HANGS), tmp_path, COMPILERS=str(compilers))
    wait_until(lambda: compilers.exists() and compilers.read_text(), "compiler", process)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the third one kills
        process.send_signal(number)
    assert process.wait(60) == Ending.INTERRUPTED.exit_code
    assert [ended(int(word)) for word in compilers.read_text().split()] == [True] * 3


ORPHANS = """import os, signal, subprocess
        compiler = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        open(os.environ["COMPILER"], "w").write(str(compiler.pid))
        os.kill(os.getpid(), signal.SIGSEGV)"""


def test_an_orphaned_compiler_does_not_keep_the_cell_waiting(broken_job, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COMPILER", str(tmp_path / "compiler"))
    record = run(broken_job(ORPHANS, limits=Limits(hours=120 / 3600)), tmp_path / "out")
    assert (record.status, record.failure.signal) == ("crashed", "SIGSEGV")
    assert ended(int((tmp_path / "compiler").read_text()))


FAILS = """import os
        if "FAIL" in os.environ: raise ValueError("odd size")
        return super().forward(x)"""


@pytest.mark.slow
@pytest.mark.fault("a trainer that crashes", "a record; checkpoints and log kept until it is trained anew")
def test_a_crash_keeps_its_work_folder_until_trained_anew(broken_job, tmp_path, monkeypatch) -> None:
    job = broken_job(FAILS, recipe=Recipe(epochs=1, batch=64))
    notes = job.work.parents[3] / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    monkeypatch.setenv("FAIL", "1")
    record = run(job, tmp_path / "out")
    assert (record.status, record.phase) == ("crashed", "train")
    assert record.failure.kind == "error in phase train"
    assert record.failure.fingerprint == "ValueError: odd size"
    assert record.host.device.startswith("CPU") and record.dataset.images["train"] == 900
    assert "ValueError: odd size" in (job.work / "train.log").read_text()
    monkeypatch.delenv("FAIL")
    record = run(job, tmp_path / "out")
    assert (record.status, record.attempts) == ("ok", 1)
    assert "odd size" not in (tmp_path / "out/train.log").read_text()
    assert notes.exists() and not job.work.exists()


def test_an_environment_that_cannot_train_is_no_result(make_job, tmp_path, monkeypatch) -> None:
    raises = "raise ImportError('libcudnn.so.9: cannot open shared object file')"
    monkeypatch.setenv("PYTHONPATH", stub_timm(tmp_path, raises))
    with pytest.raises(UserError, match=r"the environment cannot train: libcudnn\.so\.9"):
        run(make_job(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_cell_that_fails_when_resumed_keeps_what_was_before(broken_job, tmp_path, monkeypatch) -> None:
    job = broken_job(FAILS, recipe=Recipe(epochs=50, batch=64))
    stop(job, start(job, tmp_path))
    monkeypatch.setenv("FAIL", "1")
    record = run(job, tmp_path / "out")
    assert (record.status, record.attempts) == ("crashed", 2)
    assert record.history and record.timing.images_per_second
    timing = record.timing
    assert timing.setup_seconds and timing.train_seconds and timing.evaluate_seconds
    assert timing.total_seconds <= wall_seconds(record) + 1


def test_a_failure_after_a_halved_micro_batch_is_told_not_the_one_before(broken_job, tmp_path) -> None:
    forward = "if x.shape[0] > 32: raise MemoryError\n        raise ValueError('odd size')"
    record = run(broken_job(forward, micro_batch=64), tmp_path / "out")
    assert (record.status, record.attempts, record.micro_batch) == ("crashed", 2, 32)
    assert record.failure.fingerprint == "ValueError: odd size"
    assert not any("MemoryError" in line for line in record.failure.last_lines)
    assert "MemoryError" in (tmp_path / "out/train.log").read_text()  # the whole story


@pytest.mark.parametrize(("policy", "status"), [("record", "out_of_memory"), ("halve", "ok")])
@pytest.mark.slow
def test_too_little_memory_is_recorded_or_halves_batches(
    policy, status, broken_job, recipe, tmp_path
) -> None:
    greedy = "torch.empty(x.shape[0] * (1 << 26)); return super().forward(x)"  # 256 MiB an image
    short = recipe.model_copy(update={"epochs": 1})
    limits = Limits(memory_gib=8, out_of_memory=policy)
    record = run(broken_job(greedy, recipe=short, limits=limits), tmp_path / "out")
    assert record.status == status, record.failure
    if policy == "halve":
        assert record.micro_batch == 16 and record.attempts == 3
        # Those of the attempts that ran out of memory too.
        assert record.timing.total_seconds >= wall_seconds(record) - 3
    else:
        assert record.failure.kind == "out of memory (host)" and record.attempts == 1


@pytest.fixture
def metadata_server():
    """EC2's metadata address on loopback: asks for a token and announces an interruption."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"token" if "api/token" in self.path else b"")

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.headers["X-aws-ec2-metadata-token"] == "token" else 401)
            self.end_headers()

    with serving(Handler) as address:
        yield address, asked


@pytest.mark.slow
def test_a_spot_notice_stops_where_it_is_asked_for(metadata_server, make_job, tmp_path, monkeypatch) -> None:
    address, asked = metadata_server
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
    assert run(make_job("plain"), tmp_path / "plain").status == "ok"
    assert asked == []
    with pytest.raises(Interrupted):
        run(make_job("spot", limits=Limits(spot_notice=True)), tmp_path / "spot")
    assert asked == ["/latest/meta-data/spot/instance-action"]
    assert not (tmp_path / "spot/record.json").exists()


def table(folder: Path, *lines: str) -> Path:
    path = folder / "expected_status.csv"
    path.write_text("\n".join(["cell,status,reason", *lines]) + "\n")
    return path


def test_worse_and_better_than_expected_are_both_told(tmp_path: Path) -> None:
    path = table(tmp_path, "d/a/neuron/*,compile_failed,reported", "d/b/cpu/seed0,diverged,too hot")
    expected = read_expected(path)
    assert expected_status("d/a/neuron/seed3", expected) == "compile_failed"
    happened = {"d/a/neuron/seed0": "compile_failed", "d/b/cpu/seed0": "ok", "d/c/cpu/seed0": "crashed"}
    assert unexpected(happened, expected) == [
        "d/b/cpu/seed0: ok, better than expected (diverged)",
        "d/c/cpu/seed0: crashed, worse than expected (ok)",
    ]


def test_accepting_writes_what_happened_and_changes_what_no_other_should_be(tmp_path: Path) -> None:
    patterns = "d/*/neuron/*,compile_failed,reported", "*/b/neuron/*,ok,tried"
    path = table(tmp_path, *patterns, "d/c/cpu/seed0,diverged,too hot")
    happened = {"d/a/neuron/seed0": "ok", "d/a/neuron/seed1": "compile_failed"}
    happened |= {"d/c/cpu/seed0": "ok", "d/e/cpu/seed0": "crashed"}
    accept(path, happened, "looked at the log")
    assert unexpected(happened, read_expected(path)) == []
    assert expected_status("d/b/neuron/seed0", read_expected(path)) == "ok"
    text = path.read_text()
    assert ",looked at the log" in text and all(pattern in text for pattern in patterns)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=":2: column status: unknown value 'failed'"):
        read_expected(table(tmp_path, "d/b/cpu/seed0,failed,x"))
