"""The graph as users run it: real Snakemake, in a copy of the repository with a study of two tiny cells."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections import defaultdict
from pathlib import Path

import pandas as pd
import psutil
import pytest

import forked
from conftest import SIZES, TINY, change_record, clone_of_the_tree, must_fail, must_work, scores
from cxrbench.evidence.record import read_record
from cxrbench.evidence.sums import write_sums
from cxrbench.paper import items
from cxrbench.paper.formats import latex
from cxrbench.workflow import build
from spy import put_before
from training.trainers import wait_until

pytestmark = pytest.mark.slow

CELL = f"phantom-32px/{TINY}/cpu/seed0"
OVERLAY = f"""
datasets:
  phantom-32px: {{source: phantom, pixels: 32, recipe: fast, images: {SIZES}}}
recipes:
  fast: {{epochs: 2, batch: 64, averaging: 0.9, threads: 2}}
cells:
  - {{dataset: phantom-32px, architectures: [{TINY}], platforms: [cpu, neuron], seeds: [0]}}
run: ["phantom-32px/*/cpu/*"]
"""


_BESIDE = r"generated/|/table_\w+\.csv"  # what is written with macros.tex


def copy_of_the_repository(folder: Path) -> Path:
    """A clone with the study of two tiny cells beside it."""
    (clone_of_the_tree(folder) / "overlay.yaml").write_text(OVERLAY)
    return folder


def graph(
    folder: Path, *words: str, overlay: bool = True, env: dict[str, str] | None = None, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake to an end without an error, or, where it ``fails``, to one without a traceback."""
    done = forked.run("snakemake", command(*words, overlay=overlay)[3:], folder, env)
    assert (done.returncode != 0) == fails, done.stderr[-3000:]
    assert not (fails and "Traceback" in done.stdout + done.stderr), done.stderr
    return done


def command(*words: str, overlay: bool = True) -> list[str]:
    """Targets first: options such as --config would swallow them."""
    extra = ["--configfile", "overlay.yaml"] if overlay else []
    return [sys.executable, "-m", "snakemake", *words, "--cores", "all", "--workflow-profile", "none", *extra]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, latex: None) -> Path:
    """A copy in which the whole graph has run."""
    folder, spy = copy_of_the_repository(tmp_path_factory.mktemp("clone")), tmp_path_factory.mktemp("spy")
    done = graph(folder, "all", "page", env=put_before(spy, folder / "notes"))
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_the_graph_goes_from_nothing_to_the_paper(built: Path) -> None:
    record = read_record(built / "results/cells" / CELL)
    assert record.status == "ok" and record.recipe["epochs"] == 2
    assert (built / "paper/paper.pdf").read_bytes().startswith(b"%PDF-")
    for name in (figure.name for figure in items.printed(items.figures())):
        assert (built / f"figures/{name}.pdf").stat().st_size > 1000
    metrics = pd.read_csv(built / "results/tables/metrics.csv")
    rows = metrics[(metrics["metric"] == "auroc") & (metrics["ci_method"] == "delong-patient")]
    assert len(rows) == 16 and set(rows["cell"]) == {CELL} and (rows["ci_low"] < rows["ci_high"]).all()
    printed, matrix = (built / "printed.txt").read_text(), (built / "results/matrix.txt").read_text()
    assert re.search(rf"phantom-32px\s+{TINY}\s+1 fresh\s+1 not run", matrix)
    (score,) = re.findall(rf"phantom-32px +{TINY} +cpu +(0\.\d.*)", matrix)
    assert re.fullmatch(r"0\.\d{3} \(0\.\d{3} to 0\.\d{3}\) +patients of one seed", score)
    assert "Paper: paper/paper.pdf" in printed


def jobs(folder: Path) -> dict[str, dict]:
    """What Snakemake recorded of each output: the names of its files are encoded paths."""
    root = folder / ".snakemake/metadata"
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {
        urlsafe_b64decode(name.replace("@", "").replace("/", "")).decode(): json.loads(path.read_text())
        for name, path in files.items()
    }


