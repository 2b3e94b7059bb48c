"""What all commands share: options, default places, and messages."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cxrbench.common.errors import UserError, printable

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")]
PricesOption = Annotated[Path, typer.Option("--prices", help="Price table.")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
ResultsOption = Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")]
ProcessesOption = Annotated[
    int | None, typer.Option(min=1, help="Processes, one per device. Default: limits.processes of the study.")
]
StudyOption = Annotated[Path, typer.Option("--study", help="Study file, YAML or JSON.")]
TablesOption = Annotated[Path, typer.Option(help="Folder of the result tables.")]
MAPPED = "Your names of columns, as image=ID,patient=PID"  # help of --columns
_NARROWEST, _USUAL_WIDTH, _WIDEST = 60, 100, 120  # of printed tables and notes; usual where none is known
_LONG = 24  # characters of a word that a narrow terminal may break
CANNOT_RUN = 3  # exit code: the cell cannot be trained on this machine
ANOTHER_VERDICT = 4  # exit code: not the verdict that --expect names
TIMED = ("cpu", "cuda", "xla_cpu")  # platforms of `cxrbench bench train`
PACKED, PRICES, RECORDED = Path("data/packed"), Path("data/prices.csv"), Path("data/recorded")
REGISTRY, RESULTS, STUDY = Path("data/registry.csv"), Path("results"), Path("config/config.yaml")


def mapped_columns(text: str) -> dict[str, str]:
    """The columns of ``image=dicom_id,patient=subject_id``."""
    pairs = [part.partition("=") for part in text.split(",")] if text else []
    if bad := [name for name, sign, column in pairs if not (name.strip() and sign and column.strip())]:
        raise UserError(f"--columns {bad[0]}: write our name, an equals sign and yours, as image=dicom_id")
    return {name.strip(): column.strip() for name, _, column in pairs}


def print_json(rows: pd.DataFrame) -> None:
    """Print the rows of a table as JSON."""
    print(rows.to_json(orient="records", indent=1))


def span(low: float, high: float, kind: str = "short") -> str:
    """A range in two digits (``seen``: in four), a single value where its ends are equal."""
    from cxrbench.paper.formats import Range, text

    return text(Range(low, high), kind)


def terminal_width() -> int:
    """The width of the terminal in columns; 100 in a file or a pipe."""
    return min(max(shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns, _NARROWEST), _WIDEST)


def wrapped(text: str, indent: str = "  ") -> str:
    """A text in lines that fit the terminal, all but the first indented."""
    return textwrap.fill(
        text, terminal_width(), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows of texts as columns two blanks apart; those numbered in ``right`` end at their right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = (
        [f"{text:>{width}}" if k in right else f"{text:<{width}}" for k, (text, width) in enumerate(both)]
        for both in (zip(row, widths, strict=True) for row in rows)
    )
    return "\n".join("  ".join(row).rstrip() for row in texts)


def in_columns(table: pd.DataFrame, heads: Mapping[str, str] = MappingProxyType({}), *apart: str) -> str:
    """A table that fits the terminal: ``heads`` with units, four digits, a dash for no value.

    Texts and heads are wrapped. A text that is the same in all rows stands once, below the table. A single
    row is a list. There is a table for each value of the columns ``apart``.
    """
    from rich.console import Console  # slow to load

    if apart:
        return "\n\n".join(in_columns(rows, heads) for _, rows in table.groupby([*apart], sort=False))
    if table.empty:
        return "no rows"
    table = table.rename(columns=heads).dropna(axis="columns", how="all")
    texts = table.map(_text)
    if len(table) == 1:
        row = {str(name): text for name, text in texts.iloc[0].items() if text != "-"}
        return "\n".join(wrapped(f"{name:{max(map(len, row))}}  {text}") for name, text in row.items())
    numbers = {name for name in table if not any(isinstance(value, str) for value in table[name])}
    same = [name for name in texts if texts[name].nunique() == 1]
    same = same[len(same) == len(texts.columns) :]  # something has to stay in the rows
    below = [name for name in same if name not in numbers]
    console = Console(file=io.StringIO(), width=_WIDEST * 10, markup=False, emoji=False, highlight=False)
    if console.measure(_laid_out(texts.drop(columns=below), numbers)).minimum > terminal_width():
        below = same
    shown = _laid_out(texts.drop(columns=below), numbers)
    # Where the terminal is too narrow for whole words, a table is as wide as in a file.
    least = min(_USUAL_WIDTH, console.measure(shown).minimum)
    room = max(terminal_width(), least)
    widest = max(least, min(room, console.measure(shown).maximum))  # no wider than its texts
    for shown.width in range(widest, least - 1, -1):
        with console.capture() as capture:
            console.print(shown)
        lines = [line.rstrip() for line in capture.get().splitlines()]
        if max(map(len, lines)) <= room:  # rich keeps least widths of columns beyond the table's
            break
    if alike := [f"{name} {texts[name].iloc[0]}" for name in below if texts[name].iloc[0] != "-"]:
        lines.append(wrapped(f"In all rows: {'; '.join(alike)}."))
    return "\n".join(lines)


def _laid_out(texts: pd.DataFrame, numbers: Collection[str]) -> Table:
    """A table that rich lays out: texts and heads are wrapped, numbers stand right."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    texts = texts.map(_at_slashes)
    for name in texts:
        longest = max(len(word) for text in (str(name), *texts[name]) for word in text.split() or [""])
        shown.add_column(
            str(name),
            justify="right" if name in numbers else "left",
            min_width=min(longest, _LONG),
            overflow="fold",
        )
    for row in texts.itertuples(index=False):
        shown.add_row(*row)
    return shown


