"""What a trainer's last words mean: real public lines, real failures."""

from __future__ import annotations

import csv
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cxrbench.config import Limits
from cxrbench.errors import UserError
from cxrbench.expected import accept, expected_status, read_expected, unexpected
from cxrbench.training.failures import PATTERNS, classify, normalise, unknown
from cxrbench.training.runner import Interrupted, run

from .trainers import custom_network

LINES = list(csv.DictReader((Path(__file__).parent / "neuron_log_lines.csv").open()))


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["source"].rpartition("github.com/")[2])
def test_public_neuron_lines_are_recognised(row: dict[str, str]) -> None:
    log = f"some line before\n{row['line']}\nTraceback (most recent call last):\nRuntimeError: it failed\n"
    status, _, fingerprint = classify(log)
    assert (status, fingerprint) == (row["status"], row["fingerprint"])


def test_every_pattern_and_every_line_names_its_source() -> None:
    assert all(pattern.source for pattern in PATTERNS)
    assert all(row["source"].startswith("github.com/") for row in LINES)


def test_a_line_that_is_cut_in_the_middle_is_no_error() -> None:
    assert classify(LINES[0]["line"][:4]) is None
    assert classify("") is None and unknown("", "setup", None)[2] == "no output"


def test_a_fingerprint_is_the_same_for_the_same_failure() -> None:
    first = "RuntimeError: bad address 0x7f3a91 in /srv/a/net.py after 17 steps"
    second = "RuntimeError: bad address 0x11bc0e in /mnt/b/net.py after 9 steps"
    assert normalise(first) == normalise(second)
    assert normalise(first) != normalise("RuntimeError: another thing")


def test_an_unknown_failure_is_named_by_its_exception_not_by_the_last_line() -> None:
    log = "Traceback (most recent call last):\n  File x\nValueError: odd size\n[W] cleanup\n"
    assert unknown(log, "train", None) == ("crashed", "error in phase train", "ValueError: odd size")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.slow
def test_a_graph_that_xla_does_not_compile_is_a_result(alone, make_job, tmp_path, monkeypatch) -> None:
    # Beside other kernels, torch_xla 2.9's CPU compiler dies of this error with SIGABRT (a double free).
    cut = "torch_xla.sync(wait=True)" if alone else "None"
    call = (
        "import torch_xla; from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call\n"
        f"        y = super().forward(x); {cut}\n"
        "        shapes, types = [list(y.shape)], [y.dtype]\n"
        "        z = stablehlo_custom_call([y], 'no_such_target', shapes, types, api_version=4)\n"
        f"        {cut}; return y + z"
    )
    monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", call))
    record = run(make_job(architecture="broken_net", platform="xla_cpu"), tmp_path / "out")
    assert record.phase == "compile" and record.timing.compile_seconds > 0
    if alone:
        assert (record.status, record.failure.kind) == ("compile_failed", "XLA does not compile the graph")
        assert "no_such_target" in record.failure.fingerprint
    else:
        assert record.status in ("crashed", "compile_failed")


def test_an_exception_in_the_network_is_a_crash_with_its_name(make_job, tmp_path, monkeypatch) -> None:
    path = custom_network(tmp_path / "site", "raise ValueError('odd size')")
    monkeypatch.setenv("PYTHONPATH", path)
    record = run(make_job(architecture="broken_net"), tmp_path / "out")
    assert (record.status, record.phase) == ("crashed", "train")
    assert record.failure.fingerprint == "ValueError: odd size"
    assert record.host.device.startswith("CPU") and record.dataset.images["train"] == 900


def test_a_failure_after_a_halved_micro_batch_is_told_not_the_one_before(
    make_job, tmp_path, monkeypatch
) -> None:
    forward = "if x.shape[0] > 32: raise MemoryError\n        raise ValueError('odd size')"
    monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", forward))
    record = run(make_job(architecture="broken_net", micro_batch=64), tmp_path / "out")
    assert (record.status, record.attempts, record.micro_batch) == ("crashed", 2, 32)
    assert record.failure.fingerprint == "ValueError: odd size"
    assert not any("MemoryError" in line for line in record.failure.last_lines)
    assert "MemoryError" in (tmp_path / "out/train.log").read_text()  # the whole story


@pytest.mark.parametrize(("policy", "status"), [("record", "out_of_memory"), ("halve", "ok")])
@pytest.mark.slow
def test_too_little_memory_is_recorded_or_met_with_smaller_micro_batches(
    policy, status, make_job, recipe, tmp_path, monkeypatch
) -> None:
    greedy = "torch.empty(x.shape[0] * (1 << 26)); return super().forward(x)"  # 256 MiB an image
    monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", greedy))
    short = recipe.model_copy(update={"epochs": 1})
    limits = Limits(memory_gib=8, out_of_memory=policy)
    record = run(make_job(architecture="broken_net", recipe=short, limits=limits), tmp_path / "out")
    assert record.status == status, record.failure
    if policy == "halve":
        assert record.micro_batch == 16 and record.attempts == 3
    else:
        assert record.failure.kind == "out of memory (host)" and record.attempts == 1


@pytest.fixture
def metadata_server():
    """EC2's metadata address on loopback: asks for a token and announces an interruption."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.answer(200, "token" if "api/token" in self.path else "")

        def do_GET(self) -> None:
            asked.append(self.path)
            right = self.headers.get("X-aws-ec2-metadata-token") == "token"
            self.answer(200 if right else 401, '{"action": "terminate"}')

        def answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()


def test_a_spot_notice_saves_and_stops_only_where_it_is_asked_for(
    metadata_server, make_job, tmp_path, monkeypatch
) -> None:
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
    assert unexpected({"d/a/neuron/seed0": "compile_failed", "d/c/cpu/seed0": "ok"}, expected) == []
    assert unexpected({"d/b/cpu/seed0": "ok"}, expected) == [
        "d/b/cpu/seed0: ok, better than expected (diverged)"
    ]
    assert unexpected({"d/c/cpu/seed0": "crashed"}, expected) == [
        "d/c/cpu/seed0: crashed, worse than expected (ok)"
    ]


def test_accepting_writes_what_happened(tmp_path: Path) -> None:
    path = table(tmp_path, "d/b/cpu/seed0,diverged,too hot")
    happened = {"d/b/cpu/seed0": "ok", "d/c/cpu/seed0": "crashed"}
    accept(path, happened, "looked at the log")
    assert unexpected(happened, read_expected(path)) == []
    assert "d/c/cpu/seed0,crashed,looked at the log" in path.read_text()


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 2: unknown status 'failed'"):
        read_expected(table(tmp_path, "d/b/cpu/seed0,failed,x"))
