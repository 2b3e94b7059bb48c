"""The scores of cells, kept below results/scores, and scores.json, the list of these cells."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RESULTS, STUDY, ResultsOption, StudyOption, say, wrapped


def score(
    records: Annotated[list[Path] | None, typer.Argument(help="Adopted record.json of each cell.")] = None,
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
) -> None:
    """Score the cells whose scores are not kept yet, and print what the scores lack."""
    from cxrbench.evidence.record import read_record
    from cxrbench.results.kept import keep_scores
    from cxrbench.results.scoring import each_once
    from cxrbench.study.config import read_study

    read = [read_record(path) for path in records or []]
    for note in each_once(keep_scores(read, read_study(study), results), len(read)):
        say(wrapped(note))


if __name__ == "__main__":
    run_script(score)
