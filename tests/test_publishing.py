"""What others read with tools: the citation, the archive's description, and a finished run as an RO-Crate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, cxrbench, keep_recorded
from test_graph import copy_of_the_repository

CHECKS = 57  # of roc-validator for a Workflow Run Crate, none of them left out


def test_citation_archive_and_package_say_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["title"] == archive["title"]
    assert citation["license"] == archive["license"] == package["license"]
    assert [author["name"] for author in citation["authors"]] == [one["name"] for one in archive["creators"]]
    assert set(archive["keywords"]) <= set(citation["keywords"])


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of programs of the environment that requirements/crate.lock locks, beside this one."""
    place = Path(f"{sys.prefix}-crate")
    target = f"{place}/.cxrbench-crate"
    words = ["make", target, f"VENV={sys.prefix}", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{place} cannot be made here: {done.stderr.strip().splitlines()[-1]}")
    return place / "bin"


@pytest.mark.slow
def test_the_citation_is_valid(tools: Path, tmp_path: Path) -> None:
    def validated(path: Path) -> int:
        words = [tools / "cffconvert", "--validate", "--infile", path]
        return subprocess.run(words, capture_output=True).returncode

    assert validated(ROOT / "CITATION.cff") == 0
    wrong = tmp_path / "CITATION.cff"
    wrong.write_text((ROOT / "CITATION.cff").read_text().replace("type: software", "type: something"))
    assert validated(wrong) != 0


def in_the_crates_environment(tools: Path, clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(clone / "src")}
    return subprocess.run(
        [str(tools / words[0]), *words[1:]], cwd=clone, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which recorded evidence was adopted, scored and priced, and the run gathered."""
    clone = copy_of_the_repository(tmp_path_factory.mktemp("run"))
    keep_recorded(clone, "*/resnet18/cpu/seed0")
    targets = ["results/tables/cost.csv", "results/tables/metrics.csv"]
    graph = [sys.executable, "-m", "snakemake", *targets, "--cores", "all", "--config", "run=[]"]
    gathered = os.environ | {"SNAKEMAKE_FAIRSCAPE_DUMP_RECORDS": "results/gathered.json"}
    reporter = ["--reporter", "fairscape", "--report-fairscape-path", "results/fairscape.json"]
    for more in ([], reporter):
        done = subprocess.run(
            [*graph, *more], cwd=clone, env=gathered if more else None, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return clone


@pytest.mark.slow
def test_a_finished_run_is_a_valid_ro_crate(tools: Path, finished: Path, tmp_path: Path) -> None:
    crate, report = tmp_path / "crate", tmp_path / "report.json"
    words = ("python", "-m", "cxrbench.report.crate", "results/gathered.json", str(crate))
    done = in_the_crates_environment(tools, finished, *words)
    assert done.returncode == 0, done.stderr
    checked = ("python", "-m", "cxrbench.report.crate_check", str(crate), "-f", "json", "-o", str(report))
    done = in_the_crates_environment(tools, finished, *checked)
    found = json.loads(report.read_text())
    assert done.returncode == 0 and found["passed"], found["issues"]
    assert found["validation_settings"]["profile_identifier"] == "workflow-run-crate-0.5"
    assert found["statistics"]["total_passed_checks"] == CHECKS

    entities = {
        one["@id"]: one for one in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    }
    files = [name for name, one in entities.items() if one["@type"] == "File"]
    assert files and all((crate / name).is_file() for name in files)
    cells = [name for name in files if name.startswith("results/cells/")]
    assert any(name.endswith("predictions.parquet") for name in cells)
    assert not [name for name in files if name.endswith((".npy", ".png"))]  # no radiograph leaves
    (cost,) = [one for one in entities.values() if one.get("name") == "cost"]
    assert (
        "cxrbench cost table" in cost["description"] and cost["result"][0]["@id"] == "results/tables/cost.csv"
    )
    assert {one["@id"] for one in cost["object"]} >= {"data/prices.csv"}


def without(crate: Path, name: str, key: str) -> None:
    """Take ``key`` from the entity called ``name``."""
    path = crate / "ro-crate-metadata.json"
    document = json.loads(path.read_text())
    del next(one for one in document["@graph"] if one["@id"] == name)[key]
    path.write_text(json.dumps(document))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda crate: (crate / "data/prices.csv").unlink(), "data/prices.csv"),
        (lambda crate: without(crate, "#run", "instrument"), "instrument property"),
        (lambda crate: without(crate, "./", "license"), "license"),
    ],
    ids=["a lost file", "a run of nothing", "no licence"],
)
def test_the_validator_finds_what_is_wrong(tools: Path, finished: Path, tmp_path: Path, damage, told) -> None:
    crate, report = tmp_path / "crate", tmp_path / "report.json"
    words = ("python", "-m", "cxrbench.report.crate", "results/gathered.json", str(crate))
    assert in_the_crates_environment(tools, finished, *words).returncode == 0
    damage(crate)
    checked = ("python", "-m", "cxrbench.report.crate_check", str(crate), "-f", "json", "-o", str(report))
    assert in_the_crates_environment(tools, finished, *checked).returncode != 0
    assert any(told in issue["message"] for issue in json.loads(report.read_text())["issues"])


@pytest.mark.slow
def test_what_is_no_run_is_one_message(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text("{}")
    shutil.copytree(ROOT / "src", tmp_path / "src")
    words = ("python", "-m", "cxrbench.report.crate", "wrong.json", "out")
    done = in_the_crates_environment(tools, tmp_path, *words)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "wrong.json: not a run that the reporter gathered" in done.stderr


def test_the_doors_to_the_crate_are_told() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "make crate" in shown
    assert cxrbench("report", "--help").returncode == 0
