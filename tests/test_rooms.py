"""The rooms of src/cxrbench: imports go downwards, the paper needs no torch, names are unique."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from conftest import ROOT, ran

SOURCE = ROOT / "src"
ROOMS = (  # each may import itself and what follows it
    *("cli", "paper", "claims", "cost", "results", "neuron", "cloud", "training", "platforms"),
    *("evidence", "datasets", "study", "workflow", "common", "statistics"),
)
WITHOUT_TORCH = ("paper", "claims", "cost", "results", "statistics")
TORCH = {"torch", "torch_xla", "torchvision", "timm"}
STATISTICS = {"scipy", "sklearn"}
_COMMANDS = sorted(f"cxrbench.cli.{path.stem}" for path in (ROOT / "src/cxrbench/cli").glob("[a-z]*.py"))
_COMMANDS.remove("cxrbench.cli.contributor")  # loaded when the command runs, not for its help
# Each loads in half a second what commands, or every job of a build, would wait for.
QUICK = {
    "cxrbench.evidence.verify": STATISTICS | TORCH,  # cxrbench verify
    "cxrbench.claims.ledger": STATISTICS,  # cxrbench claims
    "cxrbench.results.scoring": {"sklearn"},
    "cxrbench.evidence.expected": STATISTICS | {"pandas", "pyarrow"},  # the end of every build
    "cxrbench.evidence.store": STATISTICS | {"pandas", "pyarrow"},  # adopt
    "cxrbench.cli": STATISTICS | {"pandas", "pyarrow"},
    **dict.fromkeys(_COMMANDS, STATISTICS | {"pandas", "pyarrow", "pydantic"}),  # their help
    "cxrbench.paper.items": STATISTICS | {"pandas", "pyarrow"},  # Snakemake
    "cxrbench.paper.entries": STATISTICS | {"pandas", "pyarrow"},  # Snakemake
}
LONGEST = 400  # lines
# Modules of one name in several rooms that answer the same question: one computes, the other shows it.
SHARED_NAMES = {
    "audit": "the graphs of networks against what is known of Neuron",
    "calibration": "whether scores are probabilities",
    "errors": "a user's mistake: statistics has its own, because it imports nothing of ours",
    "ledger": "the claims with their verdicts",
    "power": "what patients and seeds can show",
    "predictions": "per-image predictions: one checks them, the other keeps a cell's",
}


def name_of(path: Path) -> str:
    """``cxrbench.study.names`` for its file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


