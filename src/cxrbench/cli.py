"""``cxrbench``: every step of the graph by hand. Tables go to standard output, messages to standard error."""

from __future__ import annotations

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
cost_app = typer.Typer(help="What cells cost, today's prices, whether to port.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(cost_app, name="cost")
app.add_typer(report_app, name="report")

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
        work=work or _work_beside(out, one),
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


def _work_beside(out: Path, cell: Cell) -> Path:
    """``results/checkpoints/<cell>`` for ``results/runs/<cell>/record.json``, else beside the record."""
    runs = out.parent.as_posix().removesuffix(str(cell))
    return (
        cell.folder(Path(runs).parent / "checkpoints")
        if runs != out.parent.as_posix()
        else out.parent / "work"
    )


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


@cost_app.command("table")
def cost_of_records(
    records: Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")] = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
) -> None:
    """Price cells: hours by phase times the price of an instance, marked measured or proxy."""
    from cxrbench.report.pricing import cost_table, readable

    table = cost_table(records or [RECORDED], study, prices)
    if out:
        from cxrbench.files import write_csv

        write_csv(out, table)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        print(readable(table))


@cost_app.command("refresh")
def cost_refresh(
    prices: PricesOption = PRICES,
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-east-1",
    instances: Annotated[list[str] | None, typer.Argument(help="EC2 types; none: all in the table.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Add today's prices to the table.")] = False,
) -> None:
    """Ask AWS for today's prices and show the difference; nothing is written without --write."""
    from cxrbench.cost.refresh import refresh

    found = refresh(prices, region, instances, write)
    print(found.difference.to_string(index=False))
    for instance in found.not_offered:
        say(f"{instance}: not offered in {region}")
    say(f"wrote {prices}" if found.written else "nothing written; add --write to keep these prices")


@cost_app.command("decide")
def cost_decide(
    spend: Annotated[float, typer.Option(prompt="USD per month spent on GPU training", help="USD a month.")],
    architecture: Annotated[str, typer.Option(prompt="cnn or transformer", help="cnn or transformer.")],
    porting: Annotated[float, typer.Option(prompt="porting budget in USD", help="USD, once.")],
    horizon: Annotated[float, typer.Option(prompt="months the model will be trained", help="Months.")],
    capacity: Annotated[
        float, typer.Option(prompt="share of it that Trainium capacity can take, 0 to 1", help="0 to 1.")
    ],
) -> None:
    """Port to Trainium or stay? Five numbers in, the arithmetic out."""
    from cxrbench.cost.breakeven import decide

    for line in decide(spend, architecture, porting, horizon, capacity).arithmetic:
        print(line)


@app.command()
def claims(
    file: Annotated[Path, typer.Option(help="The claims.")] = Path("data/claims.yaml"),
    prices: PricesOption = PRICES,
    tables: Annotated[Path, typer.Option(help="Folder of the result tables.")] = RESULTS / "tables",
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
) -> None:
    """The ledger of claims with computed verdicts; fails when one of ours does not follow any more."""
    from cxrbench.claims import broken, check_claims, drifted, read_claims, read_context

    ledger = check_claims(read_claims(file), read_context(prices, tables))
    if out:
        from cxrbench.files import write_csv

        write_csv(out, ledger)
    if as_json:
        print(ledger.to_json(orient="records", indent=1))
    elif not out:
        for row in ledger.itertuples():
            print(f"{row.id:5} {row.verdict:20} {row.says}")
    for row in drifted(ledger).itertuples():
        say(f"{row.id}: the verdict is now '{row.verdict}', reviewed as '{row.reviewed}': {row.why}")
    for row in (lost := broken(ledger)).itertuples():
        say(f"cxrbench: our claim {row.id} does not follow from the evidence any more: {row.why}")
    if len(lost):
        raise typer.Exit(1)


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


@report_app.command("statistics")
def report_statistics(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    study: StudyOption = STUDY,
    baselines: Annotated[Path, typer.Option(help="Published values.")] = Path("data/baselines.csv"),
) -> None:
    """Parity of platforms, spread over seeds, subgroups, literature, and what F1 = 0.80 could be."""
    from cxrbench.report.statistics import write_statistics

    write_statistics(results, study, baselines)


@report_app.command("tables")
def report_tables(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the LaTeX tables and macros.")] = Path(
        "paper/generated"
    ),
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
) -> None:
    """The paper's tables as LaTeX, CSV and Markdown, and every number in its prose as a macro."""
    from cxrbench.report.paper import write_tables

    write_tables(results, out, study, recorded)


