"""What all commands share: options, default places, and messages."""

from __future__ import annotations

import math
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    import pandas as pd

CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
JsonOption = Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")]
PricesOption = Annotated[Path, typer.Option("--prices", help="Price table.")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
ResultsOption = Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")]
StudyOption = Annotated[
    Path, typer.Option("--study", help="The study: YAML, or JSON as the graph resolves it.")
]
TablesOption = Annotated[Path, typer.Option(help="Folder of the result tables.")]
CANNOT_RUN = 3  # exit code: the cell cannot be trained on this machine
PACKED, PRICES, RECORDED = Path("data/packed"), Path("data/prices.csv"), Path("data/recorded")
RESULTS, STUDY = Path("results"), Path("config/config.yaml")


def print_json(rows: pd.DataFrame) -> None:
    """Print the rows of a table as JSON."""
    print(rows.to_json(orient="records", indent=1))


def digits(value: float, number: int = 4) -> str:
    """Return a value with so many significant digits, larger ones whole; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if 10**number <= abs(value) < math.inf else f"{value:.{number}g}"


def span(low: float, high: float) -> str:
    """Return a range in two digits, a single value where its ends are equal."""
    ends = [digits(end, 2) for end in (low, high)]
    return " to ".join(dict.fromkeys(ends))


def wrapped(text: str) -> str:
    """Return a text in lines of 100 columns."""
    return textwrap.fill(text, 100, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def say(text: str) -> None:
    """Print a message, apart from output that is data."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """Print what went wrong after our name: red on a terminal that shows colours, plain elsewhere."""
    name = "\x1b[1;31mcxrbench:\x1b[0m" if coloured(sys.stderr) else "cxrbench:"
    say(f"{name} {text}")


def coloured(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal that shows colours and whose user wants them (no-color.org)."""
    able = os.environ.get("TERM", "dumb") != "dumb"
    return stream.isatty() and able and not os.environ.get("NO_COLOR")
