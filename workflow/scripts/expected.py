"""Whether a build ended as reviewed: the status of each cell, and what a release gave."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RESULTS, complain, say


def expected(
    table: Annotated[Path, typer.Option(help="cells.csv of the study.")] = RESULTS / "tables/cells.csv",
    listed: Annotated[Path, typer.Option(help="Table of reviewed outcomes.")] = Path(
        "data/expected_status.csv"
    ),
    accept: Annotated[str | None, typer.Option(help="Accept the outcomes, for this reason.")] = None,
    line: Annotated[
        bool, typer.Option("--release", help="Print the line of this build for data/releases.csv.")
    ] = False,
) -> None:
    """Compare every cell's status with the reviewed one. Any difference fails.

    In the checkout of a release, the paper's numbers and, with the same TeX,
    its PDF are compared with what data/releases.csv says.
    """
    from cxrbench.common.files import read_texts
    from cxrbench.evidence import expected as reviewed

    cells = read_texts(table)
    statuses = {row["cell"]: row["status"] for row in cells if row["status"] != reviewed.NOT_RUN}
    if accept is not None:
        reviewed.accept(listed, statuses, accept)
        say(f"wrote {listed}")
    problems = reviewed.unexpected(statuses, reviewed.read_expected(listed))
    refused = [row for row in cells if row["origin"] == reviewed.REFUSED]
    for problem in (*("{cell}: {origin}: {failure}".format_map(row) for row in refused), *problems):
        complain(problem)
    if problems:
        say("look at them, then accept them: python workflow/scripts/expected.py --accept 'the reason'")
    if problems or refused:
        raise typer.Exit(1)
    print(f"All {len(statuses)} trainings that were run ended as {listed} expects.")
    _compare_with_release(line)


def _compare_with_release(line: bool) -> None:
    """Say whether the last build gave what its release did, exit where not; print its ``line`` if asked."""
    from cxrbench.evidence import release

    if (made := release.built(Path())) is None:
        return
    if line:
        print(",".join(made.model_dump().values()))
    if of := release.released(Path()):
        for difference in (wrong := release.differences(of, made)):
            complain(difference)
        if wrong:
            raise typer.Exit(1)
        pdf = (
            "" if made.tex == of.tex else f"; the PDF is not compared: {of.tex} made it then, {made.tex} now"
        )
        print(f"This build gave what release {of.commit[:12]} did{pdf}.")


if __name__ == "__main__":
    run_script(expected)
