"""``cxrbench cost``: what cells cost, under which prices, today's prices, whether to port."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    PricesOption,
    RecordedOption,
    StudyOption,
    say,
)

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(help="What cells cost, today's prices, whether to port.", no_args_is_help=True)
RecordsArgument = Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")]
RegionOption = Annotated[str | None, typer.Option(help="AWS region; none: the study's.")]
BasisOption = Annotated[
    str | None, typer.Option(help="on_demand, spot, reserved_1y, ...; none: the study's.")
]
DateOption = Annotated[str | None, typer.Option("--as-of", help="Newest prices up to this date.")]
OutOption = Annotated[Path | None, typer.Option(help="CSV to write.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")]


def _give(table: pd.DataFrame, shown: str | None, out: Path | None, as_json: bool) -> None:
    """The same rows as JSON, in a CSV, or for people (``shown``; none: all columns)."""
    if out:
        from cxrbench.files import write_csv

        write_csv(out, table)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        from cxrbench.report.pricing import in_columns

        print(in_columns(table) if shown is None else shown)


@app.command("table")
def cost_of_records(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    basis: BasisOption = None,
    as_of: DateOption = None,
    target_auroc: Annotated[
        float | None, typer.Option(help="Also the cost until this macro AUROC on validation is reached.")
    ] = None,
    runs: Annotated[float | None, typer.Option(help="Share compilation between so many runs.")] = None,
    exactly: Annotated[
        bool, typer.Option("--exactly", help="Only what is named, even when that is nothing.")
    ] = False,
    recorded: Annotated[
        Path | None, typer.Option(help="Root of recorded evidence: its runs stand beside fresh ones.")
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Price cells: hours by phase times the price of an instance, marked measured or proxy."""
    from cxrbench.report.pricing import Asked, cost_table, readable

    asked = Asked(region, basis, as_of, target_auroc, runs)
    named = records or ([] if exactly else [RECORDED])
    table = cost_table(named, study, prices, asked, recorded)
    _give(table, readable(table), out, as_json)


