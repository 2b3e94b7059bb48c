"""Commands about single cells: train, adopt, record, verify, compare with what was expected."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    CANNOT_RUN,
    PACKED,
    RECORDED,
    RESULTS,
    STUDY,
    CellArgument,
    RecordedOption,
    StudyOption,
    complain,
    say,
)
from cxrbench.study.cells import Cell
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    from cxrbench.training.job import Job


def train(
    cell: CellArgument,
    study: StudyOption = STUDY,
    packed: Annotated[Path | None, typer.Option(help="manifest.json of the packed dataset.")] = None,
    out: Annotated[Path | None, typer.Option(help="record.json to write.")] = None,
    work: Annotated[
        Path | None, typer.Option(help="Where the cell has a folder for checkpoints, until its record is.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Write messages here too.")] = None,
) -> None:
    """Train one cell. Exit code 0 with a record, whatever its status; 75 when interrupted: call again."""
    from cxrbench import platforms
    from cxrbench.training.job import INTERRUPTED
    from cxrbench.training.runner import Interrupted, run

    one = Cell.parse(cell)
    out = out or one.folder(RESULTS / "runs") / "record.json"
    if out.name != "record.json":
        raise UserError(f"--out {out}: a cell's evidence is record.json and what lies beside it; name that")
    if reason := platforms.unavailable(one.platform):
        complain(f"platform {one.platform} cannot run here: {reason}")
        raise typer.Exit(CANNOT_RUN)
    job = job_of(one, study, packed, work or _work_beside(out, one))
    try:
        record = run(job, out.parent)
    except (Interrupted, UserError) as error:
        _keep(log, str(error))
        if isinstance(error, Interrupted):
            say(str(error))
            raise typer.Exit(INTERRUPTED) from None
        raise
    reason = f" ({record.failure.kind}: {record.failure.fingerprint})" if record.failure else ""
    message = f"{one}: {record.status}{reason}"
    say(message)
    _keep(log, message)


def _keep(log: Path | None, message: str) -> None:
    """Write ``message`` to the log too; a full disk must hide neither it nor the exit code."""
    if log:
        with suppress(OSError):
            log.write_text(message + "\n", encoding="utf-8")


def job_of(cell: Cell, study: Path, packed: Path | None, work: Path) -> Job:
    """What is to be trained for ``cell`` of ``study``, on the packed dataset of a manifest.json.

    ``work`` has a folder for each cell; the cell's own is removed in the end.
    """
    from cxrbench.datasets.packed import must_be_packed_from
    from cxrbench.study.config import read_study
    from cxrbench.training.job import Job

    config = read_study(study)
    recipe, folder = config.recipe(cell.dataset), packed.parent if packed else PACKED / cell.dataset
    must_be_packed_from(config.dataset(cell.dataset), folder)
    return Job(
        **vars(cell),
        recipe=recipe,
        limits=config.limits,
        packed=folder,
        work=cell.folder(work),
        micro_batch=config.limits.micro_batch or max(1, recipe.batch // config.limits.processes),
    )


def _work_beside(out: Path, cell: Cell) -> Path:
    """``results/checkpoints`` for ``results/runs/<cell>/record.json``, else a folder beside the record."""
    runs = out.parent.as_posix().removesuffix(str(cell))
    return Path(runs).parent / "checkpoints" if runs != out.parent.as_posix() else out.parent / "work"


def adopt(cell: CellArgument, source: Path, target: Path) -> None:
    """Check the evidence beside SOURCE (a record.json) and copy it to the folder of TARGET."""
    from cxrbench.evidence.record import check_evidence, copy_evidence

    check_evidence(source.parent, Cell.parse(cell))
    copy_evidence(source.parent, target.parent)


def record(
    cells: Annotated[
        list[str] | None, typer.Argument(help="Cells under --runs to keep as recorded evidence.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of fresh evidence.")] = RESULTS / "runs",
    recorded: RecordedOption = RECORDED,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace evidence that is recorded already.")
    ] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Sign SHA256SUMS with your ssh key.")] = False,
    key: Annotated[Path | None, typer.Option(help="The ssh key to sign with; none: yours in ~/.ssh.")] = None,
) -> None:
    """Promote fresh evidence, made here or brought from another machine, to recorded evidence.

    What is recorded already is replaced with --replace only; what changes is printed either way. A signature
    covers all recorded files: a change without --sign removes it. Without CELLS, --sign signs what is there.
    """
    from cxrbench.analysis.compare import replacement
    from cxrbench.evidence import store
    from cxrbench.evidence.record import RECORD, check_evidence, copy_evidence
    from cxrbench.evidence.sums import updated_sums

    if not cells and not (sign or key):
        raise typer.BadParameter("name the cells to record, or --sign what is recorded")
    named = list(dict.fromkeys(Cell.parse(cell) for cell in cells or ()))
    for cell in named:
        check_evidence(cell.folder(runs), cell)
    kept = [cell for cell in named if (cell.folder(recorded) / RECORD).exists()]
    changes = {cell: replacement(cell, cell.folder(runs), recorded) for cell in kept}
    for cell, lines in changes.items():
        what = "is recorded already; recorded -> fresh:" if lines else "is this very run already"
        say("\n  ".join([f"{cell} {what}", *lines]))
    if (other := [str(cell) for cell, lines in changes.items() if lines]) and not replace:
        raise UserError(
            f"nothing was recorded: it would replace the evidence of {', '.join(other)}; look at the changes "
            "above, then repeat with --replace"
        )
    with updated_sums(recorded):
        for cell in named:
            if changes.get(cell) != []:
                copy_evidence(cell.folder(runs), cell.folder(recorded))
                say(f"recorded {cell}")
    if sign or key:
        say(f"signed with {store.sign(recorded, key)}")


def verify(recorded: RecordedOption = RECORDED, study: StudyOption = STUDY) -> None:
    """Check all recorded evidence: against itself, NIH's labels, the study's splits, git, its signature."""
    from cxrbench.evidence.verify import NOT_SHOWN, verify_recorded
    from cxrbench.study.config import read_study

    done = verify_recorded(recorded, read_study(study) if study.is_file() or study != STUDY else None)
    for problem in done.problems:
        complain(problem)
    if done.problems:
        say(f"{len(done.problems)} problems in {recorded}")
    else:
        print(f"{len(done.cells)} recorded cells are intact")
    print(done.signature.text, *(f"not checked: {what}" for what in done.not_checked), NOT_SHOWN, sep="\n")
    if done.problems:
        raise typer.Exit(1)


def expected(
    table: Annotated[Path, typer.Option(help="cells.csv of the study.")] = RESULTS / "tables/cells.csv",
    listed: Annotated[Path, typer.Option(help="The reviewed outcomes.")] = Path("data/expected_status.csv"),
    accept: Annotated[str | None, typer.Option(help="Write what happened, for this reason.")] = None,
) -> None:
    """Compare every cell's status with the reviewed one; worse and better both fail."""
    import pandas as pd

    from cxrbench.analysis.matrix import NOT_RUN, REFUSED
    from cxrbench.evidence import expected as reviewed

    cells = pd.read_csv(table, keep_default_na=False)
    run = cells[cells["status"] != NOT_RUN]
    statuses = dict(zip(run["cell"], run["status"], strict=True))
    if accept is not None:
        reviewed.accept(listed, statuses, accept)
        say(f"wrote {listed}")
    problems = reviewed.unexpected(statuses, reviewed.read_expected(listed))
    refused = cells[cells["origin"] == REFUSED]
    for problem in (*(f"{row.cell}: {REFUSED}: {row.failure}" for row in refused.itertuples()), *problems):
        complain(problem)
    if len(refused) and not problems:
        raise typer.Exit(1)
    if problems:
        say("to accept these outcomes after looking at them: cxrbench expected --accept 'the reason'")
        raise typer.Exit(1)
    print(f"{len(statuses)} cells have the expected status")
