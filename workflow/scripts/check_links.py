"""Whether every address of the registry still offers its file."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import REGISTRY, wrapped
from cxrbench.common.errors import printable


def check_links(
    name: Annotated[str | None, typer.Argument(help="A dataset of the registry. Default: all.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds without an answer.")] = 20.0,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when an address is dead.")] = False,
    registry: Annotated[Path, typer.Option(help="Table of the files that can be downloaded.")] = REGISTRY,
) -> None:
    """Print dataset, file, state and answer of every address of the registry."""
    from cxrbench.datasets import download
    from cxrbench.datasets.registry import read_files

    rows = download.check_links(read_files(registry, name), timeout)
    for row in rows:
        print(wrapped("  ".join(printable(field) for field in row if field), "    "))
    if strict and any(row[2] == "dead" for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    run_script(check_links)