def test_every_file_that_a_command_reads_is_one_that_its_rule_depends_on(built: Path) -> None:
    inputs, package, seen = defaultdict(set), built / "src/cxrbench", set()
    for job in jobs(built).values():
        inputs[job["rule"]] |= {*job["input"]}
    code = dict.fromkeys(inputs, build.REPORTING) | {"score": build.SCORING}
    for rule in ("adopt", "pack", "train"):  # evidence is what its own code made
        code[rule] = ("**/*",)
    sums = (built / "data/recorded/SHA256SUMS").read_text()
    for note in (built / "notes").iterdir():
        log, *reads = note.read_text().splitlines()
        rule = (built / log).relative_to(built / "results/logs").parts[0].removesuffix(".log")
        seen.add(rule)
        known = inputs[rule] | ({"paper/generated/macros.tex"} if rule == "report" else set())
        of_code = set(build.code_files(package, code[rule]))
        for path in {Path(read) for read in reads if read.startswith(f"{built}/")}:
            name = str(path.relative_to(built))
            depends = (
                name in known
                or not path.is_file()  # written aside, a folder, looked for in vain
                or path in of_code
                # commands import all commands
                or {"__pycache__", "cli", "__init__.py", "commands.py"} & {*path.parts}
                or name.startswith("workflow/scripts/")  # a param of its rule, changed in a test below
                or str(path.parent.relative_to(built) / "record.json") in known  # and has their hashes
                or name.replace("results/runs/", "results/cells/") in known  # adopted from it
                # scores.json has the hashes of the records, and they that of their predictions and scores
                or ("results/scores.json" in known and name.startswith(("results/cells/", "results/scores/")))
                or (rule == "score" and name.startswith("results/scores"))  # its own
                or ("data/recorded/SHA256SUMS" in known and name.removeprefix("data/recorded/") in sums)
                # macros.tex has the hash of what is written with it
                or ("paper/generated/macros.tex" in known and re.search(_BESIDE, name))
                # what counts of the study is in their params
                or (rule in ("pack", "train") and name == "results/study.json")
                or (rule == "train" and name.startswith("results/runs/"))  # its own
                or (rule == "paper" and name in ("paper/paper.pdf", "paper/paper.log"))  # its own
                or name == "figures/README.md"
                or name.startswith("data/packed/")
            )
            assert depends, f"{rule} reads {name}"
    assert seen == {"pack", "train", "adopt", "score", "report", "page", "paper"}


def test_every_table_that_is_written_is_an_output_of_its_rule(built: Path) -> None:
    written = {str(path.relative_to(built)) for path in built.glob("results/tables/*.csv")}
    assert {name for name in written if "table_" not in name} <= jobs(built).keys()


def test_a_second_run_has_nothing_to_train_or_typeset(built: Path) -> None:
    done = graph(built, "-n")
    assert re.search(r"^total\s+1$", done.stdout + done.stderr, flags=re.M), done.stdout


@pytest.mark.parametrize(
    ("changed", "again", "kept"),
    [
        ("src/cxrbench/statistics/measures.py", ["score", "report", "paper"], ["train", "adopt"]),
        ("src/cxrbench/results/kept.py", ["score", "report", "paper"], ["train", "adopt"]),
        ("src/cxrbench/datasets/split.py", ["score", "report", "paper"], ["train", "adopt"]),
        ("src/cxrbench/paper/.#tables.py", [], ["train", "adopt", "score", "report", "paper"]),
        ("src/cxrbench/paper/tables.py", ["report", "paper"], ["train", "adopt", "score"]),
        ("src/cxrbench/training/method.py", [], ["train", "adopt", "score", "report", "paper"]),
        ("workflow/scripts/score.py", ["score", "report", "paper"], ["train", "adopt"]),
    ],
)
def test_what_the_code_decides_follows_the_code(built: Path, tmp_path: Path, changed, again, kept) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    with open(clone / changed, "a") as file:
        file.write("# changed\n")
    done = graph(clone, "-n")
    planned = set(re.findall(r"^(?:local)?rule (\w+):", done.stdout + done.stderr, flags=re.M))
    assert set(again) <= planned and not planned & set(kept)


