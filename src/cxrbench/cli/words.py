"""What all commands share: options, default places, and messages."""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")]
PricesOption = Annotated[Path, typer.Option("--prices", help="Price table.")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
ResultsOption = Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")]
StudyOption = Annotated[Path, typer.Option("--study", help="Study file, YAML or JSON.")]
TablesOption = Annotated[Path, typer.Option(help="Folder of the result tables.")]
_NARROWEST, COLUMNS, _WIDEST = 60, 100, 120  # of printed tables and notes; COLUMNS where nothing is known
_NEVER_WRAPPED = 16  # characters of a column that stay on one line
CANNOT_RUN = 3  # exit code: the cell cannot be trained on this machine
PACKED, PRICES, RECORDED = Path("data/packed"), Path("data/prices.csv"), Path("data/recorded")
REGISTRY, RESULTS, STUDY = Path("data/registry.csv"), Path("results"), Path("config/config.yaml")


def print_json(rows: pd.DataFrame) -> None:
    """Print the rows of a table as JSON."""
    print(rows.to_json(orient="records", indent=1))


def digits(value: float, number: int = 4) -> str:
    """Return a value with so many significant digits, larger ones whole; a dash for NaN."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "infinite"
    return f"{value:,.0f}" if 10**number <= abs(value) < 1e15 else f"{value:,.{number}g}"


def span(low: float, high: float, number: int = 2) -> str:
    """Return a range in so many digits, a single value where its ends are equal."""
    ends = [digits(end, number) for end in (low, high)]
    return " to ".join(dict.fromkeys(ends))


def columns() -> int:
    """Return how many columns the terminal has; 100 in a file or a pipe."""
    return min(max(shutil.get_terminal_size((COLUMNS, 24)).columns, _NARROWEST), _WIDEST)


def wrapped(text: str, indent: str = "  ") -> str:
    """Return a text in lines that fit the terminal, all but the first indented."""
    return textwrap.fill(
        text, columns(), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def in_columns(table: pd.DataFrame, heads: Mapping[str, str] = MappingProxyType({}), *apart: str) -> str:
    """Return a table that fits the terminal: ``heads`` with units, four digits, a dash for no value.

    Texts and heads are wrapped. A text that is the same in all rows stands once, below the table. A single
    row is a list. There is a table for each value of the columns ``apart``.
    """
    if apart:
        return "\n\n".join(in_columns(rows, heads) for _, rows in table.groupby([*apart], sort=False))
    if table.empty:
        return "no rows"
    table = table.rename(columns=heads).dropna(axis="columns", how="all")
    if len(table) == 1:
        row = {str(name): text for name, it in table.iloc[0].items() if (text := _text(it)) != "-"}
        return "\n".join(wrapped(f"{name:{max(map(len, row))}}  {text}") for name, text in row.items())
    alike = _constant_columns(table)
    rows = table.drop(columns=alike)
    texts = {name: [_text(it) for it in rows[name]] for name in rows}
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    filled = [[str(name), *column] for name, column in texts.items()]
    # Where the terminal is too narrow for whole words, a table is as wide as in a file.
    room = max(columns(), min(COLUMNS, sum(map(_least, filled)) + 2 * (len(filled) - 1)))
    for name, width in zip(texts, _widths(filled, room), strict=True):
        left = not all(_RANGE.fullmatch(text) for text in texts[name])
        shown.add_column(name, width=width, overflow="fold", justify="left" if left else "right")
    for row in zip(*texts.values(), strict=True):
        shown.add_row(*row)
    printed = io.StringIO()
    Console(file=printed, width=room, markup=False, emoji=False, highlight=False).print(shown)
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    if same := [f"{name} {text}" for name in alike if (text := _text(table[name].iloc[0])) != "-"]:
        lines.append(wrapped(f"In all rows: {'; '.join(same)}."))
    return "\n".join(lines)


def _constant_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that stand below the table: same texts; same numbers only where room is short."""
    same = [name for name in table if table[name].nunique(dropna=False) == 1]
    same = same[len(same) == len(table.columns) :]  # something has to stay in the rows
    numbers = [name for name in same if _RANGE.fullmatch(_text(table[name].iloc[0]))]
    below = [name for name in same if name not in numbers]
    least = {name: _least([str(name), *map(_text, table[name])]) + 2 for name in table}
    while numbers and sum(width for name, width in least.items() if name not in below) > columns() + 2:
        below.append(numbers.pop(0))
    return below


def _least(texts: list[str]) -> int:
    """Return the width of a column in which only the head and long texts are wrapped."""
    short = (len(text) for text in texts[1:] if len(text) <= _NEVER_WRAPPED)
    return max(0, *short, *(len(word) for text in texts for word in text.split()))


_NUMBER = r"(infinite|-?[\d.,]+(e[+-]?\d+)?%?)"
_RANGE = re.compile(rf"-|never|(over )?{_NUMBER}( to {_NUMBER})?")  # a text that stands right, as numbers do


def _text(value: Any) -> str:
    import pandas as pd

    return "-" if pd.isna(value) or value == "" else digits(value) if isinstance(value, float) else str(value)


def _widths(texts_of: list[list[str]], room: int) -> list[int]:
    """Return the width of each column (its head, then its texts), together at most ``room`` with gaps."""
    widths = [max(map(len, column)) for column in texts_of]
    words = [max(len(word) for text in column for word in text.split()) for column in texts_of]
    texts = [max(low, *map(len, column[1:])) for low, column in zip(words, texts_of, strict=True)]
    long = [text if text <= _NEVER_WRAPPED else word for text, word in zip(texts, words, strict=True)]
    for least in (texts, long, [_NEVER_WRAPPED] * len(texts_of)):  # wrap heads, then texts, then long words
        while sum(widths) + 2 * (len(widths) - 1) > room:
            spare = [width - low for width, low in zip(widths, least, strict=True)]
            if max(spare) <= 0:
                break
            widths[spare.index(max(spare))] -= 1
    return widths


def say(text: str) -> None:
    """Print a message, apart from output that is data; on a terminal wrapped at words."""
    print(_fitting(text), file=sys.stderr, flush=True)


def _fitting(text: str) -> str:
    """Return a message with its long lines wrapped where standard error is a terminal."""
    if not sys.stderr.isatty():
        return text
    return "\n".join(wrapped(line) if len(line) > columns() else line for line in text.split("\n"))


def complain(text: str) -> None:
    """Print what went wrong after our name: on a terminal wrapped at words, the name red where the terminal
    shows colours and its user wants them (no-color.org)."""
    text = _fitting(f"cxrbench: {text}")
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR"):
        text = text.replace("cxrbench:", "\x1b[1;31mcxrbench:\x1b[0m", 1)
    print(text, file=sys.stderr, flush=True)


def must_run_here(name: str, remedy: str = "") -> None:
    """Exit with :data:`CANNOT_RUN` and one sentence unless the platform ``name`` can run here."""
    from cxrbench import platforms

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
