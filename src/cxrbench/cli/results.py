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


def claims(
    file: Annotated[Path, typer.Option(help="The claims.")] = Path("data/claims.yaml"),
    prices: PricesOption = PRICES,
    tables: Annotated[Path, typer.Option(help="Folder of the result tables.")] = RESULTS / "tables",
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Also the arithmetic behind each verdict.")] = False,
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
            if why:
                print(f"{'':5} {'':20} {row.why}")
    for row in drifted(ledger).itertuples():
        say(f"{row.id}: the verdict is now '{row.verdict}', reviewed as '{row.reviewed}': {row.why}")
    for row in (lost := broken(ledger)).itertuples():
        complain(f"our claim {row.id} does not follow from the evidence any more: {row.why}")
    if len(lost):
        raise typer.Exit(1)
