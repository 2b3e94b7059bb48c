"""Commands about results: score predictions, print the ledger of claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import PRICES, RESULTS, PricesOption, complain, say

SOURCE = (
    "Predictions as Parquet, or a record.json beside them. Columns: image; label_NAME (0 or 1) and score_NAME"
    " (0 to 1) for each of the fourteen findings; patient and split (train, val, test) if known."
)


def evaluate(
    source: Annotated[Path, typer.Argument(help=SOURCE)],
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
    replicates: Annotated[int, typer.Option(min=1, help="Bootstrap replicates.")] = 2000,
) -> None:
    """Score predictions: AUROC, F1 in every definition and more, with intervals clustered by patient."""
    from cxrbench.analysis.evaluate import evaluate_cell, evaluate_file, readable

    cell_record = source.name == "record.json"
    table, notes = (evaluate_cell if cell_record else evaluate_file)(source, replicates)
    if out:
        from cxrbench.study.files import write_csv

        write_csv(out, table)
    for note in notes:
        say(note)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        print(readable(table))


def claims(
    file: Annotated[Path, typer.Option(help="The claims.")] = Path("data/claims.yaml"),
    prices: PricesOption = PRICES,
    tables: Annotated[Path, typer.Option(help="Folder of the result tables.")] = RESULTS / "tables",
    out: Annotated[Path | None, typer.Option(help="CSV to write, of all claims.")] = None,
    source: Annotated[str | None, typer.Option(help="Show the claims of this source only, as ours.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Also the arithmetic behind each verdict.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
) -> None:
    """The ledger of claims with computed verdicts; fails when one of ours does not follow any more."""
    from cxrbench.claims.file import read_claims
    from cxrbench.claims.inputs import read_context, show
    from cxrbench.claims.ledger import broken, check_claims, drifted, outdated
    from cxrbench.study.errors import UserError, suggestion

    known = read_claims(file)
    if source is not None and source not in known.sources:
        raise UserError(f"--source {source}: no such source in {file}{suggestion(source, known.sources)}")
    ledger = check_claims(known, read_context(prices, tables))
    shown = ledger if source is None else ledger[ledger["source"] == source]
    if as_json:
        print(shown.to_json(orient="records", indent=1))
    elif not out:
        for row in shown.itertuples():
            print(f"{row.id:5} {row.verdict:20} {row.says}")
            if why:
                print(f"{'':5} {'':20} {row.why}")
    for row in drifted(ledger).itertuples():
        say(f"{row.id}: the verdict is now '{row.verdict}', reviewed as '{row.reviewed}': {row.why}")
    for row in outdated(ledger).itertuples():
        old, new = show((row.computed_low, row.computed_high)), show((row.now_low, row.now_high))
        say(f"{row.id}: {old} at the prices that it names, {new} at the newest in {prices}: {row.says}")
    for row in (lost := broken(ledger)).itertuples():
        complain(f"our claim {row.id} does not follow from the evidence any more: {row.why}")
    if len(lost):
        raise typer.Exit(1)  # and no table: what a failed step leaves must not pass for its result
    if out:
        from cxrbench.study.files import write_csv

        write_csv(out, ledger)
