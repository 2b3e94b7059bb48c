"""A build is whole or fails: what its rules read, what a kill leaves, and what a user sees of a failure."""

import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import forked
from conftest import ROOT, clone_of_the_tree, keep_recorded, ran, scores, small_clone
from cxrbench.training.supervisor import run
from spy import put_before
from test_graph import CELL, OVERLAY, jobs
from test_terminal import shown_on_a_terminal
from training.trainers import wait_until

GRAPH = (sys.executable, "-m", "snakemake")
EVIDENCE = ("--config", "run=[]")
QUICK = "results/scores.json"  # soon built where few cells are recorded
MADE = ("paper/paper.pdf", "paper/generated/*", "figures/*.pdf", "results/tables/*", "results/values.json")


def built(
    folder: Path, *words: str, env: dict[str, str] | None = None, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """Build from recorded evidence, to an end without an error or to one that ``fails``."""
    done = forked.run("snakemake", [*words, *EVIDENCE], folder, env)
    assert done.returncode == int(fails), (words, done.stderr[-3000:])
    return done


def made(folder: Path, *also: str) -> dict[str, bytes]:
    """What a reader of the paper gets from ``folder``, and the files of the patterns ``also``."""
    files = {path for pattern in (*MADE, *also) for path in folder.glob(pattern) if path.is_file()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def layers(folder: Path) -> list[list[str]]:
    """The rules from the paper back: those of a layer read nothing of each other."""
    known, before = jobs(folder), defaultdict(set)
    for job in known.values():
        rules = {known[name]["rule"] for name in job["input"] if name in known}
        before[job["rule"]] |= rules - {job["rule"]}
    sorter = TopologicalSorter(before)
    sorter.prepare()
    found: list[list[str]] = []
    while sorter.is_active():
        found.insert(0, [*sorter.get_ready()])
        sorter.done(*found[0])
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, latex: None) -> Path:
    """A copy with two recorded cells in which paper and page were built; tests leave it as it was."""
    folder = clone_of_the_tree(tmp_path_factory.mktemp("whole"))
    keep_recorded(folder, "phantom-32px/resnet18/*/seed0")
    built(folder, "all", "page")
    return folder


WRITTEN_FIRST = {"results/study.json", "results/named.json"}  # whenever the graph is read


def sources(folder: Path) -> dict[str, set[str]]:
    """Each input that no rule makes, with the rules that read it."""
    known, readers = jobs(folder), defaultdict(set)
    for job in known.values():
        for name in set(job["input"]) - known.keys() - WRITTEN_FIRST:
            readers[name].add(job["rule"])
    return readers


@pytest.mark.slow
@pytest.mark.fault("a source of the paper changes, its time does not", "every rule that reads it runs again")
def test_every_source_that_changes_is_seen(whole: Path) -> None:
    readers = sources(whole)
    assert len(readers) > 30
    for name, rules in readers.items():
        path, content, times = whole / name, (whole / name).read_bytes(), (whole / name).stat()
        path.write_bytes(content + b"\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 86400 * 10**9))  # a day older
        if name.startswith("data/recorded/") and "/seed" not in name and "SHA256SUMS" not in name:
            assert f"{name} differs from SHA256SUMS" in built(whole, "all", "-n", fails=True).stderr
            path.write_bytes(content)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            continue
        planned = set(re.findall(r"^(\w+) +\d+$", built(whole, "all", "page", "-n").stdout, flags=re.M))
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        # Recorded evidence that differs from its sum is refused, and no longer adopted.
        assert rules - {"adopt"} <= planned and "all" in planned, (name, planned)


@pytest.mark.slow
@pytest.mark.fault(
    "a source is broken, and the build repeated",
    "both fail with the command's message; mended: the same bytes",
)
@pytest.mark.fault(
    "the command of each rule is killed, between its outputs or after them",
    "it is done again; the same bytes",
)
def test_a_rule_that_failed_or_was_killed_is_done_again(whole: Path, tmp_path: Path) -> None:
    """From the paper back, so that nothing is done in vain."""
    before, readers, order = made(whole), sources(whole), layers(whole)
    place = {rule: number for number, layer in enumerate(order) for rule in layer}
    assert {"adopt", "score", "report", "page", "paper"} <= {*place}
    for number, layer in enumerate(order):
        broken = [
            name
            for name, rules in readers.items()
            if max(map(place.get, rules)) == number
            and not name.startswith("data/recorded/")  # refused at the start
            and (not name.endswith((".bib", ".tex")) or "main" in name)  # LaTeX alone reads the others
        ]
        for name in broken:
            content = (whole / name).read_bytes()
            (whole / name).write_bytes(b"\x00 broken {\n" + content)
            for _ in range(2 if name == broken[0] else 1):
                said = built(whole, "all", "page", fails=True).stderr
                assert name in said or "LaTeX: " in said, said[-3000:]
                assert not re.search("CalledProcessError|Traceback|WorkflowError", said), said
            (whole / name).write_bytes(content)
        killing = put_before(tmp_path / layer[0], tmp_path / "notes", victim=f"(?:{'|'.join(layer)})")
        words = ("all", "page", "--keep-going", "--forcerun", *layer)
        said = built(whole, *words, env=killing, fails=True).stderr
        planned = built(whole, "all", "page", "-n").stdout
        for rule in layer:
            assert f"the command of rule {rule} was killed by signal 9" in said
            assert re.search(rf"^{rule} +\d+$", planned, flags=re.M), (rule, planned)
    built(whole, "all", "page")
    assert made(whole) == before


def killed_until_done(folder: Path, words: tuple[str, ...], kills: int, seed: int, latest: int) -> None:
    """Start the same command again and again, kill it ``kills`` times, and let it end.

    It is killed after 1 to ``latest`` lines of its output, so that a slow machine is not killed at its start.
    """
    moments, log = random.Random(seed), folder / "build.log"
    while True:
        with log.open("w") as file:
            build = subprocess.Popen(
                [*GRAPH, *words], cwd=folder, stdout=file, stderr=file, start_new_session=True
            )
        lines, moment = moments.randint(1, latest), moments.uniform(0, 2)
        while build.poll() is None and (not kills or log.read_text().count("\n") < lines):
            with suppress(subprocess.TimeoutExpired):
                build.wait(0.1)
        try:
            build.wait(moment)
        except subprocess.TimeoutExpired:
            if kills % 2:
                os.killpg(build.pid, signal.SIGKILL)
            else:
                build.kill()  # its jobs go on alone
            build.wait()
            kills -= 1
            continue
        assert build.returncode == 0, log.read_text()[-3000:]
        if not kills:
            return
        for place in ("results", "figures", "paper/generated"):
            shutil.rmtree(folder / place, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.fault("SIGKILL of a build at six random moments", "the same command goes on; the same bytes")
def test_killed_builds_end_in_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    ignored = shutil.ignore_patterns(
        ".snakemake", "results", "figures", "generated", "paper.pdf", "__pycache__"
    )
    shutil.copytree(whole, clone, ignore=ignored)
    room = "src/cxrbench/results"  # named like the folder that is left out
    shutil.copytree(whole / room, clone / room)
    killed_until_done(clone, ("all", *EVIDENCE), kills=6, seed=22, latest=15)
    after = made(clone)
    assert after == {name: content for name, content in made(whole).items() if name in after}
    assert not [path for path in clone.rglob(".*.part") if "data/packed" not in str(path)]


@pytest.mark.slow
@pytest.mark.fault("SIGKILL of a build that trains, at six random moments", "it trains on to the same scores")
def test_killed_builds_train_to_the_same_scores(make_job, tmp_path: Path) -> None:
    clone = clone_of_the_tree(tmp_path / "killed")
    (clone / "overlay.yaml").write_text(OVERLAY + "limits: {checkpoint_minutes: 0}\n")
    words = ("results/tables/metrics.csv", "--configfile", "overlay.yaml")
    killed_until_done(clone, words, kills=6, seed=7, latest=8)
    run(make_job(), tmp_path / "calm")
    assert (scores(tmp_path / "calm") == scores(clone / "results/cells" / CELL)).all()


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    """A clone that locks of Snakemake say to be in use; :data:`QUICK` is soon built."""
    clone = small_clone(tmp_path / "clone")
    (clone / ".snakemake/locks").mkdir(parents=True)
    (clone / ".snakemake/locks/0.output.lock").write_text(f"{QUICK}\n")
    return clone


@pytest.mark.slow
@pytest.mark.fault("a build was killed and left its locks", "the next one says so, clears them and goes on")
def test_stale_locks_are_cleared_and_those_of_a_running_build_stay(splits: Path) -> None:
    with open(splits / ".snakemake/alive.lock", "w") as running:
        fcntl.flock(running, fcntl.LOCK_SH)
        said = built(splits, QUICK, fails=True).stderr
        assert f"process {os.getpid()}; wait until it ends" in said and "LockException" not in said
    done = built(splits, QUICK)
    assert "the last build here was killed; this one goes on" in done.stderr
    assert not (splits / ".snakemake/locks").exists()


@pytest.mark.slow
@pytest.mark.fault("a build runs on another machine of the same disk", "its locks stay; the machine is named")
def test_locks_of_another_machine_stay(splits: Path) -> None:
    (splits / ".snakemake/alive.lock").write_text(f"not-{socket.gethostname()}")
    done = built(splits, QUICK, fails=True)
    assert "none runs on this machine; if none runs on another one, run snakemake --unlock" in done.stderr
    assert f"ran on not-{socket.gethostname()}" in done.stderr


@pytest.mark.slow
@pytest.mark.fault("a build is started while another one runs", "its process is named; later it works")
def test_a_running_build_is_named_and_not_disturbed(tmp_path: Path) -> None:
    clone, tools = small_clone(tmp_path / "clone"), tmp_path / "tools"
    words = ("results/cells/phantom-32px/resnet18/cpu/seed0/record.json", *EVIDENCE)  # a single command
    tools.mkdir()
    os.mkfifo(tools / "go")
    (tools / "python").write_text(f'#!/bin/sh\nread _ < {tools}/go\nexec "{sys.executable}" "$@"\n')
    (tools / "python").chmod(0o755)  # it waits until it is told to go on
    held = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    first = subprocess.Popen([*GRAPH, *words], cwd=clone, env=held, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(clone.glob(".snakemake/locks/*.lock")), "lock", first)
    said = built(clone, QUICK, fails=True).stderr
    assert re.search(rf"a build works in this folder since \d\d:\d\d, process {first.pid}; wait", said), said
    assert f"kill {first.pid}" in said and "LockException" not in said
    (tools / "go").write_text("\n")
    assert first.wait(120) == 0, first.stderr.read()
    built(clone, QUICK)


@pytest.mark.slow
@pytest.mark.fault("a file that a build made is edited by hand", "it is made again; the same bytes")
def test_an_edited_result_is_named_and_made_again(tmp_path: Path) -> None:
    clone = small_clone(tmp_path)
    assert "changed since" not in built(clone, QUICK).stderr
    path, times = clone / QUICK, (clone / QUICK).stat()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    said = f"changed since the build made it, so to be made again: {QUICK}"
    assert said in built(clone, QUICK, "-n").stderr and path.read_bytes() != content
    assert said in built(clone, QUICK).stderr and path.read_bytes() == content
    assert "changed since" not in built(clone, QUICK).stderr


@pytest.mark.slow
@pytest.mark.fault("files of a built paper are edited by hand", "they are made again; the same bytes")
def test_no_edit_by_hand_reaches_the_paper(whole: Path) -> None:
    before = made(whole)
    names = ["paper/paper.pdf", "paper/generated/macros.tex", "paper/generated/table_parity.tex"]
    names += ["results/values.json"]
    names += ["results/tables/metrics.csv", "results/tables/cost.csv", "results/tables/table_power.csv"]
    names += [str(min((whole / "figures").glob("*.pdf")).relative_to(whole))]
    names += [str(path.relative_to(whole)) for path in whole.glob("results/cells/**/predictions.parquet")]
    for name in names:
        content = (whole / name).read_bytes()
        (whole / name).write_bytes(content[: len(content) // 2])
    said = built(whole, "all", "page").stderr
    assert "changed since the build made it, so to be made again: " in said
    assert f" and {len(names) - 3} more" in said
    assert made(whole) == before


@pytest.mark.fault("the results are on a read-only disk", "one message that names the file")
def test_results_that_may_not_be_written_are_one_message(small_disk, tmp_path: Path) -> None:
    clone = small_clone(tmp_path / "clone")
    (clone / "results").symlink_to(small_disk("size=64m"))
    built(clone, QUICK)
    small_disk("ro")
    said = built(clone, QUICK, "--forcerun", "score", fails=True).stderr
    assert f"cxrbench: {QUICK}: this may not be written; change its permissions" in said
    said = built(clone, "results/values.json", fails=True).stderr
    assert re.search(r"cxrbench: results/\S+: this is on a read-only disk; name another place", said)
    assert not re.search("CalledProcessError|Traceback|WorkflowError|Exception", said), said


@pytest.mark.fault("a target that is no file of the study", "one message")
def test_an_unknown_target_is_one_message(tmp_path: Path) -> None:
    said = built(clone_of_the_tree(tmp_path), "foo", fails=True).stderr
    assert "cxrbench: there is no file and no rule foo; `snakemake --list-rules` prints the rules" in said
    assert "MissingRuleException" not in said


@pytest.mark.slow
@pytest.mark.fault("a rule's command fails", "its message, once; nothing else in red")
def test_the_reason_of_a_failure_reaches_the_terminal_once(tmp_path: Path) -> None:
    clone = clone_of_the_tree(tmp_path)
    with (clone / "data/claims.yaml").open("a") as file:
        file.write("claim: [\n")
    words = [*GRAPH, "results/tables/claims.csv", "--config", "cells=[]"]
    shown = shown_on_a_terminal(words, clone)
    assert len(re.findall(r"data/claims\.yaml", shown)) == 1, shown
    assert "cxrbench:" in shown and "CalledProcessError" not in shown
    assert "\x1b[31m" not in shown, shown


@pytest.mark.slow
def test_a_build_prints_a_line_per_job_that_names_what_it_does(tmp_path: Path) -> None:
    clone = clone_of_the_tree(tmp_path)
    recorded = clone / "data/recorded"
    name = str(min(recorded.glob("nih128-64px/*/*/seed0")).relative_to(recorded))
    keep_recorded(clone, name)
    words = (f"results/cells/{name}/record.json", QUICK)
    done = built(clone, *words)
    steps = ["Checking the evidence of all cells", "Scoring all cells"]
    assert re.findall(r"^\[\d/2\] (.+)$", done.stderr, flags=re.M) == steps
    noise = r"jobid|steps|Job stats|Select jobs|Execute|^rule "
    assert not re.search(noise, done.stderr, flags=re.M), done.stderr
    planned = built(clone, *words, "-n", "--quiet", "host", "--forcerun", "adopt")
    assert re.search(r"^(local)?rule adopt:\n.*input: ", planned.stdout + planned.stderr, flags=re.M)


@pytest.mark.slow
@pytest.mark.fault("the profile of a cluster on a machine without Slurm", "one message that says so")
def test_no_slurm_is_one_message(tmp_path: Path) -> None:
    clone, tools = clone_of_the_tree(tmp_path / "clone"), tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "env", "git", "sh", "which"):
        (tools / name).symlink_to(str(shutil.which(name)))
    words = (*GRAPH, QUICK, "--workflow-profile", "workflow/profiles/slurm")
    done = ran(*words, cwd=clone, env=os.environ | {"PATH": str(tools)})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cxrbench: Slurm is not on this machine" in done.stderr
    assert not list(clone.glob("results/tables/*"))


@pytest.mark.fault("the folder of a build is read-only", "one message that names it")
def test_a_build_in_a_read_only_folder_is_one_message(small_disk) -> None:
    clone_of_the_tree(small_disk("size=1g"))
    done = built(small_disk("ro"), fails=True)
    assert "this is on a read-only disk; name another place" in done.stderr
    assert "Traceback" not in done.stderr


INJECTED = ('x"; touch F; "', "x'; touch F; '", "`touch F`", "$(touch F)", "$$(touch F)", "$(shell touch F)")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CELL", "VENV", "PYTHON", "TESTERS"])
@pytest.mark.fault("a shell's code in CELL, VENV, PYTHON or TESTERS of make", "a wrong name; nothing runs")
def test_make_runs_nothing_that_a_name_contains(name: str, tmp_path: Path) -> None:
    clone, venv = clone_of_the_tree(tmp_path / "clone"), tmp_path / "venv"
    if name != "PYTHON":  # an environment that is complete, so that nothing is installed
        (venv / "bin").mkdir(parents=True)
        (venv / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (venv / "bin/python").chmod(0o755)
        (venv / ".cxrbench-full").touch()
    target = "test" if name == "TESTERS" else "cell"
    for text in INJECTED:
        done = ran("make", target, f"VENV={venv}", f"{name}={text}", cwd=clone)
        assert done.returncode != 0
        assert not (clone / "F").exists(), done.stdout + done.stderr


@pytest.mark.fault("a VENV with blanks, or a make older than 3.81", "refused in one message")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("VENV=/tmp/a b", "make can have neither blanks"),
        ("MAKE_VERSION=3.80", "make 3.80 is too old: install GNU make 3.81 or newer"),
    ],
)
def test_make_refuses_what_it_cannot_work_with(given: str, message: str) -> None:
    done = ran("make", "help", given, cwd=ROOT)
    assert done.returncode == 2 and message in done.stderr
