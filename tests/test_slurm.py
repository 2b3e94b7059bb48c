"""The slurm profile against a real Slurm on this machine: requests, evidence, and a node that dies."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_cluster
from conftest import SIZES, TINY, scores
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.store import EvidenceStore, check_evidence
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell
from cxrbench.training.job import checkpoints
from cxrbench.training.plan import JobNeeds
from slurm_cluster import Cluster, until
from test_graph import copy_of_the_repository

pytestmark = pytest.mark.slow

CELLS = [Cell("phantom-32px", TINY, "cpu", seed) for seed in (0, 1)]
STUDY = f"""
datasets:
  phantom-32px: {{source: phantom, pixels: 32, recipe: fast, images: {SIZES}}}
recipes:
  fast: {{epochs: 3, batch: 64, averaging: 0.9, threads: 2}}
cells:
  - {{dataset: phantom-32px, architectures: [{TINY}], platforms: [cpu, cuda, neuron], seeds: [0, 1]}}
cluster: {{platforms: [cpu, cuda, neuron], memory_gib: {{cpu: 2, cuda: 1, neuron: 3}}}}
limits: {{hours: 0.5, checkpoint_minutes: 0}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # short: a socket's path has a limit
        one = Cluster(Path(folder))
        try:
            one.start()
            yield one
        finally:
            one.stop()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_of_the_repository(tmp_path_factory.mktemp("clone"))
    (folder / "overlay.yaml").write_text(STUDY)
    return folder


def graph(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Snakemake on the cluster, as docs/slurm.md starts it; asked more often than a real one would like."""
    profile = ["--workflow-profile", "workflow/profiles/slurm", "--configfile", "config/slurm.yaml"]
    often = ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *words, *profile, "overlay.yaml", *often, "--latency-wait", "20"],
        cwd=folder,
        # Threads that wait would take the cores from those of the other job.
        env=kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "OMP_WAIT_POLICY": "PASSIVE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def record_of(cell: Cell) -> str:
    return f"results/runs/{cell}/record.json"


@pytest.fixture(scope="module")
def trained(cluster: Cluster, clone: Path) -> Path:
    """A copy in which both CPU cells were trained as jobs."""
    process = graph(clone, *map(record_of, CELLS))
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said[-3000:]
    return clone


def test_the_cells_of_a_study_are_trained_as_jobs_and_their_evidence_arrives(trained: Path) -> None:
    for cell in CELLS:
        folder = cell.folder(trained / "results/runs")
        check_evidence(folder, cell)
        assert read_predictions(folder / "predictions.parquet")["image"].is_unique
        assert '"status": "ok"' in (folder / "record.json").read_text()
        assert '"attempts": 1' in (folder / "record.json").read_text()


def test_only_packing_and_training_are_jobs_with_what_they_ask_for(cluster: Cluster, trained: Path) -> None:
    # A job ends a moment after its evidence has arrived.
    until(lambda: {job["JobState"] for job in cluster.jobs()} == {"COMPLETED"}, 60, "a job does not end")
    jobs = {job["Comment"]: job for job in cluster.jobs()}
    needs = JobNeeds(read_study(trained / "results/study.json"), EvidenceStore(trained / "data/recorded"))
    assert sorted(jobs) == [
        "rule_pack_wildcards_phantom-32px",
        *(f"rule_train_wildcards_phantom-32px_{TINY}_cpu_{cell.seed}" for cell in CELLS),
    ]
    for cell in CELLS:
        job = jobs[f"rule_train_wildcards_phantom-32px_{TINY}_cpu_{cell.seed}"]
        assert job["JobState"] == "COMPLETED" and job["Partition"] == "cpu" and job["CPUs/Task"] == "2"
        assert job["TimeLimit"] == f"00:{needs.of(cell)['minutes']:02}:00"
        assert job["MinMemoryNode"] == "2G" and job["OverSubscribe"] == "NO" and job["Requeue"] == "0"
        assert job["StdOut"].startswith(f"{trained}/results/logs/slurm/")


def test_a_gpu_and_a_neuron_node_are_asked_for_by_platform(cluster: Cluster, trained: Path) -> None:
    wanted = [cell for platform in ("cuda", "neuron") for cell in [Cell("phantom-32px", TINY, platform, 0)]]
    process = graph(trained, *map(record_of, wanted), "--config", 'run=["*"]')

    def waiting() -> dict[str, dict[str, str]]:
        return {job["Partition"]: job for job in cluster.jobs() if job["JobState"] == "PENDING"}

    try:
        until(lambda: len(waiting()) == 2 or process.poll() is not None, 120, "the jobs were not submitted")
        asked = waiting()
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert asked["g5"]["TresPerNode"] == "gres:gpu:1" and asked["g5"]["MinMemoryNode"] == "1G"
        assert "TresPerNode" not in asked["trn1"] and asked["trn1"]["MinMemoryNode"] == "3G"
        assert all(job["OverSubscribe"] == "NO" for job in asked.values())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert not waiting()  # stopping Snakemake takes its jobs back


def test_a_job_that_is_cancelled_and_a_node_that_dies_cost_no_bit(
    cluster: Cluster, trained: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    shutil.copytree(trained, again, ignore=shutil.ignore_patterns("results", ".snakemake"))
    room = "src/cxrbench/results"  # named like the folder that is left out
    shutil.copytree(trained / room, again / room)
    cell = CELLS[0]
    process = graph(again, record_of(cell))
    saved = cell.folder(again / "results/checkpoints") / "checkpoints"

    def ours() -> list[dict[str, str]]:
        jobs = [job for job in cluster.jobs() if job["WorkDir"] == str(again)]
        return sorted(jobs, key=lambda job: int(job["JobId"]))

    def kept() -> set[str]:
        assert process.poll() is None, process.communicate()[0][-3000:]
        return {path.name for _, path in checkpoints(saved)}

    try:
        until(lambda: bool(kept()), 180, "no checkpoint after three minutes")
        subprocess.run(["scancel", ours()[0]["JobId"]], check=True)  # asks with SIGTERM, as a time limit does
        until(lambda: ours()[0]["JobState"] == "CANCELLED", 60, "the job was not cancelled")
        before = kept()
        until(lambda: bool(kept() - before), 180, "the retry saved nothing")
        node = ours()[1]["NodeList"]
        cluster.kill_node(node)
        said, _ = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
    assert process.returncode == 0, said[-3000:]
    until(lambda: ours()[-1]["JobState"] == "COMPLETED", 60, "the last job does not end")
    assert [job["JobState"] for job in ours()] == ["CANCELLED", "NODE_FAIL", "COMPLETED"]
    assert ours()[2]["NodeList"] != node
    folder = cell.folder(again / "results/runs")
    check_evidence(folder, cell)
    resumed = re.findall(r"resumed after step (\d+)", (folder / "train.log").read_text())
    assert len(resumed) == 2 and 0 < int(resumed[0]) < int(resumed[1])
    assert (scores(folder) == scores(cell.folder(trained / "results/runs"))).all()
