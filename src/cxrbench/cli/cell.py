"""``cxrbench cell``: one cell for a reviewer, trained here and held against its recorded evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from cxrbench.cli.words import (
    CANNOT_RUN,
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    CellArgument,
    PricesOption,
    RecordedOption,
    StudyOption,
    say,
)
from cxrbench.study.cells import Cell
from cxrbench.study.errors import UserError

app = typer.Typer(help="One cell: can it run here, and does it agree with its record?", no_args_is_help=True)


@app.command("check")
def check(cell: CellArgument, study: StudyOption = STUDY, recorded: RecordedOption = RECORDED) -> None:
    """Say in one sentence why CELL cannot be trained here (exit code 3), and what is recorded of it."""
    from cxrbench.evidence.record import RECORD
    from cxrbench.evidence.store import Recorded
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    one, config = Cell.parse(cell), read_study(study)
    plan = Plan(config.model_copy(update={"run": [str(one)]}), recorded)
    plan.must_be_known(one)
    if reason := plan.why_not_here(one):
        say(f"{one} cannot be trained here: {reason}")
        kept = one.folder(recorded)
        if refused := Recorded(recorded).refused(one):
            say(f"its recorded evidence is refused: {refused}")
        elif (kept / RECORD).exists():
            say(f"it is recorded: cxrbench evaluate {kept}/predictions.parquet prints its scores")
        else:
            say("nobody has recorded it either")
        raise typer.Exit(CANNOT_RUN)
    if not (one.folder(recorded) / RECORD).exists():
        say(f"nobody has recorded {one}: it is trained and scored, and there is nothing to compare it with")


@app.command("compare")
def compare_with_recorded(
    cell: CellArgument,
    study: StudyOption = STUDY,
    runs: Path = RESULTS / "runs",
    recorded: RecordedOption = RECORDED,
    prices: PricesOption = PRICES,
) -> None:
    """Yours against recorded: exit code 0 when nothing that is judged is outside its tolerance.

    Speed is judged only on a machine whose device and processor have the recorded names.
    """
    from cxrbench.analysis.compare import compare, readable
    from cxrbench.cost.costs import cost_table, pricing_of
    from cxrbench.evidence.record import RECORD, read_record
    from cxrbench.evidence.store import Recorded
    from cxrbench.paper.cost_tables import mark
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    one = Cell.parse(cell)
    if not (one.folder(runs) / RECORD).exists():
        Plan(read_study(study), recorded).must_be_known(one)
    if refused := Recorded(recorded).refused(one):
        raise UserError(f"the recorded evidence of {one} is refused: {refused}")
    record = read_record(one.folder(runs))
    found = compare(one, one.folder(runs), recorded)
    for note in found.notes:
        say(f"note: {note}")
    if found.lines:
        print(readable(found))
    (cost,) = cost_table([one.folder(runs)], prices, pricing_of(study)).itertuples()
    minutes = cost.hours_total * 60
    print(
        f"wall time {minutes:.1f} min, {record.attempts} attempt(s); as {cost.instance} in {cost.region}"
        f" ({cost.basis}, {cost.as_of}): {cost.usd_total:.3f} USD"
        f" ({', '.join([cost.kind, *mark('recorded', cost.busy, cost.others_share)])})"
    )
    print(f"{one}: {found.verdict}")
    if not found.inside:
        raise typer.Exit(1)
