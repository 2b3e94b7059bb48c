"""``cxrbench compile`` with a program that stands in for Neuron's compiler; graphs and processes are real."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

import neuronx_cc
from conftest import must_fail, must_work
from cxrbench.common.errors import UserError
from cxrbench.evidence.compiled import read_compiled
from cxrbench.neuron import compiler
from cxrbench.neuron.control_graphs import ALWAYS
from cxrbench.neuron.rules import AUDITED_PARTS
from training.trainers import wait_until

from .conftest import NETWORKS, SMALL

MACHINE = "killed", "terminated", *neuronx_cc.FAULTS


def test_a_dumped_graph_is_the_audited_one_with_a_manifest(dumped):
    manifest = json.loads((dumped / "manifest.json").read_text())
    assert {graph["part"] for graph in manifest["graphs"].values()} == {"forward", "backward", "step"}
    assert all(fact["source"] and fact["consequence"] for fact in manifest["differences"])
    facts = [difference["what"] for difference in manifest["differences"]]
    for start in ("GELU", "the input", "functionalization"):
        assert sum(fact.startswith(start) for fact in facts) == 1
    audited = json.loads(must_work("audit", *NETWORKS, *SMALL, "--json", cwd=dumped).stdout)
    counts = {(row["architecture"], row["part"]): row["instructions"] for row in audited}
    for graph in manifest["graphs"].values():
        if graph["part"] in AUDITED_PARTS and graph["network"] in NETWORKS:  # read from HLO's text there
            assert graph["instructions"] == counts[graph["network"], graph["part"]]


def test_outcomes_are_records_that_can_be_kept_and_checked(compile_here, tmp_path):
    done = compile_here(*NETWORKS, "--record", "--json")
    assert done.returncode == 0, done.stderr
    rows = {(row["network"], row["part"]): row for row in json.loads(done.stdout)}
    failed = {name for name, row in rows.items() if row["status"] != "ok"}
    assert failed == {("test_convnext", "backward"), ("test_convnext", "step")}
    assert rows["test_convnext", "step"]["code"] == "NCC_ITEN404"
    assert all("that the graph loads" in row["not_shown"] for row in rows.values())
    assert "not shown by a compilation: that the graph loads" in done.stderr
    records = read_compiled(tmp_path / "data/recorded")
    assert len(records) == 6 + len(ALWAYS) and all(record.seconds > 0 for record in records)
    assert all((record.neff is None) == (record.failure is not None) for record in records)
    again = compile_here(*NETWORKS, mode="hang")  # nothing is left to compile
    assert again.returncode == 0 and "NCC_ITEN404" in again.stdout
    twice = compile_here(*NETWORKS, "--record")  # the same outcomes
    assert twice.returncode == 0 and "recorded " not in twice.stderr
    shutil.rmtree(tmp_path / f"results/compile/{records[0].compiler}")
    cloned = compile_here(*NETWORKS, "--record", mode="hang")  # what is recorded is not compiled again
    assert cloned.returncode == 0 and "NCC_ITEN404" in cloned.stdout
    compile_here(*NETWORKS)
    other = compile_here(*NETWORKS, "--record")
    assert other.returncode == 1 and "is of another compilation; add --replace" in other.stderr
    assert compile_here(*NETWORKS, "--record", "--replace").returncode == 0
    assert read_compiled(tmp_path / "data/recorded") == read_compiled(tmp_path / "results") != records
    for log in (tmp_path / "data/recorded/compile").rglob("*.log"):
        assert str(tmp_path) not in log.read_text()  # a folder of this machine
    log.write_text("other")
    assert log.name in must_fail("verify", "--recorded", tmp_path / "data/recorded")


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


def test_what_a_limit_ended_is_compiled_again_with_a_larger_one(compile_here):
    words = ("test_resnet", "--part", "forward", "--json", "--record")
    for hours, mode, status in (
        (0.0005, "hang", "timed_out"),
        (0.0004, "", "timed_out"),  # kept
        (0.1, "", "ok"),
        (0.2, "nothing", "ok"),  # kept
    ):
        (row,) = json.loads(compile_here(*words, "--hours", hours, mode=mode).stdout)
        assert row["status"] == status and row["failed"] is (None if status == "timed_out" else False)


@pytest.mark.fault(
    "Neuron's compiler is killed from outside, or the machine's memory or disk is full",
    "one message; no record",
)
@pytest.mark.parametrize("mode", MACHINE)
def test_a_machine_fault_is_no_outcome(compile_here, tmp_path, mode):
    done = compile_here("test_resnet", "--part", "forward", "--record", "--json", mode=mode)
    assert done.returncode == 0 and json.loads(done.stdout) == []
    assert done.stderr.count("not recorded: ") == 1
    assert not re.search("Traceback|micro_batch", done.stderr)  # there is no such limit here
    again = compile_here("test_resnet", "--part", "forward", "--json")
    assert json.loads(again.stdout)[0]["status"] == "ok"


@pytest.mark.fault("Ctrl-C while Neuron's compiler works", "all of it is killed; no record")
def test_ctrl_c_leaves_no_compiler(compile_here, tmp_path):
    compile_here("test_resnet", "--part", "forward", mode="nothing")
    command = [sys.executable, "-m", "cxrbench", "compile", "test_resnet", "--part", "backward", *SMALL]
    environment = os.environ | {"STANDIN": "hang", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
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
    kept = list((tmp_path / "results/compile").rglob("trn1.json"))
    assert len(kept) == 1 + len(ALWAYS)  # of the first command


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
        (("--container", "docker"), "", None, "--container needs --image"),
        (("--part", "backwards"), "", None, "use step or backward or forward"),
        (("--hours", "0"), "", None, "--hours: 0 is no limit; give a number above 0"),
        (("--memory-gib", "nan"), "", None, "--memory-gib: nan is no limit; give a number above 0"),
    ],
)
def test_a_mistake_is_one_message(compile_here, words, mode, path, message):
    done = compile_here("test_resnet", *words, mode=mode, path=path)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *[("--batch", 0), ("--batch", 4097), ("--pixels", 8), ("--pixels", 2000)],
        *[("--container", "podmann"), ("--target", "inf1")],
    ],
)
def test_options_are_checked_by_the_command_line(compile_here, words):
    done = compile_here("test_resnet", *words, sizes=())
    assert done.returncode == 2 and f"Invalid value for '{words[0]}'" in done.stderr


DOCKER = """#!/bin/bash
echo "$@" >> calls
case "$1" in
  inspect) cat starved 2>/dev/null || echo false; exit ;;
  rm) exit ;;
  image) [ -z "$ABSENT" ] || { echo "Error: No such image: $3" >&2; exit 1; }; exit ;;
