"""Commands about one cell: train it, compile before, compare with the recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    CANNOT_RUN,
    PACKED,
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    CellArgument,
    PricesOption,
    ProcessesOption,
    RecordedOption,
    StudyOption,
    must_run_here,
    say,
    wrapped,
)
from cxrbench.common.errors import UserError
from cxrbench.study.names import Cell

if TYPE_CHECKING:
    from cxrbench.results.reproduction import Reproduction
    from cxrbench.training.job import Job

app = typer.Typer(
    help="Check whether a cell can run here, and compare it with its record.", no_args_is_help=True
)
_WEIGHTS = "weights.safetensors"  # beside a record outside of results/runs
ManifestOption = Annotated[
    Path | None, typer.Option(help="manifest.json of the packed dataset. Default: in data/packed/DATASET.")
]


def train(
    cell: CellArgument,
    study: StudyOption = STUDY,
    packed: ManifestOption = None,
    out: Annotated[
        Path | None, typer.Option(help="record.json to write. Default: in results/runs/CELL.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints. They are removed when the record is written."),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Also write the messages to this file.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 1 if the training failed.")
    ] = False,
    processes: ProcessesOption = None,
) -> None:
    """Train one cell and write its record.

    A failed training is a result too: exit code 0 without --strict. After an
    interruption (exit code 75), the same command resumes it.
    """
    named = Cell.parse(cell)
    out = out or named.folder(RESULTS / "runs") / "record.json"
    if out.name != "record.json":
        raise UserError(f"--out {out}: a record is called record.json; write --out {out / 'record.json'}")
    must_run_here(named.platform)
    from cxrbench.cli.progress import Display
    from cxrbench.training.endings import Ending, Interrupted
    from cxrbench.training.plan import must_be_architectures
    from cxrbench.training.supervisor import run

    must_be_architectures([named.architecture], "correct the name of the cell")
    results = _results_of(out, named)
    work = work or (results / "checkpoints" if results else out.parent / "work")
    job = job_of(named, study, packed, work, processes)
    if job.limits.keep_weights:
        kept = weights_in(results / "weights", named) if results else out.with_name(_WEIGHTS)
        job = job.model_copy(update={"weights": kept})
    if out.exists():
        say(f"{out} is there already; this run replaces it when it ends")
    try:
        with (display := Display(str(named))):
            record = run(job, out.parent, display.take)
    except Interrupted as error:
        _tell(log, str(error))
        raise typer.Exit(Ending.INTERRUPTED.exit_code) from None
    except UserError as error:
        _keep(log, str(error))
        raise
    failure = f" ({record.failure.kind}: {record.failure.fingerprint})" if record.failure else ""
    _tell(log, f"{named}: {record.status}{failure}")
    if strict and record.failure:
        raise typer.Exit(1)


def _tell(log: Path | None, message: str) -> None:
    say(message)
    _keep(log, message)


def _keep(log: Path | None, message: str) -> None:
    """Write ``message`` to the log too; a full disk must hide neither it nor the exit code."""
    if log:
        with suppress(OSError):
            log.write_text(message + "\n", encoding="utf-8")


def job_of(cell: Cell, study: Path, packed: Path | None, work: Path, processes: int | None = None) -> Job:
    """The job that trains ``cell`` of ``study``; ``packed`` is a manifest.json.

    ``processes``: instead of the study's; it is no part of the recipe.
    """
    from cxrbench.datasets.packed import must_be_packed_from
    from cxrbench.study.config import read_study
    from cxrbench.study.recipe import weights_missing
    from cxrbench.training.job import Job

    config = read_study(study)
    recipe, folder = config.recipe(cell.dataset), _packed_in(packed, cell.dataset)
    if config.dataset(cell.dataset).scored_only:
        raise UserError(f"{cell}: {cell.dataset} is only scored, its fractions have no train; see `predict`")
    if missing := weights_missing(recipe.weights):
        raise UserError(missing)
    if cell not in config.all_cells():
        say(f"{cell} is not planned in {study}: its tables show it once it is recorded")
    must_be_packed_from(config.dataset(cell.dataset), folder, study)
    limits = config.limits.model_copy(update={"processes": processes} if processes else {})
    return Job(
        **vars(cell),
        recipe=recipe,
        limits=limits,
        packed=folder,
        work=cell.folder(work),
        micro_batch=limits.micro_batch or max(1, recipe.batch // limits.processes),
    )


def _packed_in(manifest: Path | None, dataset: str) -> Path:
    """The folder of the packed images whose ``manifest`` is given, else of ``dataset``."""
    if manifest and manifest.name != "manifest.json":
        raise UserError(f"--packed {manifest}: name the manifest.json of packed images")
    return manifest.parent if manifest else PACKED / dataset


def _results_of(out: Path, cell: Cell) -> Path | None:
    """``results`` for ``results/runs/<cell>/record.json``; None for a record elsewhere."""
    runs = Path(out.parent.as_posix().removesuffix(str(cell)))
    return runs.parent if runs.name == "runs" and runs != out.parent else None


def weights_in(folder: Path, cell: Cell) -> Path:
    """The path of the weights of ``cell`` below ``folder``."""
    return folder / f"{cell}.safetensors"


def predict(
    cell: CellArgument,
    dataset: Annotated[
        str, typer.Option(help="A packed dataset of the study, with images of the cell's size.")
    ],
    out: Annotated[Path, typer.Option(help="Parquet file to write, for `cxrbench evaluate`.")],
    study: StudyOption = STUDY,
    packed: ManifestOption = None,
    results: Annotated[Path, typer.Option(help="Folder with runs/ and weights/.")] = RESULTS,
    platform: Annotated[
        str | None, typer.Option(help="Platform to score on. Default: the cell's own.")
    ] = None,
) -> None:
    """Score another dataset's validation and test images with a trained cell.

    The cell's weights are needed: train it with `limits: {keep_weights: true}` in the study.
    """
    from cxrbench.datasets.packed import must_be_packed_from, read_packed
    from cxrbench.evidence.record import read_record
    from cxrbench.study.config import read_study

    named = Cell.parse(cell)
    used = platform or named.platform
    folder = _packed_in(packed, dataset)
    must_be_packed_from(read_study(study).dataset(dataset), folder, study)
    record = read_record(named.folder(results / "runs"))
    must_run_here(used, remedy="; name another with --platform")
    from cxrbench.training.predict import predict as score

    beside = named.folder(results / "runs") / _WEIGHTS  # of a run with --out, unpacked there
    kept = beside if beside.is_file() else weights_in(results / "weights", named)
    for note in score(named, record, kept, read_packed(folder), out, used):
        say(note)
    say(f"wrote {out}")


def precompile(
    cell: CellArgument,
    study: StudyOption = STUDY,
    packed: ManifestOption = None,
    work: Annotated[Path | None, typer.Option(help="Folder of checkpoints, as for `cxrbench train`.")] = None,
    processes: ProcessesOption = None,
) -> None:
    """Compile all graphs of a Neuron cell in parallel, before it is trained."""
    from cxrbench.study.platforms import unavailable
    from cxrbench.training.precompile import precompile as run

    parsed = Cell.parse(cell)
    if reason := unavailable(parsed.platform):  # before its images are asked for
        raise UserError(f"platform {parsed.platform} cannot run here: {reason}")
    done = run(job_of(parsed, study, packed, work or RESULTS / "checkpoints", processes))
    if done["graphs"] is None:
        say(f"{parsed}: no new graph ({done['seconds']:.0f} s in all tries): the cache has them")
        return
    say(
        f"{parsed}: {done['succeeded']} of {done['graphs']} graphs compiled ({done['seconds']:.0f} s in all "
        f"tries); {done['failed']} did not" + (": training will record why" if done["failed"] else "")
    )


@app.command("check")
def check(cell: CellArgument, study: StudyOption = STUDY, recorded: RecordedOption = RECORDED) -> None:
    """Print why CELL cannot be trained here (exit code 3) and what is recorded of it."""
    from cxrbench.evidence.store import EvidenceStore
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    named, store = Cell.parse(cell), EvidenceStore(recorded)
    plan = Plan(read_study(study).model_copy(update={"run": [str(named)]}), store)
    plan.must_be_known(named)
    reason = plan.why_not_here(named)
    say(f"{named} cannot be trained here: {reason}" if reason else f"{named} can be trained here")
    if refused := store.refused(named):
        say(f"its recorded evidence is refused: {refused}")
    elif store.record(named):
        kept = named.folder(recorded) / "predictions.parquet"
        say(f"it is recorded: cxrbench evaluate {kept} prints its scores")
    else:
        say("no record of it exists" + ("" if reason else ", so there is nothing to compare it with"))
    if reason:
        raise typer.Exit(CANNOT_RUN)


@app.command("compare")
def compare_with_recorded(
    cell: CellArgument,
    study: StudyOption = STUDY,
    runs: Annotated[Path, typer.Option(help="Folder of your runs.")] = RESULTS / "runs",
    recorded: RecordedOption = RECORDED,
    prices: PricesOption = PRICES,
) -> None:
    """Compare your run of a cell with the recorded one. Fails if a result is outside its tolerance.

    Speed is compared only between machines with the same device and processor.
    """
    from cxrbench.cost.costs import cost_table, pricing_of
    from cxrbench.evidence.record import read_record
    from cxrbench.evidence.store import EvidenceStore
    from cxrbench.paper.cost_tables import mark
    from cxrbench.results.reproduction import compare_with_record
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    named, store = Cell.parse(cell), EvidenceStore(recorded)
    folder = named.folder(runs)
    if not (folder / "record.json").exists():
        Plan(read_study(study), store).must_be_known(named)
    if refused := store.refused(named):
        raise UserError(f"the recorded evidence of {named} is refused: {refused}")
    record = read_record(folder)
    compared = compare_with_record(named, folder, recorded)
    for note in compared.notes:
        say(f"note: {note}")
    if compared.lines:
        print(compared_lines(compared))
    try:
        (cost,) = cost_table([folder], prices, pricing_of(study)).itertuples()
    except UserError as error:
        print(wrapped(f"{record.attempts} attempt(s), not priced: {error}"))
    else:
        marks = ", ".join([cost.kind, *mark("recorded", cost.busy, cost.others_share)])
        spent = (
            f"wall time {cost.hours_total * 60:.1f} min, {record.attempts} attempt(s); as {cost.instance} in "
            f"{cost.region} ({cost.basis}, {cost.as_of}): {cost.usd_total:.3f} USD ({marks})"
        )
        print(wrapped(spent))
    print(f"{named}: {compared.verdict}")
    if not compared.inside:
        raise typer.Exit(1)


def compared_lines(reproduction: Reproduction) -> str:
    """The lines as a table for a terminal."""
    from tabulate import tabulate

    from cxrbench.paper.formats import missing
    from cxrbench.results.reproduction import SPEED

    rows: list[tuple[str, ...]] = [
        ("", "yours", "recorded", "tolerance", "", "where the tolerance comes from")
    ]
    for line in reproduction.lines:
        judged = "not judged" if line.inside is None else "inside" if line.inside else "OUTSIDE"
        digits = 1 if line.name == SPEED else 4
        numbers = (line.yours, line.recorded, line.tolerance)
        shown = ("-" if missing(x) else f"{x:.{digits}f}" for x in numbers)
        rows.append((line.name, *shown, judged, line.origin))
    return tabulate(rows, tablefmt="plain", disable_numparse=True)
