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
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.study.config import Pricing

app = typer.Typer(help="What cells cost, today's prices, whether to port.", no_args_is_help=True)
RecordsArgument = Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")]
RegionOption = Annotated[str | None, typer.Option(help="AWS region; none: the study's.")]
BasisOption = Annotated[str | None, typer.Option(help="on_demand, spot, ...; none: the study's.")]
DateOption = Annotated[str | None, typer.Option("--as-of", help="Newest prices up to this date.")]
OutOption = Annotated[Path | None, typer.Option(help="CSV to write.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")]


def _print(table: pd.DataFrame, as_json: bool, text: str | None = None, out: Path | None = None) -> None:
    """Print rows as JSON or as ``text`` (none: all columns); ``out``: write them as CSV instead of text."""
    from cxrbench.cli.cost_text import in_columns
    from cxrbench.study.files import write_csv

    if out:
        write_csv(out, table)
    if as_json:
        print(table.to_json(orient="records", indent=1))
    elif not out:
        print(in_columns(table) if text is None else text)


def _priced(
    records: list[Path] | None, study: Path, prices: Path, region: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, Pricing]:
    """Return the cost rows of the records (none: the recorded ones), all prices, and the pricing."""
    from cxrbench.cost.costs import cost_table, pricing_of
    from cxrbench.cost.prices import read_prices

    pricing = pricing_of(study, region)
    return cost_table(records or [RECORDED], prices, pricing), read_prices(prices), pricing


@app.command("table")
def cost_of_records(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    basis: BasisOption = None,
    as_of: DateOption = None,
    target_auroc: Annotated[
        float | None, typer.Option(help="Also the cost until this validation AUROC.")
    ] = None,
    runs: Annotated[float | None, typer.Option(help="Share compilation between so many runs.")] = None,
    exactly: Annotated[bool, typer.Option("--exactly", help="Only what is named, even if nothing.")] = False,
    recorded: Annotated[
        Path | None, typer.Option(help="Recorded evidence to show beside fresh runs.")
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Price cells: hours by phase times the price of an instance, marked measured or proxy."""
    from cxrbench.cli import cost_text
    from cxrbench.cost.costs import cost_table, pricing_of

    pricing = pricing_of(study, region, basis, as_of)
    named = records or ([] if exactly else [RECORDED])
    table = cost_table(named, prices, pricing, recorded=recorded, target_auroc=target_auroc, runs=runs)
    _print(table, as_json, cost_text.costs(table), out)


@app.command("regimes")
def cost_regimes(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """The same cells, and the published ratio, under every price basis and date; does the ranking turn?"""
    from cxrbench.cli import cost_text
    from cxrbench.cost.costs import hours_of, pricing_of, runs_of
    from cxrbench.cost.prices import read_prices
    from cxrbench.cost.ratios import ratio_table, turning_sentences
    from cxrbench.cost.regimes import ranking_sentences, regime_table

    pricing, table = pricing_of(study, region), read_prices(prices)
    costs = regime_table(hours_of(runs_of(records or [RECORDED])), table, pricing)
    pairs = ratio_table(table, pricing)
    if as_json:
        rows = (some.to_json(orient="records") for some in (costs, pairs))
        print('{{"cells": {},\n "ratios": {}}}'.format(*rows))
    else:
        print(cost_text.costs(costs), cost_text.in_columns(pairs), sep="\n\n", end="\n\n")
        print(*turning_sentences(table, pricing), *ranking_sentences(costs), sep="\n")


@app.command("spot")
def cost_spot(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    rate: Annotated[list[float] | None, typer.Option(help="Interruptions per hour; may be repeated.")] = None,
    save_every: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = 5.0,
    restart: Annotated[float | None, typer.Option(help="Minutes a restart costs; none: the set-up.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What interruptions are expected to add on spot (projected)."""
    from cxrbench.cost.spot import RATES, spot_table

    hours = None if restart is None else restart / 60
    _print(
        spot_table(*_priced(records, study, prices, region), rate or RATES, save_every / 60, hours), as_json
    )


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
    from cxrbench.cli import cost_text
    from cxrbench.cost.porting import arithmetic, break_even_table

    given = {"--days": days, "--usd-per-day": usd_per_day, "--here": here, "--there": there}
    numbers = [number for number in given.values() if number is not None]
    if len(numbers) == len(given):
        print(*arithmetic(*numbers), sep="\n")
    elif numbers:
        missing = next(name for name, number in given.items() if number is None)
        raise UserError(f"{missing} is missing: break-even needs {', '.join(given)}")
    else:
        table = break_even_table(*_priced(records, study, prices))
        _print(table, as_json, cost_text.break_even(table))


@app.command("reserve")
def cost_reserve(prices: PricesOption = PRICES, as_json: JsonOption = False) -> None:
    """The utilisation at which a reservation pays: its rate over the rate on demand, at the newest prices."""
    from cxrbench.cost.porting import reservations
    from cxrbench.cost.prices import read_prices

    _print(reservations(read_prices(prices)), as_json)


@app.command("project")
def cost_project(
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speeds and costs where nothing was run: ranges, labelled projected, with their errors elsewhere."""
    from cxrbench.cli import cost_text
    from cxrbench.cost.prices import read_prices
    from cxrbench.cost.projection import projection_table
    from cxrbench.study.config import read_study

    table = projection_table(read_study(study), read_prices(prices), recorded)
    _print(table, as_json, cost_text.projections(table), out)


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
    _print(found.difference, as_json)
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
    ongoing: Annotated[float, typer.Option(help="USD a month of work on the second platform.")] = 0.0,
    ratio: Annotated[
        tuple[float, float] | None, typer.Option(help="Your own cost ratio, Trainium over GPU, low and high.")
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
    import pandas as pd

    from cxrbench.cost.porting import decide, ratio_for
    from cxrbench.cost.ratios import Ratio

    if ratio:
        chosen = Ratio(*ratio, "projected", "your own ratio")
    else:
        chosen = ratio_for(architecture, basis, records, study, prices)
    decision = decide(chosen, spend, porting, horizon, capacity, ongoing)
    source = {"ratio": [chosen.low, chosen.high], "kind": chosen.kind, "source": chosen.source}
    as_rows = pd.Series(vars(decision) | source)  # its JSON has null for infinitely many months
    print(as_rows.to_json(indent=1) if as_json else "\n".join(decision.arithmetic))


@app.command("report")
def cost_report(
    results: Annotated[Path, typer.Option(help="Folder with cells/ and tables/cost.csv.")] = RESULTS,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Write every table of the paper's section on cost: regimes, spot, break-even, decisions, projections."""
    from cxrbench.cost.write import write_cost_tables

    write_cost_tables(results, study, prices, recorded)
