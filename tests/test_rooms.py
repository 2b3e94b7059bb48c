"""The rooms of src/cxrbench: imports go downwards, the paper needs no torch, names are unique."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from conftest import ROOT
from cxrbench.paper.items import tables

SOURCE = ROOT / "src"
ROOMS = (  # each may import itself and what follows it
    *("cli", "paper", "claims", "cost", "analysis", "compile", "cloud", "training", "platforms"),
    *("evidence", "datasets", "study"),
)
WITHOUT_TORCH = ("paper", "claims", "cost", "analysis")
TORCH = {"torch", "torch_xla", "torchvision", "timm"}
STATISTICS = {"scipy", "sklearn"}
# Each loads in half a second what commands, or every job of a build, would wait for.
QUICK = {
    "cxrbench.evidence.verify": STATISTICS | TORCH,  # cxrbench verify
    "cxrbench.claims.ledger": STATISTICS,  # cxrbench claims
    "cxrbench.analysis.evaluate": {"sklearn"},
    "cxrbench.evidence.expected": STATISTICS | {"pandas", "pyarrow"},  # the end of every build
    "cxrbench.evidence.store": STATISTICS | {"pandas", "pyarrow"},  # adopt
    "cxrbench.cli": STATISTICS | {"pandas", "pyarrow"},
    "cxrbench.paper.items": STATISTICS | {"pandas", "pyarrow"},  # Snakemake
}
LONGEST = 400  # lines
# Modules of one name in several rooms that answer the same question: one computes, the other shows it.
SHARED_NAMES = {
    "audit": "the graphs of networks against what is known of Neuron",
    "calibration": "whether scores are probabilities",
    "ledger": "the claims with their verdicts",
    "power": "what patients and seeds can show",
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


def test_imports_go_from_the_command_line_down_to_the_study() -> None:
    upwards = [
        f"{module} imports {other}"
        for module in FILES
        for other in imports(module)
        if room_of(module) in ROOMS and other in FILES and room_of(other) in ROOMS
        if ROOMS.index(room_of(other)) < ROOMS.index(room_of(module))
    ]
    assert upwards == []
    assert {room_of(module) for module in FILES} - {"", "__main__"} == set(ROOMS)


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


# -- the files that a reader opens ------------------------------------------------------------------

# A route begins at the commands of the rules. `a -> b c`: of what `a` names only `b` and `c` are followed, as
# a reader of one number goes on; a place without an arrow is followed to the end: all that it names, types
# left out, and what that names. So a file counts if one line of it is on the way. The trainer that `train`
# starts, and the functions of items.toml, are called by names in texts: they stand here, or are read there.
CELL = (
    *("cli.train:train", "cli.train:adopt", "training.child:main"),
    "cli.scores:evaluate",  # to metrics.csv
)
WRITE_STATISTICS = "analysis.statistics:write_statistics"
SCORED, SCORES = "analysis.statistics:_scored", "analysis.statistics:_scores"
OF_CELL = (f"{SCORED} -> {SCORES}", f"{SCORES} -> analysis.estimates:estimate_cell")
PRINTED = ("cli.report:tables -> cli.report:_read paper.latex:write_tables", "cli.report:_read")
ROUTES = {
    "cell": CELL,
    # The abstract's macro AUROC, a mean over seeds with its interval: the macro `largest/auroc`.
    "mean": (
        *(*CELL, f"cli.report:statistics -> {WRITE_STATISTICS}", *PRINTED),
        f"{WRITE_STATISTICS} -> {SCORED} analysis.components:spread",
        *OF_CELL,
        "paper.latex:write_tables -> paper.numbers:numbers paper.latex:macros",
        "paper.numbers:numbers -> paper.numbers:_picked_numbers",
    ),
    # How two platforms differ in the main endpoint: a field of the table `parity`.
    "difference": (
        *(*CELL, f"cli.report:statistics -> {WRITE_STATISTICS}", *PRINTED),
        f"{WRITE_STATISTICS} -> {SCORED} analysis.statistics:_parity",
        *OF_CELL,
        "paper.latex:write_tables -> paper.items:tables paper.tables:parity_of_platforms paper.latex:placed",
    ),
    # All statistics, tables and macros.
    "all": (*CELL, "cli.report:statistics", "cli.report:tables"),
}
FILES_OPENED = {  # may only fall; the aims: 15, and 25 for a number
    "cell": 25,
    "mean": 32,
    "difference": 34,
    "all": 60,
}


def place(name: str) -> tuple[str, str]:
    """The module and the name at its top of ``room.module:name``."""
    module, _, top = name.partition(":")
    return f"cxrbench.{module}", top


def definitions(module: str) -> dict[str, ast.AST]:
    """The functions, classes and values at the top of a module."""
    nodes: dict[str, ast.AST] = {}
    for node in TREES[module].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
                nodes |= dict.fromkeys(names, node.value)
    return nodes


def uses(module: str, top: str) -> Iterator[tuple[str, str]]:
    """(module, name) of ours that stand in the code of a definition, types in its signatures left out."""
    node = definitions(module)[top]
    imported = {}
    for tree in (TREES[module], node):
        for statement in statements(tree, eager=tree is not node):
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    imported[alias.asname or alias.name] = (str(statement.module), alias.name)
    parts = list(ast.walk(node))
    annotations = [getattr(part, name, None) for part in parts for name in ("returns", "annotation")]
    types = {part for annotation in annotations if annotation for part in ast.walk(annotation)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    qualified = {part.value for part in parts if isinstance(part, ast.Attribute)}
    for part in parts:
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            of, name = imported.get(part.value.id, ("", ""))
            yield f"{of}.{name}", part.attr
        elif isinstance(part, ast.Name) and part not in types:
            of, name = imported.get(part.id, (module, part.id))
            yield of, name
            if part not in qualified:  # a module as a value: `for part in (power, pairs): part.numbers()`
                yield from ((f"{of}.{name}", attribute) for attribute in attributes)
    if (module, top) == place("paper.latex:write_tables"):
        yield from (place(f"paper.{item.function}") for item in tables().values())


def files_to_open(route: Iterable[str]) -> set[str]:
    """The modules that a reader of a route of :data:`ROUTES` opens."""
    steps = {place(name): to.split() for name, _, to in (step.partition(" -> ") for step in route)}
    waiting, seen = list(steps), set(steps)
    while waiting:
        module, name = waiting.pop()
        named = {(of, top) for of, top in uses(module, name) if of in FILES and top in definitions(of)}
        if chosen := {place(to) for to in steps.get((module, name), ())}:
            assert chosen <= named, f"{module}.{name} does not name {chosen - named}"
            named = chosen
        waiting += named - seen
        seen |= named
    return {module for module, _ in seen}


@pytest.mark.parametrize("route", ROUTES)
def test_a_reader_opens_no_more_files_than_before(route: str) -> None:
    opened = files_to_open(ROUTES[route])
    assert len(opened) <= FILES_OPENED[route], (len(opened), sorted(opened))
