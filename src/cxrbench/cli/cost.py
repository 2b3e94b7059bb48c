"""``cxrbench cost``: what cells cost, today's prices, whether to port."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import PRICES, RECORDED, STUDY, PricesOption, StudyOption, say

app = typer.Typer(help="What cells cost, today's prices, whether to port.", no_args_is_help=True)


@app.command("table")
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


@app.command("refresh")
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


@app.command("decide")
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