def test_new_words_are_typeset_and_a_newly_named_value_is_made(built: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    section = clone / "paper/sections/limits.tex"
    for words, made in (("Words.\n", False), (r"\val{largest/dataset}", True)):
        section.write_text(section.read_text() + words)
        done = graph(clone, "-n")
        planned = set(re.findall(r"^(?:local)?rule (\w+):", done.stdout + done.stderr, flags=re.M))
        assert "paper" in planned and ("report" in planned) == made
        assert "score" not in planned


def test_a_cell_that_is_recorded_meanwhile_is_recorded_in_the_next_build(built: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    recorded_here(built, clone)
    graph(clone, "results/tables/cells.csv")
    assert pd.read_csv(clone / "results/tables/cells.csv")["origin"].iloc[0] == "recorded"


def test_reading_the_graph_does_not_change_what_the_last_build_was(built: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    graph(clone, "-n", "--config", "run=[]")
    assert json.loads((clone / "results/built.json").read_text())["run"] == ["phantom-32px/*/cpu/*"]


def test_recorded_evidence_is_adopted_where_nothing_is_trained(built: Path, tmp_path: Path) -> None:
    recorded_here(built, tmp_path)
    metrics = "results/tables/metrics.csv"
    done = graph(tmp_path, metrics, "results/tables/cells.csv", "--config", "run=[]")
    assert "Training " not in done.stderr
    assert (tmp_path / metrics).read_bytes() == (built / metrics).read_bytes()
    cells = pd.read_csv(tmp_path / "results/tables/cells.csv", keep_default_na=False)
    assert cells[["status", "origin"]].values.tolist() == [["ok", "recorded"], ["not run", ""]]


def test_recorded_evidence_of_another_recipe_is_left_out_and_said(built: Path, tmp_path: Path) -> None:
    recorded_here(built, tmp_path)
    change = ("--config", "run=[]", "recipes={fast: {epochs: 3}}")
    done = graph(tmp_path, "results/tables/cells.csv", *change)
    assert f"recorded evidence of {CELL} was made with another recipe" in done.stderr
    cells = pd.read_csv(tmp_path / "results/tables/cells.csv", keep_default_na=False)
    assert set(cells["status"]) == {"not run"}


def recorded_here(built: Path, folder: Path) -> Path:
    """A copy of the repository in which the cell is recorded; returns the folder of its evidence."""
    clone = copy_of_the_repository(folder)
    must_work("record", CELL, "--runs", built / "results/runs", "--recorded", clone / "data/recorded")
    return clone / "data/recorded" / CELL


def other_bytes(evidence: Path) -> str:
    with (evidence / "predictions.parquet").open("ab") as file:
        file.write(b"x")
    return "predictions.parquet differs from SHA256SUMS"


def test_recorded_evidence_that_is_not_fit_is_refused_by_name_and_the_rest_goes_on(
    built: Path, tmp_path: Path
) -> None:
    evidence = recorded_here(built, tmp_path)
    change_record(evidence, schema_version=0)
    write_sums(evidence.parents[3])
    done = graph(tmp_path, "results/tables/cells.csv", "--config", "run=[]")
    again = f"make the record again: cxrbench train {CELL} && cxrbench record {CELL}"
    must_be_refused(done.stderr, tmp_path, again)


def must_be_refused(said: str, folder: Path, why: str) -> None:
    assert f"the recorded evidence of {CELL} is refused: " in said and why in said
    assert "Traceback" not in said
    row = pd.read_csv(folder / "results/tables/cells.csv").iloc[0]
    assert (row["status"], row["origin"]) == ("not run", "refused") and why in row["failure"]
    assert not (folder / "results/cells" / CELL).exists()


def test_evidence_refused_after_it_was_adopted_is_used_no_longer(built: Path, tmp_path: Path) -> None:
    evidence = recorded_here(built, tmp_path)
    words = ("results/tables/cells.csv", "results/tables/metrics.csv", "--config", "run=[]")
    graph(tmp_path, *words)
    assert len(pd.read_csv(tmp_path / "results/tables/metrics.csv"))
    other_bytes(evidence)
    graph(tmp_path, *words)
    assert pd.read_csv(tmp_path / "results/tables/cells.csv")["origin"].iloc[0] == "refused"
    assert not len(pd.read_csv(tmp_path / "results/tables/metrics.csv"))
    assert f"{CELL}: refused" in must_fail("expected.py", cwd=tmp_path)
    must_fail("verify", cwd=tmp_path)
    record = f"results/cells/{CELL}/record.json"
    assert "is refused" in graph(tmp_path, record, "--config", "run=[]", "--force", fails=True).stderr


def test_the_paper_says_what_was_refused_and_that_nothing_has_run(built: Path, tmp_path: Path) -> None:
    why = other_bytes(recorded_here(built, tmp_path))
    done = graph(tmp_path, "--config", "run=[]")
    must_be_refused(done.stderr, tmp_path, why)
    assert "No training has scores yet." in done.stdout
    matrix = (tmp_path / "results/matrix.txt").read_text()
    assert re.search(rf"phantom-32px\s+{TINY}\s+1 refused\s+1 not run", matrix)
    macros = (tmp_path / "paper/generated/macros.tex").read_text()
    assert r"cxr@cells/refused\endcsname{1}" in macros
    assert rf"cxr@cells/refused/names\endcsname{{{latex(f'`{CELL}`')}}}" in macros
    assert "refused" in (tmp_path / "results/tables/table_cells.csv").read_text()


def test_damaged_evidence_of_a_cell_that_is_trained_here_stops_nothing(built: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    other_bytes(recorded_here(built, clone))
    assert "is refused" in graph(clone, "results/tables/cells.csv").stderr
    assert pd.read_csv(clone / "results/tables/cells.csv")["origin"].iloc[0] == "fresh"


UNKNOWN = "cells=[{dataset: phantom-32px, architectures: [resnet81], platforms: [cpu], seeds: [0]}]"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config", "limit={hours: 1}"), "unknown key 'limit'; did you mean 'limits'"),
        (
            ("results/runs/phantom-32px/resnet81/cpu/seed0/record.json",),
            "the study has no cell phantom-32px/resnet81/cpu/seed0: it has no architecture 'resnet81'",
        ),
        (("-n", "--config", UNKNOWN), "timm knows no architecture 'resnet81'; did you mean 'resnet18'"),
        ((f"results/runs/phantom-32px/{TINY}/neuron/seed0/record.json",), "no recorded evidence"),
    ],
)
def test_a_mistake_is_one_message(words, message, tmp_path: Path) -> None:
    done = graph(copy_of_the_repository(tmp_path), *words, fails=True)
    said = done.stdout + done.stderr  # a dry run complains on standard output
    assert message in said, said


def training(clone: Path, target: str) -> tuple[subprocess.Popen[str], Path]:
    """A graph that trains and has saved a state, and the folder of states."""
    (clone / "overlay.yaml").write_text(OVERLAY + "limits: {checkpoint_minutes: 0}\n")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command(target), cwd=clone, start_new_session=True, **quiet)
    saved = clone / "results/checkpoints" / CELL / "checkpoints"
    wait_until(lambda: list(saved.glob("step*")), "checkpoint", process)
    return process, saved


def test_ctrl_c_in_training_keeps_the_state_and_the_next_run_resumes(built: Path, tmp_path: Path) -> None:
    clone = copy_of_the_repository(tmp_path)
    target = f"results/cells/{CELL}/record.json"
    process, saved = training(clone, target)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
    assert process.wait(120) != 0
    assert not (clone / f"results/runs/{CELL}/record.json").exists()
    assert list(saved.glob("step*"))
    graph(clone, target, "--rerun-incomplete")
    log = (clone / "results/cells" / CELL / "train.log").read_text()
    assert "resumed after step" in log
    ours, theirs = (scores(folder / "results/cells" / CELL) for folder in (clone, built))
    assert (ours == theirs).all()


@pytest.mark.fault("SIGTERM to a build that trains", "its state is saved, nothing is started again")
def test_a_build_that_is_asked_to_stop_starts_no_trainer_again(tmp_path: Path) -> None:
    clone = copy_of_the_repository(tmp_path)
    process, saved = training(clone, f"results/cells/{CELL}/record.json")
    process.terminate()  # of Snakemake alone
    said = process.communicate(timeout=120)[1]
    assert process.returncode not in (0, -signal.SIGTERM), said
    assert "asked to stop; what runs is stopped" in said and "Traceback" not in said
    assert list(saved.glob("step*")) and not (clone / f"results/runs/{CELL}/record.json").exists()
    assert json.loads((saved.parent / "attempts.json").read_text())["count"] == 1


@pytest.mark.fault("SIGTERM to make while a cell trains", "its state is saved, no process goes on")
def test_make_that_is_asked_to_stop_leaves_no_process_behind(tmp_path: Path) -> None:
    clone, cell = clone_of_the_tree(tmp_path), "phantom-32px/convnext_atto/cpu/seed0"
    words = ["make", "cell", f"CELL={cell}", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.cxrbench-full"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    names = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(words, cwd=clone, env=names, start_new_session=True, **quiet)
    attempts = clone / f"results/checkpoints/{cell}/attempts.json"
    wait_until(attempts.exists, "trainer", process)
    process.terminate()  # of make alone
    said = process.communicate(timeout=120)[1]
    assert process.returncode != 0 and "asked to stop; what runs is stopped" in said, said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not (clone / f"results/runs/{cell}/record.json").exists()
    assert json.loads(attempts.read_text())["count"] == 1


def test_only_an_interruption_is_tried_again(tmp_path: Path) -> None:
    clone, target = copy_of_the_repository(tmp_path), f"results/runs/{CELL}/record.json"
    mistake = OVERLAY.replace("batch: 64", "batch: 4096")
    (clone / "overlay.yaml").write_text(mistake)
    refused = graph(clone, target, fails=True)
    log = (clone / f"results/logs/train/{CELL}.log").read_text()
    assert "fewer than one batch" in log
    assert (refused.stdout + refused.stderr).count("fewer than one batch") <= 2  # said, and in the log shown
    attempts = json.loads((clone / f"results/checkpoints/{CELL}/attempts.json").read_text())
    assert attempts["count"] == 1
    shutil.rmtree(clone / "results/checkpoints")

    process, _ = training(clone, target)
    (runner,) = [
        each
        for each in psutil.Process(process.pid).children(recursive=True)
        if "train" in each.cmdline() and "cxrbench" in each.cmdline() and "python" in each.name()
    ]
    runner.terminate()  # it saves and exits with 75; nobody stops the graph
    assert process.wait(300) == 0
    assert "resumed after step" in (clone / "results/runs" / CELL / "train.log").read_text()


def test_drawn_radiographs_teach_every_finding(tmp_path: Path) -> None:
    """At 64 px, a network of half a million parameters in four epochs of small batches."""
    clone = copy_of_the_repository(tmp_path)
    made, listed = (f"results/smoke/tables/{name}.csv" for name in ("metrics", "cells"))
    cells = f"{{dataset: phantom-64px, architectures: [{TINY}, convnext_atto], platforms: [cpu], seeds: [0]}}"
    recipe = "recipes={smoke-fp32: {epochs: 4, batch: 32}}"
    runs = (f'run=["phantom-64px/{TINY}/cpu/*"]', f"cells=[{cells}]", recipe)
    graph(clone, made, listed, "--configfile", "config/smoke.yaml", "--config", *runs, overlay=False)
    metrics = pd.read_csv(clone / made)
    rows = metrics[(metrics["metric"] == "auroc") & (metrics["ci_method"] == "delong-patient")]
    rows = rows[rows["architecture"] == TINY]
    labels, macro = rows[~rows["label"].isin(["macro", "endpoint"])], rows[rows["label"] == "macro"]
    assert len(labels) == 14 and (labels["ci_low"] > 0.55).all(), labels[["label", "ci_low"]]
    assert 0.75 < macro["value"].item() < 0.95
    cells = pd.read_csv(clone / listed).set_index("architecture")
    assert cells["status"].to_dict() == {TINY: "ok", "convnext_atto": "not run"}


@pytest.mark.parametrize(
    ("change", "retrains"),
    [
        ("recipes={fast: {epochs: 3}}", True),
        ("limits={hours: 3}", False),
        ("margins={auroc_label: 0.03}", False),
    ],
)
def test_a_cell_is_trained_again_when_its_recipe_changes_and_not_otherwise(built, change, retrains) -> None:
    done = graph(built, "-n", "--config", change)
    assert bool(re.search(r"^train\s+1$", done.stdout + done.stderr, flags=re.M)) == retrains


def test_evidence_of_an_older_recipe_is_not_kept_when_its_retraining_was_stopped(built, tmp_path) -> None:
    clone = shutil.copytree(built, tmp_path / "clone")
    (clone / "results/runs" / CELL / "record.json").unlink()  # what Snakemake does before it retrains
    done = graph(clone, "-n", "--config", "recipes={fast: {epochs: 3}}")
    assert re.search(r"^train\s+1$", done.stdout + done.stderr, flags=re.M), done.stdout
