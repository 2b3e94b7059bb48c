"""``cxrbench precompile``: a step before training on Neuron."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.cells import job_of
from cxrbench.cli.words import RESULTS, STUDY, CellArgument, StudyOption, say
from cxrbench.study.cells import Cell


def precompile(
    cell: CellArgument,
    study: StudyOption = STUDY,
    packed: Annotated[Path | None, typer.Option(help="manifest.json of the packed dataset.")] = None,
    work: Annotated[Path | None, typer.Option(help="As `cxrbench train` will have it.")] = None,
) -> None:
    """Compile all graphs of a Neuron cell side by side, so that training finds them in the cache."""
    from cxrbench.training.precompile import precompile as run

    parsed = Cell.parse(cell)
    done = run(job_of(parsed, study, packed, work or RESULTS / "checkpoints"))
    if done["graphs"] is None:
        say(f"{parsed}: no new graph ({done['seconds']:.0f} s in all tries): the cache has them")
        return
    say(
        f"{parsed}: {done['succeeded']} of {done['graphs']} graphs compiled ({done['seconds']:.0f} s in all "
        f"tries); {done['failed']} did not" + (": training will record why" if done["failed"] else "")
    )
