"""``cxrbench``: every step of the graph by hand. Tables go to standard output, messages to standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cells import Cell
from cxrbench.errors import UserError

# Commands import what they need when they are called: most need no torch, and `cost` answers in a second.

app = typer.Typer(
    help="Trainium or CUDA for chest radiographs? Prepare data, train, score, price, rebuild the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Pack datasets; look at phantoms.", no_args_is_help=True)
report_app = typer.Typer(help="Tables, figures and macros of the paper.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(report_app, name="report")

StudyOption = Annotated[
    Path, typer.Option("--study", help="The study: YAML, or JSON as the graph resolves it.")
]
CellArgument = Annotated[str, typer.Argument(help="dataset/architecture/platform/seedN")]
RecordedOption = Annotated[Path, typer.Option(help="Folder of recorded evidence.")]
STUDY, PACKED, RECORDED, RESULTS = (
    Path("config/config.yaml"),
    Path("data/packed"),
    Path("data/recorded"),
    Path("results"),
)


def main() -> None:
    """Entry point: a user's mistake is one message, never a traceback."""
    try:
        app()
    except UserError as error:
        print(f"cxrbench: {error}", file=sys.stderr)
        sys.exit(1)


def say(text: str) -> None:
    """A message to the person, apart from output that is data."""
    print(text, file=sys.stderr, flush=True)


@app.command("study", hidden=True)
def write_study(out: Path, text: str) -> None:
    """Write a study that Snakemake resolved, after checking it."""
    from cxrbench.config import parse_study
    from cxrbench.files import write_text

    write_text(out, parse_study(json.loads(text)).model_dump_json(indent=1) + "\n")


@app.command()
def schema(folder: Path = Path("workflow/schemas")) -> None:
    """Write the JSON Schemas of study and run record, generated from the types."""
    from cxrbench.schemas import write_schemas

    for path in write_schemas(folder):
        say(f"wrote {path}")


@data_app.command("pack")
def data_pack(
    name: Annotated[str, typer.Argument(help="A dataset of the study.")],
    study: StudyOption = STUDY,
    out: Annotated[Path | None, typer.Option(help="manifest.json to write.")] = None,
) -> None:
    """Decode, resize and split a dataset's images into one array, in one pass."""
    from cxrbench.config import read_study
    from cxrbench.datasets.packed import pack

    folder = out.parent if out else PACKED / name
    config = read_study(study).dataset(name)
    manifest = pack(name, config, folder.parent)
    say(f"packed {name}: {', '.join(f'{n} {split}' for split, n in manifest['images'].items())} images")


@data_app.command("sheet")
def data_sheet(out: Path = Path("docs/phantom-contact-sheet.png")) -> None:
    """Draw a contact sheet of phantoms: what the embedded dataset looks like."""
    from cxrbench.datasets.phantom import contact_sheet

    contact_sheet(out)
    say(f"wrote {out}")


