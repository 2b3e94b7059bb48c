"""``cxrbench contribute``: the records of a machine into one archive, and an archive into the evidence."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.data import RegistryOption
from cxrbench.cli.get import FetchOption, PackedOption
from cxrbench.cli.words import (
    PACKED,
    RECORDED,
    REGISTRY,
    RESULTS,
    STUDY,
    ProcessesOption,
    RecordedOption,
    StudyOption,
    say,
    work_folder,
)
from cxrbench.common.errors import UserError, printable
from cxrbench.study.names import Cell

if TYPE_CHECKING:
    from cxrbench.evidence.record import Record

_COMPARED_TABLES = (
    "claims",
    "parity",
    "parity_phantoms",
    "contrasts",
    "cost",
    "quality",
)  # tables whose changes are printed
_WIDEST = 240  # characters of a printed line of a table


def receive(
    archive: Path,
    study: Path,
    recorded: Path,
    replace: bool,
    build: bool,
    repeat: Callable[[Cell, Record], str | None] | None,
) -> None:
    """Check an archive, keep what it has as recorded evidence, and print what that changes in the paper.

    ``repeat`` trains a cell again and returns what contradicts its record; None: nothing is trained.
    """
    from cxrbench.cli.evidence import must_be_replaced, not_yet_recorded
    from cxrbench.evidence import received
    from cxrbench.evidence.contribution import CONTENT, GRAPHS, RECORDS, overview
    from cxrbench.evidence.record import read_record
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import must_be_architectures

    with work_folder() as work:
        runs = work / RECORDS
        cells = received.unpack_limited(archive, work)
        must_be_architectures([cell.architecture for cell in cells], f"{archive}: {CONTENT.again}")
        found = received.verified_with(cells, runs, recorded, read_study(study), work)
        if found.problems:
            named = (f"{archive}: {text}" for text in found.problems)
            raise UserError("\n".join([*named, "nothing was recorded"]))
        records = {cell: read_record(cell.folder(runs)) for cell in cells}
        print(overview(records, received.measured_in(work)))
        for note in found.notes:
            print(f"Look at: {note}")
        new, changed = not_yet_recorded(cells, runs, recorded)
        rows = received.row_changes(work, recorded)
        for text in rows.replaced:
            say(f"recorded -> new: {text}")
        must_be_replaced(changed + [text.partition(": ")[0] for text in rows.replaced], replace)
        if repeat and (wrong := [*filter(None, (repeat(cell, records[cell]) for cell in cells))]):
            raise UserError("\n".join([*(f"{archive}: {text}" for text in wrong), "nothing was recorded"]))
        before = _tables() if build else {}
        count = received.keep_received(new, work, rows, recorded)
        for kept in (*new, *rows.files):
            say(f"recorded {kept}")
        if count:
            where = recorded / GRAPHS
            say(f"{count} graphs of a Neuron device: `cxrbench compile --from {where}` compiles them")
    if build:
        _print_changes(before, _tables())
    say(f"staged in {recorded}: look at `git status`, then commit; `git restore` and `git clean` undo it")


def _repeated(
    cell: Cell, record: Record, study: Path, registry: Path, packed: Path, recorded: Path, fetch: bool
) -> str | None:
    """How a record contradicts its first epoch, trained again, or None; it prints what was done."""
    from cxrbench.cli.get import data_get
    from cxrbench.cli.train import job_of
    from cxrbench.datasets.packed import read_packed
    from cxrbench.study.platforms import ACCELERATED, unavailable
    from cxrbench.training.repeat import first_epoch

    reason: str | None = f"{cell.platform} takes an accelerator"
    if cell.platform not in ACCELERATED:
        reason = unavailable(cell.platform)
    if not record.history:
        reason = "no epoch of it has ended"
    elif record.platform.get("processes", 1) != 1:
        reason = "several processes trained it"
    if reason:
        say(f"{cell}: not trained again, because {reason}")
        return None
    data_get([cell.dataset], study, fetch, False, None, registry, packed, recorded)
    folder, named = packed / cell.dataset, record.dataset and record.dataset.packed
    if (packed_hash := read_packed(folder).manifest["packed"]) != named:
        return f"{cell}: its packed images are {named}, those of the study {packed_hash}"
    job = job_of(cell, study, folder / "manifest.json", RESULTS / "checkpoints")
    limits = job.limits.model_copy(update={"processes": 1})
    job = job.model_copy(update={"micro_batch": record.micro_batch or job.recipe.batch, "limits": limits})
    seconds = f"{record.history[0].train_seconds:.0f} s in its record"
    say(f"{cell}: its first epoch is trained again ({seconds}; at most {limits.hours:g} h here)")
    agrees, words = first_epoch(job).beside(record.history[0])
    if agrees:
        print(f"{cell}: {words}")
    return None if agrees else f"{cell}: {words}"


def _tables() -> dict[str, list[str]]:
    """Build the paper's tables from recorded evidence; return the lines of those that are compared."""
    command = ("snakemake", "paper/generated/macros.tex", "--quiet", "--config", "run=[]")
    if subprocess.run([sys.executable, "-m", *command], stdout=sys.stderr).returncode:
        raise UserError(
            "`make paper-from-evidence` fails with what is recorded now; see the lines above for the cause"
        )
    paths = {name: RESULTS / f"tables/table_{name}.csv" for name in _COMPARED_TABLES}
    return {name: path.read_text("utf-8").splitlines() for name, path in paths.items() if path.is_file()}


