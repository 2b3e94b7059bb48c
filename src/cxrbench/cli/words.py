"""What all commands share: options, default places, and how they speak to a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

StudyOption = Annotated[
    Path, typer.Option("--study", help="The study: YAML, or JSON as the graph resolves it.")
]
CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
PricesOption = Annotated[Path, typer.Option("--prices", help="Price table.")]
PRICES = Path("data/prices.csv")
CANNOT_RUN = 3  # exit code: the cell cannot be trained on this machine
STUDY, PACKED, RECORDED, RESULTS = (
    Path("config/config.yaml"),
    Path("data/packed"),
    Path("data/recorded"),
    Path("results"),
)


def say(text: str) -> None:
    """A message to the person, apart from output that is data."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """What went wrong, with our name before it: red on a terminal that shows colours, plain elsewhere."""
    name = "\x1b[1;31mcxrbench:\x1b[0m" if coloured(sys.stderr) else "cxrbench:"
    say(f"{name} {text}")


def coloured(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that shows colours and whose user wants them (no-color.org)."""
    able = os.environ.get("TERM", "dumb") != "dumb"
    return stream.isatty() and able and not os.environ.get("NO_COLOR")