@app.command("regimes")
def cost_regimes(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """The same cells, and the published ratio, under every price basis and date; does the ranking turn?"""
    import pandas as pd

    from cxrbench.cost.cells import hours_of
    from cxrbench.cost.prices import read_prices
    from cxrbench.report.machines import machine_names
    from cxrbench.report.pricing import Asked, in_columns, pricing_of, read_records
    from cxrbench.report.regimes import ranking_sentences, ratio_table, regime_table, turning_sentences

    pricing, table = pricing_of(study, Asked(region=region)), read_prices(prices)
    hours = pd.DataFrame([hours_of(record) for record in read_records(records or [RECORDED])])
    cells, ratios = regime_table(hours, table, pricing), ratio_table(table, pricing)
    if as_json:
        print(
            f'{{"cells": {cells.to_json(orient="records")},\n "ratios": {ratios.to_json(orient="records")}}}'
        )
        return
    shown = [
        *("cell", "machine", "kind", "instance", "region", "basis", "as_of", "usd_per_hour", "usd_total"),
        *("cost_to_usable", "usd_sd"),
    ]
    priced = cells.assign(machine=machine_names(cells))[shown] if len(cells) else cells
    print(in_columns(priced), in_columns(ratios), sep="\n\n", end="\n\n")
    for sentence in (*turning_sentences(table, pricing, ratios), *ranking_sentences(cells)):
        print(sentence)


@app.command("spot")
def cost_spot(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    rate: Annotated[list[float] | None, typer.Option(help="Interruptions per hour; may be repeated.")] = None,
    save_every: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = 5.0,
    restart: Annotated[float | None, typer.Option(help="Minutes a restart costs; none: the set-up.")] = None,
    trials: Annotated[int, typer.Option(min=2, help="Simulated runs.")] = 400,
    as_json: JsonOption = False,
) -> None:
    """What interruptions add on spot: the expectation and a simulation beside each other (projected)."""
    from cxrbench.cost.prices import read_prices
    from cxrbench.report.pricing import Asked, cost_table, pricing_of
    from cxrbench.report.spot import RATES, Spot, spot_table

    hours = None if restart is None else restart / 60
    how = Spot(tuple(rate or RATES), save_every / 60, hours, trials)
    costs = cost_table(records or [RECORDED], study, prices, Asked(region=region))
    table = spot_table(costs, read_prices(prices), pricing_of(study, Asked(region=region)), how)
    _give(table, None, None, as_json)


@app.command("break-even")
def cost_break_even(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    days: Annotated[float | None, typer.Option(help="Engineer-days of a port.")] = None,
    usd_per_day: Annotated[float | None, typer.Option(help="USD per engineer-day.")] = None,
    here: Annotated[float | None, typer.Option(help="USD per run now.")] = None,
    there: Annotated[float | None, typer.Option(help="USD per run after the port.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Runs until a port pays: for your numbers, or for the published cases and our own cells."""
    given = (days, usd_per_day, here, there)
    if any(one is not None for one in given):
        from cxrbench.cost.breakeven import arithmetic

        for line in arithmetic(*given):
            print(line)
        return
    from cxrbench.cost.prices import read_prices
    from cxrbench.report.breakeven import break_even_table
    from cxrbench.report.pricing import Asked, cost_table, pricing_of, readable_break_even

    costs = cost_table(records or [RECORDED], study, prices)
    table = break_even_table(costs, read_prices(prices), pricing_of(study, Asked()))
    _give(table, readable_break_even(table), None, as_json)


@app.command("reserve")
def cost_reserve(
    prices: PricesOption = PRICES,
    as_json: JsonOption = False,
) -> None:
    """The utilisation at which a reservation pays: its rate over the rate on demand, at the newest prices."""
    from cxrbench.cost.breakeven import reservations
    from cxrbench.cost.prices import read_prices

    _give(reservations(read_prices(prices)), None, None, as_json)


@app.command("project")
def cost_project(
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speeds and costs where nothing was run: ranges, labelled projected, with their errors elsewhere."""
    from cxrbench.config import read_study
    from cxrbench.cost.prices import read_prices
    from cxrbench.report.pricing import readable_projection
    from cxrbench.report.projection import projection_table

    table = projection_table(read_study(study), read_prices(prices), recorded)
    _give(table, readable_projection(table), out, as_json)


@app.command("refresh")
def cost_refresh(
    prices: PricesOption = PRICES,
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-east-1",
    instances: Annotated[list[str] | None, typer.Argument(help="EC2 types; none: all in the table.")] = None,
    window: Annotated[int, typer.Option(min=1, help="Days of spot history for its median.")] = 7,
    write: Annotated[bool, typer.Option("--write", help="Add today's prices to the table.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask AWS for today's prices and show the difference; nothing is written without --write."""
    from cxrbench.cost.refresh import refresh

    found = refresh(prices, region, instances, write, window)
    _give(found.difference, None, None, as_json)
    for instance in found.not_offered:
        say(f"{instance}: not offered in {region}")
    say(f"wrote {prices}" if found.written else "nothing written; add --write to keep these prices")


@app.command("decide")
def cost_decide(
    spend: Annotated[float, typer.Option(prompt="USD per month spent on GPU training", help="USD a month.")],
    architecture: Annotated[
        str,
        typer.Option(
            prompt="cnn, transformer, or data set/network of your own cells",
            help="cnn or transformer (published ratios), or data set/network: the ratio of your cells.",
        ),
    ],
    porting: Annotated[float, typer.Option(prompt="porting budget in USD", help="USD, once.")],
    horizon: Annotated[float, typer.Option(prompt="months the model will be trained", help="Months.")],
    capacity: Annotated[
        float, typer.Option(prompt="share of it that Trainium capacity can take, 0 to 1", help="0 to 1.")
    ],
    ongoing: Annotated[
        float, typer.Option(help="USD per month of engineering for a second platform; assumed to be none.")
    ] = 0.0,
    ratio: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Your own cost ratio, Trainium over GPU, low and high; instead of a published one."
        ),
    ] = None,
    basis: Annotated[
        str | None, typer.Option(help="Put the preprint's ratio (cnn) at the newest prices of this basis.")
    ] = None,
    records: Annotated[Path, typer.Option(help="Where your own cells are.")] = RECORDED,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    as_json: JsonOption = False,
) -> None:
    """Port to Trainium or stay? Your numbers in, the arithmetic out."""
    from cxrbench.cost.breakeven import decide
    from cxrbench.report.decision import ratio_for

    chosen = ratio_for(architecture, ratio, basis, records, study, prices)
    told = decide(spend, chosen, porting, horizon, capacity, ongoing)
    if as_json:
        from cxrbench.report.decision import as_json as written

        print(written(told, chosen))
        return
    for line in told.arithmetic:
        print(line)


@app.command("report")
def cost_report(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/cost.csv.")] = RESULTS,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Write every table of the paper's section on cost: regimes, spot, break-even, decisions, projections."""
    from cxrbench.report.cost_report import write_cost_report

    write_cost_report(results, study, prices, recorded)
