"""Commands about evidence: record and verify it, compare outcomes with the reviewed ones."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import (
    RECORDED,
    RESULTS,
    STUDY,
    RecordedOption,
    StudyOption,
    complain,
    say,
    wrapped,
)
from cxrbench.common.errors import UserError
from cxrbench.study.names import Cell


def record(
    cells: Annotated[list[str] | None, typer.Argument(help="Cells of --runs to record.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of fresh evidence.")] = RESULTS / "runs",
    recorded: RecordedOption = RECORDED,
    replace: Annotated[bool, typer.Option("--replace", help="Replace recorded evidence.")] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Sign SHA256SUMS with your ssh key.")] = False,
    key: Annotated[Path | None, typer.Option(help="ssh key to sign with. Default: yours in ~/.ssh.")] = None,
) -> None:
    """Keep the evidence of fresh runs as recorded evidence.

    Only --replace replaces recorded evidence. The differences are printed
    either way. A signature covers all recorded files, and a change without
    --sign removes it. Without CELLS, --sign signs what is there.
    """
    from cxrbench.evidence import sums
    from cxrbench.evidence.store import EvidenceStore, check_evidence

    if not cells and not (sign or key):
        raise typer.BadParameter("name the cells to record, or --sign what is recorded")
    named = list(dict.fromkeys(map(Cell.parse, cells or ())))
    for cell in named:
        check_evidence(cell.folder(runs), cell)
    new, changed = not_yet_recorded(named, runs, recorded)
    must_be_replaced(changed, replace)
    EvidenceStore(recorded).keep(new, runs)
    for cell in new:
        say(f"recorded {cell}")
    if sign or key:
        say(f"signed with {sums.sign(recorded, key)}")


def not_yet_recorded(cells: list[Cell], runs: Path, recorded: Path) -> tuple[list[Cell], list[str]]:
    """Those of ``cells`` that are not recorded as they are, and those recorded otherwise, in words.

    Prints what is recorded already, and what would change.
    """
    from cxrbench.results.reproduction import replacement

    kept = [cell for cell in cells if (cell.folder(recorded) / "record.json").exists()]
    changes = {cell: replacement(cell, cell.folder(runs), recorded) for cell in kept}
    for cell, lines in changes.items():
        state = "is recorded already; recorded -> fresh:" if lines else "is identical to the recorded run"
        say("\n  ".join([f"{cell} {state}", *lines]))
    new = [cell for cell in cells if changes.get(cell) != []]
    return new, [f"the evidence of {cell}" for cell, lines in changes.items() if lines]


def must_be_replaced(changed: list[str], replace: bool) -> None:
    """Raise UserError where something recorded would be replaced without --replace."""
    if changed and not replace:
        raise UserError(
            f"nothing was recorded: it would replace {', '.join(changed)}; look at the changes "
            "above, then repeat with --replace"
        )


def verify(recorded: RecordedOption = RECORDED, study: StudyOption = STUDY) -> None:
    """Check all recorded evidence: hashes, scores, labels, splits, commits and signature."""
    from cxrbench.evidence.verify import NOT_SHOWN, verify_recorded
    from cxrbench.study.config import read_study

    done = verify_recorded(recorded, read_study(study) if study.is_file() or study != STUDY else None)
    for problem in done.problems:
        complain(problem)
    if done.problems:
        count = len(done.problems)
        say(f"{count} problem{'s' * (count > 1)} in {recorded}")
    else:
        print(f"{len(done.cells)} recorded cells are intact")
    notes = [
        done.signature.text,
        *(f"look at: {note}" for note in done.notes),
        *(f"not checked: {reason}" for reason in done.not_checked),
        NOT_SHOWN,
    ]
    print(*(map(wrapped, notes) if sys.stdout.isatty() else notes), sep="\n")
    if done.problems:
        raise typer.Exit(1)
