"""cells.csv: a row per cell of the study, with status, origin, time, machine and commit."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RECORDED, RESULTS, STUDY, RecordedOption, StudyOption


def cell_table(
    records: Annotated[list[Path] | None, typer.Argument(help="Record of each cell that has one.")] = None,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    out: Annotated[Path, typer.Option(help="CSV to write.")] = RESULTS / "tables/cells.csv",
) -> None:
    """Write one row per cell: status, origin, time, machine and commit."""
    from cxrbench.results.matrix import cells_table
    from cxrbench.study.config import read_study
    from cxrbench.study.files import write_csv

    write_csv(out, cells_table(read_study(study), records or [], recorded))


if __name__ == "__main__":
    run_script(cell_table)
