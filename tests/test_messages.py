"""Every message of a user's mistake says where it is and what to do, whoever wrote it last."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT, cxrbench

FILES = sorted([*ROOT.glob("src/cxrbench/**/*.py"), *ROOT.glob("benchmarks/*.py")])
HOLE = "\0"  # stands for a value that a message gets when it is raised
# What a user can do: the first word of a remedy.
DO = (
    "add|ask|build|call|change|check|choose|complete|connect|continue|contribute|copy|correct|delete|drop|fetch|"
    "fill|free|get|give|install|join|keep|leave|link|look|lower|make|measure|mend|move|name|put|quote|raise|"
    "record|reinstall|remove|rename|repeat|report|restore|run|save|say|score|see|separate|set|shorten|split|"
    "start|state|take|train|try|unset|update|use|wait|write"
)
REMEDY = re.compile(
    rf"(^|[;:.,] |, or |, and |, so |, then |\n|{HOLE} )'?({DO})\b|did you mean|it must |[;:] `|\?", re.I
)
# The place may be the command that was just typed: then the message begins with what it lacks.
PLACE = re.compile(rf"{HOLE}|--[a-z]|'|`|\b(config|study|phantom images|capacity|AWS)\b|^({DO})\b")
# Helpers whose text is the remedy: the nearest of known names, or a list of them.
NEAREST = {"nearest", "suggestion"}


def said(node: ast.expr) -> str:
    """The text of an expression, with a hole for each value; a call of a helper counts as its remedy."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(map(said, values))
        case ast.BinOp(left=left, right=right):
            return said(left) + said(right)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id=name))) if name in NEAREST:
            return "; did you mean"
        case ast.IfExp(body=body, orelse=orelse):
            return max(said(body), said(orelse), key=len)
        case ast.FormattedValue(value=value) if isinstance(value, ast.IfExp):
            return said(value)
    return HOLE


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each UserError that is made in ``source``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "UserError":
            yield node.lineno, said(node.args[0])


def faults(text: str) -> list[str]:
    """What a message lacks; one that ends in a value gets its remedy there."""
    remedied = text.endswith((HOLE, f"{HOLE})")) or REMEDY.search(text)
    return [*([] if PLACE.search(text) else ["place"]), *([] if remedied else ["remedy"])]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_message_says_where_and_what_to_do(path) -> None:
    lacking = [
        f"{path.name}:{line}: no {' and no '.join(lacks)}: {text.replace(HOLE, '...')}"
        for line, text in messages(path.read_text(encoding="utf-8"))
        if (lacks := faults(text))
    ]
    assert lacking == []


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        ('UserError("it failed")', ["place", "remedy"]),
        ('UserError(f"{path}: cannot be read by anybody")', ["remedy"]),
        ('UserError("the file is damaged; fetch it again")', ["place"]),
        ('UserError(f"{path}: damaged" f"; fetch it again")', []),
        ('UserError(f"--only: there is no part {name!r}{suggestion(name, names)}")', []),
        ('UserError(f"{path}: {fault}")', []),
    ],
)
def test_a_message_that_lacks_something_is_found(source: str, lacks: list[str]) -> None:
    assert [faults(text) for _, text in messages(source)] == [lacks]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("cost", "mine", "resnet50", "--images", "60,000"),
            "'60,000' is not a whole number; write 60000",
        ),
        (("power", "--patients=5k"), "'5k' is not a whole number; write 5000"),
        (("power", "--patients", "0,5"), "'0,5' is not a whole number; write digits alone"),
        (("power", "--share", "0.1", "--share", "50%"), "'50%' is not a number; write 0.5"),
        (("power", "--margin", "x"), "'x' is not a number; write digits alone"),
        (("power", "--seeds", "2"), "2: give a number of at least 3"),
        (("power", "--margin", "0.9"), "0.9: give a number of at most 0.5"),
        (
            ("cost", "decide", "--ratio", "0.8", "--spend", "5"),
            "a number is missing before '--spend'; give 2",
        ),
        (("cost", "decide", "--ratio", "0.8"), "requires 2 arguments, LOW HIGH: Your own cost ratio"),
        (("bench", "train", "--platform", "neuron"), "on 'neuron'; use cpu, cuda, xla_cpu"),
        (("bench", "train", "--precision", "fp16"), "cpu has no precision 'fp16'; use fp32, bf16"),
        (("contribute", "a/b/cpu/seed0", "--platform", "cpu"), "the cells to train or --platform, not both"),
        (("compare", "a", "b", "--margin", "0,02"), "'0,02' is not a number; write 0.02"),
        (("cost", "decide", "--spend", "20,000"), "'20,000' is not a number; write 20000"),
    ],
)
def test_a_malformed_number_is_quoted_with_a_remedy(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = cxrbench(*words, cwd=tmp_path)
    assert done.returncode == 2 and said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("power", "a/b/cpu", "--patient-se", "0.01", "--measured-on", "500"), "leave it or a/b/cpu out"),
        (
            ("evaluate", "x.csv", "--columns", "a=b", "--columns", "c=d"),
            "separate its names by commas: a=b,c=d",
        ),
        (("data", "get", "phantom"), "the datasets made of them are phantom-64px, phantom-32px"),
        (("train", "nih128-32px/resnet18/cpu/seed0", "--packed", "x"), "--packed x: name the manifest.json"),
        (("cost", "table", "."), ".: there is no record.json in it; name one, or a folder of them"),
        (("cost", "refresh", "--dated", "2020-01-01"), "leave it out for a list that is read today"),
    ],
)
def test_what_would_be_ignored_is_refused_with_a_remedy(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    for name in ("config", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = cxrbench(*words, cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr and "reading" not in done.stderr
