"""``cxrbench report``: tables, figures, macros and pages of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, STUDY, RecordedOption, StudyOption, say

if TYPE_CHECKING:
    from cxrbench.paper.artifact import Artifact

app = typer.Typer(help="Tables, figures and macros of the paper.", no_args_is_help=True)


@app.command("metrics")
def report_metrics(
    out: Annotated[Path, typer.Option(help="CSV to write.")],
    parts: Annotated[list[Path] | None, typer.Argument(help="The CSV of each cell.")] = None,
) -> None:
    """Put the metrics of all cells into one tidy table."""
    from cxrbench.analysis.evaluation import gather

    gather(parts or [], out)


@app.command("cells")
def report_cells(
    records: Annotated[
        list[Path] | None, typer.Argument(help="The record of each cell that has one.")
    ] = None,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    out: Annotated[Path, typer.Option(help="CSV to write.")] = RESULTS / "tables/cells.csv",
) -> None:
    """One row per cell of the study: status, origin, when, on what, at which commit."""
    from cxrbench.analysis.cells import cells_table
    from cxrbench.study.config import read_study
    from cxrbench.study.files import write_csv

    write_csv(out, cells_table(read_study(study), records or [], recorded))


@app.command("statistics")
def report_statistics(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    study: StudyOption = STUDY,
    baselines: Annotated[Path, typer.Option(help="Published values.")] = Path("data/baselines.csv"),
) -> None:
    """Parity of platforms, spread over seeds, subgroups, literature, and what F1 = 0.80 could be."""
    from cxrbench.analysis.statistics import write_statistics

    write_statistics(results, study, baselines)


@app.command("tables")
def report_tables(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the LaTeX tables and macros.")] = Path(
        "paper/generated"
    ),
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """The paper's tables as LaTeX, CSV and Markdown, and every number in its prose as a macro."""
    from cxrbench.paper.paper import write_tables

    write_tables(results, out, study, recorded)


@app.command("figures")
def report_figures(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    recorded: RecordedOption = RECORDED,
) -> None:
    """The paper's figures as vector PDF, the same bytes every time."""
    from cxrbench.paper.figures import write_figures

    write_figures(results, out, recorded)


@app.command("paper")
def report_paper(
    out: Path = Path("paper/paper.pdf"),
    generated: Path = Path("paper/generated"),
    figures: Path = Path("figures"),
    sources: Path = Path("paper"),
) -> None:
    """Typeset the paper with latexmk."""
    from cxrbench.paper.paper import typeset

    typeset(sources, generated, figures, out)


@app.command("readme")
def report_readme(
    results: Annotated[
        Path, typer.Option(help="Folder with tables/, built from recorded evidence.")
    ] = RESULTS,
    readme: Path = Path("README.md"),
    figure: Path = Path("docs/auroc_per_label.png"),
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """The README's generated parts; build with `make paper-from-evidence` before."""
    from cxrbench.paper.readme import write_readme

    write_readme(results, readme, figure, _artifact(results, study, recorded))


@app.command("artifact")
def report_artifact(
    results: Annotated[
        Path, typer.Option(help="Folder with tables/, built from recorded evidence.")
    ] = RESULTS,
    markdown: Path = Path("ARTIFACT.md"),
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """The generated parts of ARTIFACT.md; build with `make paper-from-evidence` before."""
    from cxrbench.paper.artifact import write_markdown

    write_markdown(_artifact(results, study, recorded), markdown)


def _artifact(results: Path, study: Path, recorded: Path) -> Artifact:
    import pandas as pd

    from cxrbench.paper.artifact import Artifact

    ledger = pd.read_csv(results / "tables/claims.csv", keep_default_na=False)
    return Artifact.read(ledger, study, recorded)


@app.command("summary")
def report_summary(
    results: Annotated[Path, typer.Option(help="Folder with tables/.")] = RESULTS,
    paper: Annotated[Path, typer.Option(help="Where the PDF is.")] = Path("paper/paper.pdf"),
) -> None:
    """The matrix of cells, the headline numbers, and where the PDF is."""
    from cxrbench.paper.summary import summary

    print(summary(results, paper), end="")


@app.command("html")
def report_html(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    expected: Annotated[Path, typer.Option(help="Reviewed outcomes.")] = Path("data/expected_status.csv"),
    generated: Annotated[Path, typer.Option(help="Folder of macros.tex.")] = Path("paper/generated"),
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = RESULTS / "report.html",
) -> None:
    """One page that needs no network: verdicts, claims, tables, figures, and the evidence of every cell."""
    from cxrbench.paper.page import write_page

    write_page(results, study, recorded, expected, generated, out)
    say(f"wrote {out}")