def _at_slashes(text: str) -> str:
    """A text whose long names, such as a cell's, have a line for each part that needs one."""
    words = []
    for word in text.split(" "):
        line, *parts = re.split(r"(?<=[/-])", word) if len(word) > _LONG else [word]
        for part in filter(None, parts):
            line += part if len(line.rpartition("\n")[2] + part) <= _LONG else "\n" + part
        words.append(line)
    return " ".join(words)


def _text(value: Any) -> str:
    from cxrbench.paper.formats import missing, text

    if isinstance(value, float) or missing(value):
        return text(value, "seen")
    return printable(value) or "-"


def say(text: str) -> None:
    """Print a message, apart from output that is data; on a terminal wrapped at words."""
    print(_fitting(text), file=sys.stderr, flush=True)


def _fitting(text: str) -> str:
    """A message that steers no terminal, its long lines wrapped where standard error is one."""
    text = "\n".join(map(printable, text.split("\n")))
    if not sys.stderr.isatty():
        return text
    return "\n".join(wrapped(line) if len(line) > terminal_width() else line for line in text.split("\n"))


def complain(text: str) -> None:
    """Print what went wrong after our name: on a terminal wrapped at words, the name red where the terminal
    shows colours and its user wants them (no-color.org)."""
    text = _fitting(f"cxrbench: {text}")
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR"):
        text = text.replace("cxrbench:", "\x1b[1;31mcxrbench:\x1b[0m", 1)
    print(text, file=sys.stderr, flush=True)


def must_run_here(name: str, remedy: str = "") -> None:
    """Exit with :data:`CANNOT_RUN` and one sentence unless the platform ``name`` can run here."""
    from cxrbench.study import platforms

    if reason := platforms.unavailable(name):
        complain(f"platform {name} cannot run here: {reason}{remedy}")
        raise typer.Exit(CANNOT_RUN)


def ours(*words: object) -> int:
    """Run one of our commands in a process of its own; return its exit code."""
    return subprocess.run([sys.executable, "-m", "cxrbench", *map(str, words)]).returncode


@contextmanager
def work_folder() -> Iterator[Path]:
    """Yield an empty folder inside the checkout, whose history `verify` asks; it is removed afterwards."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".contribution-", dir=RESULTS) as folder:
        yield Path(folder)


def must_be_captured(precisions: list[str] | None) -> list[str] | None:
    """The precisions; UserError for another than fp32 and bf16, in which networks are captured."""
    if unknown := [name for name in precisions or () if name not in ("fp32", "bf16")]:
        raise UserError(f"--precision: unknown value '{unknown[0]}'; use fp32 or bf16")
    return precisions