@app.command()
def train(
    cell: CellArgument,
    study: StudyOption = STUDY,
    packed: Annotated[Path | None, typer.Option(help="manifest.json of the packed dataset.")] = None,
    out: Annotated[Path | None, typer.Option(help="record.json to write.")] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints; kept until the record is.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Write messages here too.")] = None,
) -> None:
    """Train one cell. Exit code 0 with a record, whatever its status; 75 when interrupted: call again."""
    from cxrbench.config import read_study
    from cxrbench.training.job import INTERRUPTED, Job
    from cxrbench.training.runner import Interrupted, run

    one, config = Cell.parse(cell), read_study(study)
    recipe = config.recipe(one.dataset)
    out = out or one.folder(RESULTS / "runs") / "record.json"
    job = Job(
        dataset=one.dataset,
        architecture=one.architecture,
        platform=one.platform,
        seed=one.seed,
        recipe=recipe,
        limits=config.limits,
        packed=packed.parent if packed else PACKED / one.dataset,
        work=work or one.folder(out.parents[5] / "checkpoints"),
        micro_batch=config.limits.micro_batch or max(1, recipe.batch // config.limits.processes),
    )
    try:
        record = run(job, out.parent)
    except (Interrupted, UserError) as error:
        if log:
            log.write_text(f"{error}\n", encoding="utf-8")
        if isinstance(error, Interrupted):
            say(str(error))
            raise typer.Exit(INTERRUPTED) from None
        raise
    reason = f" ({record.failure.kind}: {record.failure.fingerprint})" if record.failure else ""
    message = f"{one}: {record.status}{reason}"
    say(message)
    if log:
        log.write_text(message + "\n", encoding="utf-8")


@app.command()
def adopt(cell: CellArgument, source: Path, target: Path) -> None:
    """Check the evidence beside SOURCE (a record.json) and copy it to the folder of TARGET."""
    from cxrbench.evidence import check_evidence, copy_evidence

    check_evidence(source.parent, Cell.parse(cell))
    copy_evidence(source.parent, target.parent)


@app.command()
def record(
    cells: Annotated[list[str], typer.Argument(help="Cells under --runs to keep as recorded evidence.")],
    runs: Annotated[Path, typer.Option(help="Folder of fresh evidence.")] = RESULTS / "runs",
    recorded: RecordedOption = RECORDED,
) -> None:
    """Promote fresh evidence, made here or brought from another machine, to recorded evidence."""
    from cxrbench.evidence import check_evidence, copy_evidence, write_sums

    for cell in map(Cell.parse, cells):
        check_evidence(cell.folder(runs), cell)
        copy_evidence(cell.folder(runs), cell.folder(recorded))
        say(f"recorded {cell}")
    write_sums(recorded)


@app.command()
def verify(recorded: RecordedOption = RECORDED) -> None:
    """Check all recorded evidence: sums, schema, hashes, rows, patients, labels against NIH's table."""
    from cxrbench.verify import verify_recorded

    cells, problems = verify_recorded(recorded)
    for problem in problems:
        say(f"cxrbench: {problem}")
    if problems:
        say(f"{len(problems)} problems in {recorded}")
        raise typer.Exit(1)
    print(f"{len(cells)} recorded cells are intact")


@app.command()
def evaluate(
    source: Annotated[Path, typer.Argument(help="predictions.parquet, or the record.json beside it.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 2000,
) -> None:
    """Score predictions: AUROC, F1 in every definition and more, with intervals clustered by patient."""
    from cxrbench.report.evaluation import evaluate_cell, evaluate_file, readable

    cell_record = source.name == "record.json"
    table, notes = (evaluate_cell if cell_record else evaluate_file)(source, replicates)
    if out:
        from cxrbench.files import write_csv

        write_csv(out, table)
    for note in notes:
        say(note)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        print(readable(table))


@app.command()
def cost(
    records: Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")] = None,
    study: StudyOption = STUDY,
    prices: Annotated[Path, typer.Option(help="Price table.")] = Path("data/prices.csv"),
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
) -> None:
    """Price cells: hours by phase times the price of an instance, marked measured or proxy."""
    from cxrbench.report.pricing import cost_table, readable

    table = cost_table(records or [], study, prices)
    if out:
        from cxrbench.files import write_csv

        write_csv(out, table)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        print(readable(table))


@report_app.command("metrics")
def report_metrics(
    out: Annotated[Path, typer.Option(help="CSV to write.")],
    parts: Annotated[list[Path] | None, typer.Argument(help="The CSV of each cell.")] = None,
) -> None:
    """Put the metrics of all cells into one tidy table."""
    from cxrbench.report.evaluation import gather

    gather(parts or [], out)


@report_app.command("cells")
def report_cells(
    study: StudyOption = STUDY,
    cells: Annotated[Path, typer.Option(help="Folder of adopted evidence.")] = RESULTS / "cells",
    recorded: RecordedOption = RECORDED,
    out: Annotated[Path, typer.Option(help="CSV to write.")] = RESULTS / "tables/cells.csv",
) -> None:
    """One row per cell of the study: status, origin, when, on what, at which commit."""
    from cxrbench.config import read_study
    from cxrbench.files import write_csv
    from cxrbench.report.cells import cells_table

    write_csv(out, cells_table(read_study(study), cells, recorded))


@report_app.command("tables")
def report_tables(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the LaTeX tables and macros.")] = Path(
        "paper/generated"
    ),
    study: StudyOption = STUDY,
) -> None:
    """The paper's tables as LaTeX, CSV and Markdown, and every number in its prose as a macro."""
    from cxrbench.report.paper import write_tables

    write_tables(results, out, study)


@report_app.command("figures")
def report_figures(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
) -> None:
    """The paper's figures as vector PDF, the same bytes every time."""
    from cxrbench.report.figures import write_figures

    write_figures(results, out)


@report_app.command("paper")
def report_paper(
    out: Path = Path("paper/paper.pdf"),
    generated: Path = Path("paper/generated"),
    figures: Path = Path("figures"),
    sources: Path = Path("paper"),
) -> None:
    """Typeset the paper with latexmk."""
    from cxrbench.report.typeset import typeset

    typeset(sources, generated, figures, out)


@report_app.command("summary")
def report_summary(
    results: Annotated[Path, typer.Option(help="Folder with tables/.")] = RESULTS,
    paper: Annotated[Path, typer.Option(help="Where the PDF is.")] = Path("paper/paper.pdf"),
) -> None:
    """The matrix of cells, the headline numbers, and where the PDF is."""
    from cxrbench.report.summary import summary

    print(summary(results, paper), end="")


@app.command()
def expected(
    table: Annotated[Path, typer.Option(help="cells.csv of the study.")] = RESULTS / "tables/cells.csv",
    listed: Annotated[Path, typer.Option(help="The reviewed outcomes.")] = Path("data/expected_status.csv"),
    accept: Annotated[str | None, typer.Option(help="Write what happened, for this reason.")] = None,
) -> None:
    """Compare every cell's status with the reviewed one; worse and better both fail."""
    import pandas as pd

    from cxrbench import expected as reviewed
    from cxrbench.report.cells import NOT_RUN

    cells = pd.read_csv(table, keep_default_na=False)
    run = cells[cells["status"] != NOT_RUN]
    statuses = dict(zip(run["cell"], run["status"], strict=True))
    if accept is not None:
        reviewed.accept(listed, statuses, accept)
        say(f"wrote {listed}")
    problems = reviewed.unexpected(statuses, reviewed.read_expected(listed))
    for problem in problems:
        say(f"cxrbench: {problem}")
    if problems:
        say("to accept these outcomes after looking at them: cxrbench expected --accept 'the reason'")
        raise typer.Exit(1)
    print(f"{len(statuses)} cells have the expected status")