FILES = {name_of(path): path for path in SOURCE.glob("cxrbench/**/*.py")}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def statements(node: ast.AST, eager: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports below ``node``; with ``eager`` only those that run when its module is imported."""
    for child in ast.iter_child_nodes(node):
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (eager and (later or typing_only)):
            yield from statements(child, eager)


def imports(module: str, eager: bool = False) -> set[str]:
    """The modules that ``module`` imports; others' packages by their first name."""
    modules = set()
    for statement in statements(TREES[module], eager):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            assert statement.level == 0, f"{module}: write imports in full"
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        for name in names:
            of_ours = name if name in FILES else name.rpartition(".")[0]
            modules.add(of_ours if of_ours in FILES else name.split(".")[0])
    return modules - {module}


def test_imports_go_from_the_command_line_down_to_the_statistics() -> None:
    upwards = [
        f"{module} imports {other}"
        for module in FILES
        for other in imports(module)
        if room_of(module) in ROOMS and other in FILES and room_of(other) in ROOMS
        if ROOMS.index(room_of(other)) < ROOMS.index(room_of(module))
    ]
    assert upwards == []
    assert {room_of(module) for module in FILES} - {"", "__main__"} == set(ROOMS)


def test_a_contributor_is_told_of_every_room() -> None:
    """The table kept the names of rooms that had moved."""
    rows = re.findall(r"^\| (`[a-z`, ]+`) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M)
    assert [room.strip("` ") for row in rows for room in row.split(",")] == list(ROOMS)


def test_only_the_command_line_mounts_the_benchmarks() -> None:
    """By a name in a text; so the file that has it is found by the text."""
    assert [module for module in FILES if "benchmarks" in imports(module)] == []
    named = [name for name, path in FILES.items() if '"benchmarks.' in path.read_text(encoding="utf-8")]
    assert named == ["cxrbench.cli"]


def test_no_module_imports_itself_through_others() -> None:
    try:
        TopologicalSorter({module: imports(module) for module in FILES}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def loads(slow: set[str], module: str, seen: set[str]) -> Iterator[str]:
    """The ways from ``module`` to what is ``slow`` when it is imported, with the packages that it is in."""
    parts = module.split(".")
    packages = {".".join(parts[:count]) for count in range(1, len(parts))}
    for other in sorted(imports(module, eager=True) | packages):
        if other in slow:
            yield f"{module} imports {other}"
        elif other in FILES and other not in seen:
            seen.add(other)
            yield from loads(slow, other, seen)


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_what_computes_and_renders_the_paper_needs_no_torch(room: str) -> None:
    modules = [module for module in FILES if room_of(module) == room]
    assert [f"{module} imports torch" for module in modules if imports(module) & TORCH] == []
    seen: set[str] = set()
    assert [way for module in modules for way in loads(TORCH, module, seen)] == []


@pytest.mark.parametrize("module", QUICK)
def test_what_should_answer_at_once_loads_no_slow_library(module: str) -> None:
    assert list(loads(QUICK[module], module, {module})) == []


# Imports and uses a room of statistics; packages that are hidden are as if they were not installed.
ALONE = """
import importlib, pkgutil, sys
class Hidden:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("torch", "pydantic", "typer", "snakemake", "yaml", "sklearn"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden)
import cxrbench.statistics as room
for module in pkgutil.iter_modules(room.__path__):
    importlib.import_module(f"cxrbench.statistics.{module.name}")
from cxrbench.statistics.evaluate import evaluate
from cxrbench.statistics.predictions import load_predictions
print(len(evaluate(load_predictions(sys.argv[1])[0], replicates=2).table))
"""


def alone(room: Path, predictions: Path) -> subprocess.CompletedProcess[str]:
    """What becomes of the statistics in ``room``/cxrbench where there is nothing else of cxrbench."""
    shutil.copytree(SOURCE / "cxrbench/statistics", room / "cxrbench/statistics", dirs_exist_ok=True)
    (room / "cxrbench/__init__.py").touch()
    return ran(sys.executable, "-c", ALONE, predictions, env=os.environ | {"PYTHONPATH": str(room)})


def test_the_statistics_can_leave(tmp_path, predictions) -> None:
    predictions.to_csv(tmp_path / "predictions.csv", index=False)
    done = alone(tmp_path, tmp_path / "predictions.csv")
    assert done.returncode == 0 and int(done.stdout) > 100, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("borrowed", ["cxrbench.common.errors", "pydantic", "torch"])
def test_statistics_that_borrow_cannot_leave(borrowed: str, tmp_path, predictions) -> None:
    predictions.to_csv(tmp_path / "predictions.csv", index=False)
    planted = tmp_path / "cxrbench/statistics/planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"import {borrowed}\n")
    done = alone(tmp_path, tmp_path / "predictions.csv")
    assert done.returncode and "ModuleNotFoundError" in done.stderr and f"import {borrowed}" in done.stderr


def test_no_file_is_too_long_to_read() -> None:
    paths = [*SOURCE.rglob("*.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("workflow/rules/*.smk")]
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in paths}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_no_two_rooms_have_modules_of_one_name() -> None:
    rooms = defaultdict(set)
    for module in FILES:
        if module.count(".") > 1:
            rooms[module.rpartition(".")[2]].add(room_of(module))
    shared = {name: sorted(of) for name, of in rooms.items() if len(of) > 1}
    assert {name: of for name, of in shared.items() if name not in SHARED_NAMES} == {}
