"""``cxrbench contribute``: the records of a machine into one archive, and an archive into the evidence."""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, STUDY, RecordedOption, StudyOption, say
from cxrbench.study.errors import UserError, printable

SHOWN = (
    "claims",
    "parity",
    "parity_phantoms",
    "contrasts",
    "cost",
    "quality",
)  # tables whose changes are printed
_WIDEST = 240  # characters of a printed line of a table


@contextmanager
def _work_folder() -> Iterator[Path]:
    """Yield an empty folder inside the checkout, whose history `verify` asks; it is removed afterwards."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".contribution-", dir=RESULTS) as folder:
        yield Path(folder)


def receive(archive: Path, study: Path, recorded: Path, replace: bool, build: bool) -> None:
    """Check an archive, keep what it has as recorded evidence, and print what that changes in the paper."""
    from cxrbench.cli.evidence import record
    from cxrbench.evidence import contribution
    from cxrbench.evidence.record import read_record
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import must_be_architectures

    with _work_folder() as work:
        runs = work / contribution.RECORDS
        cells = contribution.unpack(archive, work)
        must_be_architectures(
            [cell.architecture for cell in cells], f"{archive}: {contribution.CONTENT.again}"
        )
        if problems := contribution.problems_with(cells, runs, recorded, read_study(study), work):
            raise UserError("\n".join([*(f"{archive}: {text}" for text in problems), "nothing was recorded"]))
        print(contribution.summary({cell: read_record(cell.folder(runs)) for cell in cells}))
        before = _tables() if build else {}
        record([*map(str, cells)], runs, recorded, replace)
        if (work / contribution.BENCH).is_dir():
            _ours("bench", "record", "--source", work / contribution.BENCH, "--recorded", recorded)
    if build:
        _print_changes(before, _tables())
    say(f"staged in {recorded}: look at `git status`, then commit; `git restore` and `git clean` undo it")


def _ours(*words: object) -> int:
    """Run one of our commands in a process of its own; return its exit code."""
    return subprocess.run([sys.executable, "-m", "cxrbench", *map(str, words)]).returncode


def _tables() -> dict[str, list[str]]:
    """Build the paper's tables from recorded evidence; return the lines of those that are compared."""
    command = ("snakemake", "paper/generated/macros.tex", "--quiet", "--config", "run=[]")
    if subprocess.run([sys.executable, "-m", *command], stdout=sys.stderr).returncode:
        raise UserError("the paper cannot be built from what is recorded now; the lines above say why")
    paths = {name: RESULTS / f"tables/table_{name}.csv" for name in SHOWN}
    return {name: path.read_text("utf-8").splitlines() for name, path in paths.items() if path.is_file()}


def _print_changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    """Print the rows that differ, table by table: ``-`` as it was, ``+`` as it is now."""
    print("What changes in the paper:")
    changed = False
    for name, rows in after.items():
        lines = [*difflib.unified_diff(before.get(name, []), rows, n=0, lineterm="")][2:]
        if lines := [line for line in lines if not line.startswith("@@")]:
            print(f"{name}:", *(printable(line)[:_WIDEST] for line in lines), sep="\n  ")
            changed = True
    if not changed:
        print("  no row of its tables")


def contribute(
    archive: Annotated[Path, typer.Option("--receive", help="Archive of records, as contributed.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace recorded evidence.")] = False,
    build: Annotated[
        bool, typer.Option("--build/--no-build", help="Print what changes in the paper.")
    ] = True,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Check an archive of records from another machine and keep them as recorded evidence."""
    receive(archive, study, recorded, replace, build)
