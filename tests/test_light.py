"""What the package alone brings, and what works then, in an empty folder and without a network."""

import ast
import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement

from conftest import ROOT, clone_of_the_tree, ran
from cxrbench.cli import EXTRAS

LIGHT = {"matplotlib", "numpy", "pandas", "pyarrow", "rich", "scipy", "typer"}
# What takes seconds to load, or is installed by an extra. (typer itself may bring pydantic.)
HEAVY = {name for names in EXTRAS.values() for name in names} - {"PIL", "pydantic", "typing_extensions"}
COME_ALONG = {"botocore", "snakemake_interface_logger_plugins", "urllib3"}  # with boto3, Snakemake, requests
COMMANDS = {
    "evaluate": ("evaluate", "seed0.csv", "--replicates", "20"),
    "power": ("power", "--patient-se", "0.0038", "--measured-on", "510"),
    "compare": ("compare", "seed0.csv", "seed1.csv", "--html", "page.html"),
}
BLOCKED = """
import socket, sys
def refused(*_, **__):
    raise SystemExit("the network was asked for")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refused
sys.argv[0] = "cxrbench"
from cxrbench.cli import main
try:
    main()
finally:
    print("LOADED", *sorted(name.partition(".")[0] for name in sys.modules), file=sys.stderr)
"""


def scores(path: Path, seed: int) -> None:
    """Write the predictions of one run on 120 patients: two findings, two images each."""
    rng, truth = np.random.default_rng(seed), np.random.default_rng(9)
    table = pd.DataFrame({"image": [f"i{k}" for k in range(240)], "patient": np.arange(240) // 2})
    for name in ("Mass", "Edema"):
        table[f"label_{name}"] = truth.integers(0, 2, 240)
        table[f"score_{name}"] = (0.2 * table[f"label_{name}"] + 0.8 * rng.random(240)).round(4)
    table.to_csv(path, index=False)


def installed_modules() -> set[str]:
    """The names of modules that a file of src/ imports, of packages of others."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"cxrbench"}


def requirements(name: str) -> set[str]:
    """The names of the packages in a file of requirements."""
    lines = (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
    return {Requirement(line.partition(" #")[0]).name for line in lines if re.match(r"\w", line)}


@pytest.mark.slow
def test_the_package_alone_brings_seven_packages_and_an_extra_has_each_other_one() -> None:
    assert requirements("light") == LIGHT
    distributions = metadata.packages_distributions()
    for extra in EXTRAS:
        asked = {name.lower().replace("_", "-") for name in requirements(extra)}
        for module in EXTRAS[extra] & set(distributions):
            names = {name.lower().replace("_", "-") for name in distributions[module]}
            assert names & asked or module in COME_ALONG, f"{module} is not in requirements/{extra}.in"
    of_neuron = {
        "libneuronxla",
        "neuronxcc",
        "torch_neuronx",
        "libtpu",
        "concourse",
    }  # on indexes of their own
    told = set().union(*EXTRAS.values()) | LIGHT | of_neuron
    assert installed_modules() - told == set(), "name the extra that brings it in cli/__init__.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_needs_no_clone_loads_no_package_of_an_extra(name: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        scores(tmp_path / f"seed{seed}.csv", seed)
    done = ran(sys.executable, "-c", BLOCKED, *COMMANDS[name], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    assert "pandas" in loaded and loaded & HEAVY == set()


@pytest.mark.slow
def test_a_command_without_its_packages_names_the_extra(tmp_path: Path) -> None:
    """A folder of broken packages stands first on the path, as if they were not installed."""
    for module, extra, words in (
        ("yaml", "paper", ("plan",)),
        ("psutil", "paper", ("train", "phantom-32px/resnet18/cpu/seed0")),
        ("requests", "train", ("data", "download", "nih", "--yes")),
    ):
        (folder := tmp_path / module).mkdir()
        missing = f"raise ModuleNotFoundError('No module named {module}', name={module!r})"
        (folder / f"{module}.py").write_text(missing)
        environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT / 'src'}"}
        done = ran(sys.executable, "-m", "cxrbench", *words, cwd=ROOT, env=environment)
        said = f"cxrbench: this command needs {module}, which is not installed; install cxrbench[{extra}]\n"
        assert done.returncode == 1 and done.stderr.endswith(said) and "Traceback" not in done.stderr
    folder = tmp_path / "yaml"
    (folder / "yaml.py").write_text("import a_module_of_nobody")
    done = ran(
        sys.executable,
        "-m",
        "cxrbench",
        "plan",
        cwd=ROOT,
        env=environment | {"PYTHONPATH": f"{folder}:{ROOT / 'src'}"},
    )
    assert "Traceback" in done.stderr, "a mistake of ours is not called a missing extra"


def pythons() -> dict[str, str]:
    """A Python of each version from 3.11 on that is on this machine."""
    found = {"3.11": sys.executable}
    for minor in range(12, 15):
        places = sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python3"))
        for path in filter(None, [*map(str, places), shutil.which(f"python3.{minor}")]):
            if ran(path, "-c", "").returncode == 0:
                found[f"3.{minor}"] = path
    return found


def uv(*words: object, **how: object) -> CompletedProcess[str]:
    done = ran("uv", *words, **how)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("uv"), reason="uv is not on PATH; `make test` puts it there")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_wheel_alone_scores_compares_and_sizes_in_an_empty_folder(version: str, tmp_path: Path) -> None:
    if (python := pythons().get(version)) is None:
        pytest.skip(f"there is no Python {version} on this machine")
    source, empty = clone_of_the_tree(tmp_path / "source"), tmp_path / "empty"
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    assert (built := ran(sys.executable, *words)).returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    uv("venv", "--python", python, tmp_path / "venv")
    pinned = [
        re.match(r"[\w.-]+==\S+", line)
        for line in (ROOT / "requirements/paper.lock").read_text().splitlines()
    ]
    if version == "3.11":  # what `make setup` fetched need not be fetched again
        (tmp_path / "constraints.txt").write_text("\n".join(match[0] for match in pinned if match))
        more = ("--constraint", tmp_path / "constraints.txt")
    else:
        more = ()
    uv("pip", "install", "--python", tmp_path / "venv/bin/python", *more, wheel)
    empty.mkdir()
    for seed in (0, 1):
        scores(empty / f"seed{seed}.csv", seed)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in COMMANDS.values():
        done = ran(tmp_path / "venv/bin/python", "-c", BLOCKED, *command, cwd=empty, env=clean)
        assert done.returncode == 0 and done.stdout, done.stderr
    here = ran(tmp_path / "venv/bin/cxrbench", *COMMANDS["evaluate"], cwd=empty, env=clean)
    there = ran(sys.executable, "-m", "cxrbench", *COMMANDS["evaluate"], cwd=empty)
    assert here.stdout == there.stdout and "Mass" in here.stdout
    lacking = ran(tmp_path / "venv/bin/cxrbench", "plan", cwd=empty, env=clean)
    assert lacking.returncode == 1 and "install cxrbench[paper]" in lacking.stderr
    shown = ran(tmp_path / "venv/bin/cxrbench", "--help", cwd=empty, env=clean)
    assert shown.returncode == 0 and "needs" not in shown.stdout, "each command's help loads no extra"
    assert ran(tmp_path / "venv/bin/cxrbench", "--version", cwd=empty, env=clean).stdout == "cxrbench 0.1.0\n"
