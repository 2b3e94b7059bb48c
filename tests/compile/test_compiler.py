"""``cxrbench compile`` with a program that stands in for Neuron's compiler; graphs and processes are real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conftest import ROOT, cxrbench
from cxrbench.compile.rules import PARTS
from cxrbench.evidence.compiled import read_compiled
from training.trainers import wait_until

NETWORKS = ("test_resnet", "test_convnext")
SMALL = ("--pixels", "64", "--batch", "2")
MACHINE = "killed", "terminated", "full"


@pytest.fixture(scope="session")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs of two small networks, dumped once."""
    folder = tmp_path_factory.mktemp("graphs")
    done = cxrbench("audit", *NETWORKS, "--pixels", "64", "--batch", "2", "--dump-hlo", folder, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def compile_here(dumped: Path, tmp_path: Path):
    """Run ``cxrbench compile`` in a folder of its own, with the stand-in on PATH in the given mode."""
    shutil.copytree(dumped, tmp_path / "results/compile/graphs")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/neuronx-cc"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{ROOT}/tests/neuronx_cc.py' \"$@\"\n")
    program.chmod(0o755)

    def run(*words: object, mode: str = "", path: str | None = None):
        environment = os.environ | {"STANDIN": mode, "PATH": path or f"{tmp_path}/bin:{os.environ['PATH']}"}
        environment |= {"PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "cxrbench", "compile", *map(str, words), *SMALL]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


def test_a_dumped_graph_is_the_audited_one_with_a_manifest(dumped):
    import neuronx_cc

    manifest = json.loads((dumped / "manifest.json").read_text())
    assert {graph["part"] for graph in manifest["graphs"].values()} == {"forward", "backward", "step"}
    assert all(difference["source"] for difference in manifest["differences"])
    audited = json.loads(
        cxrbench("audit", *NETWORKS, "--pixels", 64, "--batch", 2, "--json", cwd=dumped).stdout
    )
    counts = {(row["architecture"], row["part"]): row["instructions"] for row in audited}
    for file, graph in manifest["graphs"].items():
        read = neuronx_cc.instructions((dumped / file).read_bytes())  # a reader of its own
        assert len(read) == graph["instructions"]
        if graph["part"] in PARTS:
            assert len(read) == counts[graph["network"], graph["part"]]


def test_outcomes_are_records_that_can_be_kept_and_checked(compile_here, tmp_path):
    done = compile_here(*NETWORKS, "--record", "--json")
    assert done.returncode == 0, done.stderr
    rows = {(row["network"], row["part"]): row for row in json.loads(done.stdout)}
    assert {name for name, row in rows.items() if row["status"] != "ok"} == {
        ("test_convnext", "backward"),
        ("test_convnext", "step"),
    }
    assert rows["test_convnext", "step"]["code"] == "NCC_ITEN404"
    assert "not shown by a compilation: that the graph loads" in done.stderr
    records = read_compiled(tmp_path / "data/recorded")
    assert len(records) == 6 and all(record.seconds > 0 for record in records)
    assert all((record.neff is None) == (record.failure is not None) for record in records)
    again = compile_here(*NETWORKS, mode="hang")  # nothing is left to compile
    assert again.returncode == 0 and "NCC_ITEN404" in again.stdout
    twice = compile_here(*NETWORKS, "--record")
    assert twice.returncode == 1 and "--replace" in twice.stderr
    for log in (tmp_path / "data/recorded/compile").rglob("*.log"):
        assert str(tmp_path) not in log.read_text()  # a folder of this machine
    log.write_text("other")
    checked = cxrbench("verify", "--recorded", tmp_path / "data/recorded")
    assert checked.returncode == 1 and log.name in checked.stderr + checked.stdout


@pytest.mark.fault(
    "Neuron's compiler hangs, or needs too much memory", "a record; all its processes are killed"
)
@pytest.mark.parametrize(
    ("mode", "limit", "status"),
    [("hang", ("--hours", "0.0005"), "timed_out"), ("hungry", ("--memory-gib", "0.3"), "out_of_memory")],
)
def test_a_limit_is_an_outcome(compile_here, mode, limit, status):
    done = compile_here("test_resnet", "--part", "forward", *limit, "--json", mode=mode)
    (row,) = json.loads(done.stdout)
    assert row["status"] == status and row["seconds"] > 0, done.stderr
    running = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", "3600.125"] not in running  # what the compiler has started


@pytest.mark.fault("Neuron's compiler is killed from outside, or its disk is full", "one message; no record")
@pytest.mark.parametrize("mode", MACHINE)
def test_the_machines_trouble_is_no_outcome(compile_here, tmp_path, mode):
    done = compile_here("test_resnet", "--part", "forward", "--record", "--json", mode=mode)
    assert done.returncode == 0 and json.loads(done.stdout) == []
    assert done.stderr.count("not recorded: ") == 1 and "Traceback" not in done.stderr
    again = compile_here("test_resnet", "--part", "forward", "--json")
    assert json.loads(again.stdout)[0]["status"] == "ok"


@pytest.mark.fault("Ctrl-C while Neuron's compiler works", "all of it is killed; no record")
def test_ctrl_c_leaves_no_compiler(compile_here, tmp_path):
    compile_here("test_resnet", "--part", "forward", mode="nothing")
    command = [sys.executable, "-m", "cxrbench", "compile", "test_resnet", "--part", "backward", *SMALL]
    environment = os.environ | {"STANDIN": "hang", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(ROOT / "src")}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    logs = tmp_path / "results/compile"
    wait_until(
        lambda: any("read" in log.read_text() for log in logs.rglob("*.work/compile.log")), "log", running
    )
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert not any(
        process.info["cmdline"] == ["sleep", "3600.125"] for process in psutil.process_iter(["cmdline"])
    )
    assert len(list((tmp_path / "results/compile").rglob("trn1.json"))) == 1  # of the first command


@pytest.mark.fault("Neuron's compiler prints half a line, or writes no NEFF", "a record that says so")
@pytest.mark.parametrize(("mode", "code"), [("half", "[NCC_IT"), ("nothing", "read # instructions")])
def test_an_ending_without_a_known_code_is_a_failure(compile_here, mode, code):
    done = compile_here("test_resnet", "--part", "forward", "--json", mode=mode)
    (row,) = json.loads(done.stdout)
    assert row["status"] == "compile_failed" and code in row["code"]


@pytest.mark.fault("no Neuron compiler, or an unusable one", "one message with what to do")
@pytest.mark.parametrize(
    ("words", "mode", "path", "message"),
    [
        ((), "", "/usr/bin:/bin", "neuronx-cc is not on PATH here; install it as docs/neuron.md says"),
        ((), "nameless", None, "ended with 0 and no version (no words)"),
        (("--container", "podmann"), "", None, "use docker or podman"),
        (("--container", "docker"), "", None, "--container needs --image"),
        (("--target", "inf1"), "", None, "--target: unknown value 'inf1'; use trn1 or trn2"),
        (("--part", "backwards"), "", None, "use forward or backward or step"),
    ],
)
def test_a_mistake_is_one_message(compile_here, words, mode, path, message):
    done = compile_here("test_resnet", *words, mode=mode, path=path)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_a_container_gets_the_graph_the_limit_and_no_network(compile_here, tmp_path):
    docker = tmp_path / "bin/docker"  # runs the image's command here, as docker would inside
    docker.write_text(
        "#!/bin/bash\n"
        f'echo "$@" >> {tmp_path}/calls\n'
        "folder=$(echo \"$@\" | grep -o '[^ ]*:/compile-here' | cut -d: -f1)\n"
        'while [ "$1" != neuronx-cc ]; do shift; done\n'
        'eval "${@//\\/compile-here/$folder}"\n'
    )
    docker.chmod(0o755)
    done = compile_here(
        "test_resnet",
        "--part",
        "forward",
        "--container",
        "docker",
        "--image",
        "i:1",
        "--memory-gib",
        4,
        "--json",
    )
    (row,) = json.loads(done.stdout)
    assert row["status"] == "ok" and row["peak_memory_mib"] is None, done.stderr
    call = (tmp_path / "calls").read_text().splitlines()[-1]
    assert "--network=none" in call and "--memory=4g" in call and "--target trn1" in call
