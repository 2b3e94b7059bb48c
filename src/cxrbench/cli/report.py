"""``cxrbench report``: tables, figures, macros and pages of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, STUDY, RecordedOption, ResultsOption, StudyOption, say

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

BuiltOption = Annotated[Path, typer.Option(help="Folder with tables/, built from recorded evidence.")]
CsvOption = Annotated[Path, typer.Option(help="CSV to write.")]
GeneratedOption = Annotated[Path, typer.Option(help="Folder of the LaTeX tables and macros.")]
RecordsArgument = Annotated[list[Path] | None, typer.Argument(help="The record of each cell that has one.")]
GENERATED, FIGURES, PDF = Path("paper/generated"), Path("figures"), Path("paper/paper.pdf")
NAMED = RESULTS / "named.json"
app = typer.Typer(help="Tables, figures and macros of the paper.", no_args_is_help=True)


def _results(results: Path, study: Path, recorded: Path) -> Results:
    from cxrbench.paper.results import Results

    return Results.read(results, study, recorded)


@app.command()
def cells(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    out: CsvOption = RESULTS / "tables/cells.csv",
) -> None:
    """Write one row per cell: status, origin, time, machine and commit."""
    from cxrbench.results.matrix import cells_table
    from cxrbench.study.config import read_study
    from cxrbench.study.files import write_csv

    write_csv(out, cells_table(read_study(study), records or [], recorded))


@app.command()
def statistics(
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
    baselines: Annotated[Path, typer.Option(help="Published values.")] = Path("data/baselines.csv"),
) -> None:
    """Write the tables of parity, spread over seeds, power, subgroups, literature and F1."""
    from cxrbench.results.comparisons import write_statistics

    write_statistics(results, study, baselines)


@app.command()
def tables(
    results: ResultsOption = RESULTS,
    out: GeneratedOption = GENERATED,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    named: Annotated[Path, typer.Option(help="Which documents name each value; a build writes it.")] = NAMED,
) -> None:
    """Write the paper's tables, and every value that a document names: as a macro, and in values.json."""
    import json

    from cxrbench.paper.latex import write_tables

    write_tables(_results(results, study, recorded), json.loads(named.read_text(encoding="utf-8")), out)


@app.command()
def figures(
    results: ResultsOption = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = FIGURES,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Draw the paper's figures as PDF."""
    from cxrbench.paper.figures import write_figures

    write_figures(_results(results, study, recorded), out)


@app.command()
def paper(
    out: Path = PDF, generated: Path = GENERATED, figures: Path = FIGURES, sources: Path = Path("paper")
) -> None:
    """Typeset the paper with latexmk."""
    from cxrbench.paper.latex import typeset

    say(typeset(sources, generated, figures, out))


@app.command()
def documents(
    results: BuiltOption = RESULTS,
    folder: Annotated[Path, typer.Option(help="The checkout.")] = Path("."),
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Write README.md, ARTIFACT.md and docs/practitioner.md from paper/documents.

    Run `make paper-from-evidence` before.
    """
    from cxrbench.paper.documents import write_documents

    for path in write_documents(_results(results, study, recorded), folder):
        say(f"wrote {path}")


@app.command()
def summary(
    results: ResultsOption = RESULTS,
    result: Annotated[Path, typer.Option(help="Where the PDF or the HTML report is.")] = PDF,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    cells: Annotated[Path | None, typer.Option("--matrix", help="File for the matrix of cells too.")] = None,
) -> None:
    """Print the six lines that end a build: what was made, what it says, what to do next."""
    from cxrbench.paper.summary import matrix_and_scores, summary
    from cxrbench.study.files import write_text

    read = _results(results, study, recorded)
    print(summary(read, result), end="")
    if cells:
        write_text(cells, matrix_and_scores(read))


@app.command()
def matrix(
    results: ResultsOption = RESULTS, study: StudyOption = STUDY, recorded: RecordedOption = RECORDED
) -> None:
    """Print which trainings of the study have been run, and the mean AUROC of each network."""
    from cxrbench.paper.summary import matrix_and_scores

    print(matrix_and_scores(_results(results, study, recorded)), end="")


@app.command()
def html(
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    expected: Annotated[Path, typer.Option(help="Reviewed outcomes.")] = Path("data/expected_status.csv"),
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = RESULTS / "report.html",
) -> None:
    """Write the report: one HTML page with claims, tables, figures and all evidence."""
    from cxrbench.paper.page import write_page

    write_page(results, study, recorded, expected, out)
    say(f"wrote {out}")
