"""Evidence of cells, checked and put where later rules look for it."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RESULTS
from cxrbench.study.names import Cell


def adopt(
    sources: Annotated[list[Path], typer.Argument(help="The record.json of each cell, in its folder.")],
    out: Annotated[Path, typer.Option(help="Folder of adopted cells.")] = RESULTS / "cells",
) -> None:
    """Check the evidence beside each record.json and copy it below --out."""
    from cxrbench.common.files import ahead
    from cxrbench.evidence.store import check_evidence, copy_evidence

    def take(source: Path) -> None:
        cell = Cell.parse("/".join(source.absolute().parts[-5:]))
        check_evidence(source.parent, cell)
        copy_evidence(source.parent, cell.folder(out))

    for _ in ahead(take, sources, threads=16, most=64):  # they wait for the disk
        pass


if __name__ == "__main__":
    run_script(adopt)