def _print_changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    """Print the rows that differ, table by table: ``-`` as it was, ``+`` as it is now."""
    print("What changes in the paper:")
    changed = False
    for name, rows in after.items():
        lines = [*difflib.unified_diff(before.get(name, []), rows, n=0, lineterm="")][2:]
        if lines := [line for line in lines if not line.startswith("@@")]:
            print(f"{name}:", *(printable(line)[:_WIDEST] for line in lines), sep="\n  ")
            changed = True
    if not changed:
        print("  no row of its tables")


def contribute(
    cells: Annotated[list[str] | None, typer.Argument(metavar="CELL...", help="Cells to train.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="Train planned cells of this platform instead, as --hours allow.")
    ] = None,
    hours: Annotated[float, typer.Option(min=0, help="With --platform: hours to train.")] = 1.0,
    bench_minutes: Annotated[float, typer.Option(min=0, help="Minutes to measure speed afterwards.")] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the archive.")] = RESULTS,
    archive: Annotated[
        Path | None, typer.Option("--receive", help="Check such an archive, and keep its records here.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="With --receive: replace records.")] = False,
    build: Annotated[
        bool, typer.Option("--build/--no-build", help="With --receive: print what changes in the paper.")
    ] = True,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="With --receive: train the first epoch again and compare.")
    ] = False,
    send_log: Annotated[
        bool, typer.Option("--send-log", help="Send the texts of failed runs too, not their hashes.")
    ] = False,
    processes: ProcessesOption = None,
    study: StudyOption = STUDY,
    fetch: FetchOption = False,
    registry: RegistryOption = REGISTRY,
    packed: PackedOption = PACKED,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Train cells on this machine and write one archive of their records to send.

    It says first what it will do. After an interruption (exit code 75), the
    same command continues. With --receive it checks such an archive instead.
    """
    if archive:

        def again(cell: Cell, record: Record) -> str | None:
            return _repeated(cell, record, study, registry, packed, recorded, fetch)

        receive(archive, study, recorded, replace, build, again if repeat else None)
        return
    if cells and platform:
        raise typer.BadParameter("name the cells to train or --platform, not both")
    if not cells and not platform:
        raise typer.BadParameter("name the cells to train, or --platform, or an archive with --receive")
    from cxrbench.cli.contributor import Contributor

    named = list(dict.fromkeys(map(Cell.parse, cells or ())))
    platform_name = platform or named[0].platform
    machine = Contributor(study, recorded, packed, registry, platform_name, named, hours, processes)
    machine.check_and_say(fetch or dry_run)
    if dry_run:
        return
    try:
        machine.work(fetch, bench_minutes)
        machine.send(out, send_log)
    except KeyboardInterrupt:
        say("interrupted: the same command continues from here")
        raise typer.Exit(75) from None
