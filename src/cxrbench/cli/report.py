"""``cxrbench report``: tables, figures, pages and documents from evidence and its scores."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, STUDY, RecordedOption, ResultsOption, StudyOption, say
from cxrbench.common.errors import UserError, suggestion

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

_ALWAYS = ("tables", "figures", "page", "summary")
REPORT_PARTS = (*_ALWAYS, "matrix", "documents", "paper")
_GENERATED, _FIGURES, _PDF = Path("paper/generated"), Path("figures"), Path("paper/paper.pdf")


def report(
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Parts to make: {', '.join(REPORT_PARTS)}. May be repeated, or separated by commas. "
            f"Default: the first {len(_ALWAYS)}."
        ),
    ] = None,
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    generated: Annotated[Path, typer.Option(help="Folder of the LaTeX tables and macros.")] = _GENERATED,
    figures: Annotated[Path, typer.Option(help="Folder of the figures.")] = _FIGURES,
    page: Annotated[
        Path | None, typer.Option(help="HTML page to write. Default: report.html in --results.")
    ] = None,
    paper: Annotated[Path, typer.Option(help="PDF of the paper.")] = _PDF,
    matrix: Annotated[Path | None, typer.Option(help="File for the matrix. Default: it is printed.")] = None,
    named: Annotated[
        Path | None, typer.Option(help="Which documents name each value. Default: named.json in --results.")
    ] = None,
    expected: Annotated[Path, typer.Option(help="Reviewed outcomes.")] = Path("data/expected_status.csv"),
) -> None:
    """Make tables, figures, the HTML page and the summary from the scores of a build.

    `matrix` prints which cells have been run, with the mean AUROC of each network.
    `documents` writes README.md, ARTIFACT.md and pages of docs/ from paper/documents.
    `paper` typesets the paper with latexmk.
    """
    html, read = page or results / "report.html", cache(lambda: _read(results, study, recorded))
    making = {  # in this order: LaTeX needs tables and figures, and the summary is what one sees last
        "tables": lambda: _tables(read(), named or results / "named.json", generated),
        "figures": lambda: _figures(read(), figures),
        "paper": lambda: _paper(generated, figures, paper),
        "page": lambda: _page(read(), expected, html),
        "documents": lambda: _documents(read()),
        "matrix": lambda: _matrix(read(), expected, matrix),
        "summary": lambda: _summary(read(), paper, html),
    }
    parts = _parts(only)
    for name, make in making.items():
        if name in parts:
            make()


def _parts(only: list[str] | None) -> list[str]:
    """The parts that ``--only`` names; UserError for one that there is not."""
    parts = [name.strip() for text in only or _ALWAYS for name in text.split(",")]
    for name in parts:
        if name not in REPORT_PARTS:
            raise UserError(f"--only: there is no part '{name}'{suggestion(name, REPORT_PARTS)}")
    return parts


def _read(results: Path, study: Path, recorded: Path) -> Results:
    """The tables of a build; it ends here where one of our claims no longer follows from them."""
    from cxrbench.cli.claims import must_follow
    from cxrbench.paper.results import PRICES, Results

    read = Results.of_build(results, study, recorded)
    must_follow(read.claims, PRICES)
    return read


def _tables(read: Results, named: Path, out: Path) -> None:
    """Write all tables as CSV, the paper's for LaTeX too, and every value that a document names: as a macro,
    and in values.json."""
    import json

    from cxrbench.paper.latex import write_tables

    read.write()
    write_tables(read, json.loads(named.read_text(encoding="utf-8")), out)


def _figures(read: Results, out: Path) -> None:
    from cxrbench.paper.figures import write_figures

    write_figures(read, out)


def _paper(generated: Path, figures: Path, out: Path) -> None:
    from cxrbench.paper.latex import typeset

    say(typeset(Path("paper"), generated, figures, out))


def _page(read: Results, expected: Path, out: Path) -> None:
    from cxrbench.paper.page import write_page

    write_page(read, expected, out)
    say(f"wrote {out}")


def _documents(read: Results) -> None:
    from cxrbench.paper.documents import write_documents

    for path in write_documents(read, Path()):
        say(f"wrote {path}")


def _matrix(read: Results, expected: Path, out: Path | None) -> None:
    from cxrbench.common.files import write_text
    from cxrbench.paper.summary import matrix_and_scores

    text = matrix_and_scores(read, expected)
    if out:
        write_text(out, text)
    else:
        print(text, end="")


def _summary(read: Results, paper: Path, page: Path) -> None:
    """Print the six lines that end a build: what was made, what it says, what to do next."""
    from cxrbench.paper.summary import summary

    print(summary(read, paper if read.study.makes_paper() else page), end="")