@report_app.command("figures")
def report_figures(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    recorded: RecordedOption = RECORDED,
) -> None:
    """The paper's figures as vector PDF, the same bytes every time."""
    from cxrbench.report.figures import write_figures

    write_figures(results, out, recorded)


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


@report_app.command("readme")
def report_readme(
    results: Annotated[
        Path, typer.Option(help="Folder with tables/, built from recorded evidence.")
    ] = RESULTS,
    readme: Path = Path("README.md"),
    figure: Path = Path("docs/auroc_per_label.png"),
) -> None:
    """The README's generated parts; build with `make paper-from-evidence` before."""
    from cxrbench.report.readme import write_readme

    write_readme(results, readme, figure)


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


bench_app = typer.Typer(help="Measure speed, and keep what was measured as evidence.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
BENCH = RESULTS / "bench"


@bench_app.command("train")
def bench_train(
    architectures: Annotated[list[str] | None, typer.Argument(help="timm names.")] = None,
    platform: Annotated[str, typer.Option(help="cpu, cuda or xla_cpu.")] = "cpu",
    pixels: Annotated[int, typer.Option(help="Side of the images.")] = 64,
    batch: Annotated[int, typer.Option(help="Images per step.")] = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    blocks: Annotated[int, typer.Option(help="Paired blocks.")] = 15,
    steps: Annotated[int, typer.Option(help="Timed steps per block.")] = 3,
    out: Annotated[Path, typer.Option(help="JSON to write.")] = BENCH / "train.json",
) -> None:
    """Our loop, timm's with its defaults and its best flags, and the device's limit, interleaved."""
    from cxrbench.files import write_json
    from cxrbench.training import bench

    rows = []
    for architecture in architectures or bench.NETWORKS:
        setting = bench.Setting(platform, architecture, pixels, batch, precision, threads, blocks, steps)
        rows.append(bench.measure(setting, say))
        write_json(out, rows)
        row = rows[-1]
        print(
            f"{architecture}: ours {row['ours']:.0f} images/s, "
            f"{row['ratio_to_timm']:.2f} of timm's defaults, "
            f"{row['ratio_to_timm_best']:.2f} of timm's best, {row['share_of_limit']:.3f} of the limit"
        )


@bench_app.command("gains")
def bench_gains(
    architectures: Annotated[list[str] | None, typer.Argument(help="timm names.")] = None,
    platform: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    pixels: Annotated[int, typer.Option(help="Side of the images.")] = 64,
    batch: Annotated[int, typer.Option(help="Images per step.")] = 32,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    blocks: Annotated[int, typer.Option(help="Paired blocks.")] = 15,
    out: Annotated[Path, typer.Option(help="JSON to write.")] = BENCH / "gains.json",
) -> None:
    """What channels_last, fused AdamW and torch.compile gain, added one after the other."""
    from cxrbench.files import write_json
    from cxrbench.training import bench, gains

    rows = []
    for architecture in architectures or bench.NETWORKS:
        setting = bench.Setting(platform, architecture, pixels, batch, "fp32", threads, blocks, 3)
        rows += gains.measure_gains(setting, say)
        write_json(out, rows)


@bench_app.command("metrics")
def bench_statistics(
    out: Annotated[Path, typer.Option(help="JSON to write.")] = BENCH / "metrics.json",
) -> None:
    """All metrics of a set of the official size, against scikit-learn called in a loop."""
    from cxrbench.files import write_json
    from cxrbench.metrics.bench import bench_metrics

    write_json(out, measured := bench_metrics())
    for name, value in measured.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")


@bench_app.command("record")
def bench_record(
    source: Annotated[Path, typer.Option(help="Folder of what was measured here.")] = BENCH,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Keep this machine's measurements under data/recorded/bench/<host>/."""
    from cxrbench.evidence import write_sums
    from cxrbench.files import write_text
    from cxrbench.training.host import folder_name

    for path in sorted(source.glob("*.json")):
        write_text(recorded / "bench" / folder_name() / path.name, path.read_text(encoding="utf-8"))
        say(f"recorded {path.name} of {folder_name()}")
    write_sums(recorded)
