"""What all commands share: options, default places, and how they speak to a person."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

StudyOption = Annotated[
    Path, typer.Option("--study", help="The study: YAML, or JSON as the graph resolves it.")
]
CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
PricesOption = Annotated[Path, typer.Option("--prices", help="Price table.")]
PRICES = Path("data/prices.csv")
STUDY, PACKED, RECORDED, RESULTS = (
    Path("config/config.yaml"),
    Path("data/packed"),
    Path("data/recorded"),
    Path("results"),
)


def say(text: str) -> None:
    """A message to the person, apart from output that is data."""
    print(text, file=sys.stderr, flush=True)