esac
folder=$(echo "$@" | grep -o '[^ ]*:/compile-here' | cut -d: -f1)
[ -n "$folder" ] && [ -n "$REFUSED" ] && { echo "docker: Error: $REFUSED." >&2; exit 125; }
while [ "$1" != neuronx-cc ]; do shift; done
eval "${@//\\/compile-here/$folder}"
code=$?
exit $code
"""


@pytest.fixture
def in_container(compile_here, tmp_path, monkeypatch):
    """Compile one graph through a program that stands in for docker: it runs the image's command here."""
    docker = tmp_path / "bin/docker"
    docker.write_text(DOCKER.replace("calls", f"{tmp_path}/calls").replace("starved", f"{tmp_path}/starved"))
    docker.chmod(0o755)

    def run(*words: object, mode: str = "", starved: bool = False, refused: str = ""):
        (tmp_path / "starved").write_text(str(starved).lower())
        monkeypatch.setenv("REFUSED", refused)
        image = ("--container", "docker", "--image", "i:1")
        return compile_here("test_resnet", "--part", "forward", *image, *words, "--json", mode=mode)

    return run


def test_a_container_gets_the_graph_the_limit_and_no_network_and_is_removed(in_container, tmp_path):
    done = in_container("--memory-gib", 4)
    (row,) = json.loads(done.stdout)
    assert row["status"] == "ok" and row["peak_memory_mib"] is None, done.stderr
    looked, *asked = (tmp_path / "calls").read_text().splitlines()
    version, operators, *_, call, inspected, removed = asked
    assert looked == "image inspect i:1" and "--rm" in version and "--rm" in operators and "--rm" not in call
    assert len(asked) == 2 + 3 * (1 + len(ALWAYS))
    for part in ("--network=none --shm-size=8g", "--memory=4g --memory-swap=4g", "--target trn1"):
        assert part in call
    assert inspected.split()[-1] == removed.split()[-1] and removed.startswith("rm --force cxrbench-")


@pytest.mark.fault("the compiler's image has not been pulled", "one message with the command that pulls it")
def test_an_absent_image_is_not_pulled_within_the_time_of_a_version(in_container, tmp_path, monkeypatch):
    monkeypatch.setenv("ABSENT", "1")
    done = in_container()
    assert done.returncode == 1 and "i:1 is not here (Error: No such image: i:1)" in done.stderr
    assert "pull it: docker pull i:1" in " ".join(done.stderr.split())
    assert (tmp_path / "calls").read_text() == "image inspect i:1\n"


@pytest.mark.fault("Neuron's compiler hangs when asked for its version", "one message")
def test_a_compiler_without_an_answer_is_one_message(compile_here, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.setenv("STANDIN", "mute")
    monkeypatch.setattr(compiler, "_ANSWER", 0.2)  # two minutes
    with pytest.raises(UserError, match=r"`neuronx-cc --version` did not respond .*; run it manually"):
        compiler.NeuronCompiler.find()


@pytest.mark.fault(
    "the compiler's container exceeds its memory, is killed, or cannot start",
    "out_of_memory where --memory-gib was given; else a message and no record",
)
def test_how_a_container_ended_is_asked_of_its_engine(in_container):
    (row,) = json.loads(in_container("--memory-gib", 4, mode="killed", starved=True).stdout)
    assert row["status"] == "out_of_memory" and row["failed"] is None
    for words, ending, message in (
        ((), {"mode": "killed", "starved": True}, "killed by the kernel's OOM killer"),
        (("--memory-gib", 8), {"mode": "killed"}, "killed by SIGKILL"),
    ):
        done = in_container(*words, **ending)
        assert json.loads(done.stdout) == [] and message in done.stderr, done.stderr
    absent = {"refused": "no space in /var"}
    for words, code in (((), 0), (("--out", "other"), 1)):  # in another folder no control is kept either
        done = in_container("--memory-gib", 8, *words, **absent)
        assert done.returncode == code and "docker could not run the image (docker: " in done.stderr
