"""The tables of parity, spread over seeds, power, subgroups, literature and F1."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RESULTS, STUDY, ResultsOption, StudyOption


def comparison_tables(
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
    baselines: Annotated[Path, typer.Option(help="Published values.")] = Path("data/baselines.csv"),
) -> None:
    """Write the tables that compare cells with each other and with published values."""
    from cxrbench.results.comparisons import write_statistics

    write_statistics(results, study, baselines)


if __name__ == "__main__":
    run_script(comparison_tables)
