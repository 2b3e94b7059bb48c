"""``cxrbench cost``: what cells cost, under which prices, today's prices, whether to port."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    JsonOption,
    PricesOption,
    RecordedOption,
    StudyOption,
    digits,
    in_columns,
    print_json,
    say,
    span,
    wrapped,
)
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.study.config import Pricing

app = typer.Typer(help="What cells cost, today's prices, whether to port.", no_args_is_help=True)
RecordsArgument = Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")]
RegionOption = Annotated[str | None, typer.Option(help="AWS region; none: the study's.")]
CacheOption = Annotated[Path, typer.Option(help="Folder of earlier captures.")]
OutOption = Annotated[Path | None, typer.Option(help="CSV to write.")]
_COSTS = (
    "cell", "status", "kind", "machine", "instance", "region", "basis", "as_of", "usd_per_hour",
    "hours_total", "usd_total", "usd_used_cores", "usd_per_million_images", "target_auroc", "usd_to_auroc",
    "usd_amortised", "amortised_over",
)  # fmt: skip
_OVER_SEEDS = (
    "run", "machine", "basis", "as_of", "cost_to_usable", "usd_sd", "target_auroc", "cost_to_auroc",
)  # fmt: skip
_RANGES = {
    "published ratio": ("published_low", "published_high"), "cost ratio": ("ratio_low", "ratio_high"),
    "images/s": ("low", "high"), "USD/million images": ("usd_per_million_low", "usd_per_million_high"),
}  # fmt: skip
_HEADS = {
    "as_of": "price of", "hours_total": "hours", "usd_total": "USD", "usd_used_cores": "USD, used cores",
    "usd_per_million_images": "USD/million images", "cost_to_usable": "USD/usable model",
    "usd_sd": "SD of USD over seeds", "target_auroc": "target AUROC", "usd_to_auroc": "USD to AUROC",
    "cost_to_auroc": "USD/model of AUROC", "usd_amortised": "USD, compilation shared",
    "amortised_over": "runs that share", "usd_per_hour": "USD/h", "usd_here": "USD/run, GPU", "here": "GPU",
    "there": "Trainium", "usd_there": "USD/run, Trainium", "porting": "porting USD",
    "work_hours": "work h", "rate": "stops/h", "interval": "saved every h",
    "restart": "restart h", "expected_hours": "expected h", "usd": "USD", "usd_instance": "USD/h",
    "usd_baseline": "baseline USD/h", "usd_reserved": "USD/h, reserved", "usd_on_demand": "USD/h, on demand",
    "utilisation": "pays above this share of hours", "price_ratio": "price ratio",
    "factor": "times the hours", "runs": "runs until it pays",
    "old_usd": "USD/h before", "new_usd": "USD/h now", "old_as_of": "price before of",
}  # fmt: skip


def _print(table: pd.DataFrame, as_json: bool, text: str | None = None, out: Path | None = None) -> None:
    """Print rows as JSON or as ``text`` (none: all columns); ``out``: write them as CSV instead of text."""
    from cxrbench.study.files import write_csv

    if out:
        write_csv(out, table)
    if as_json:
        print_json(table)
    elif not out:
        print(_in_columns(table) if text is None else text)


def _in_columns(table: pd.DataFrame, *apart: str) -> str:
    """Return costs in 100 columns, a table for each value of ``apart``; a range's two ends are one text."""
    for name, (low, high) in _RANGES.items():
        if low in table:
            ends = zip(table[low], table[high], strict=True)
            texts = [None if math.isnan(end[0]) else span(*end, 4) for end in ends]
            table = table.assign(**{low: texts}).rename(columns={low: name}).drop(columns=high)
    return in_columns(table, _HEADS, *apart)


def _reasons(table: pd.DataFrame, named: str) -> list[str]:
    """Return each note of the rows once, after what it is about (the column ``named``)."""
    groups = table.groupby("note", sort=False)
    return [wrapped(f"{'; '.join(some[named].unique())}: {note}.") for note, some in groups]


def _costs_in_columns(table: pd.DataFrame) -> str:
    """Return cost rows, what a usable model costs over seeds, and what the dollars leave out."""
    from cxrbench.cost.costs import EXCLUDED
    from cxrbench.paper.cost_tables import machine_names

    if table.empty:
        return _in_columns(table)
    shown = table.assign(machine=machine_names(table))
    cells = shown.filter(_COSTS)
    if (table["usd_used_cores"] == table["usd_total"]).all():
        cells = cells.drop(columns="usd_used_cores")
    seeds = shown.assign(run=shown["cell"].str.rpartition("/")[0]).filter(_OVER_SEEDS).drop_duplicates()
    note = f"Not charged: {EXCLUDED}."
    if unknown := int(table["others_share"].isna().sum()):
        note += f" The load of the machine was not recorded for {unknown} of {len(table)} runs."
    return f"{_in_columns(cells)}\n\n{_in_columns(seeds)}\n{wrapped(note)}"


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
    basis: Annotated[str | None, typer.Option(help="on_demand, spot, ...; none: the study's.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Newest prices up to this date.")] = None,
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
    from cxrbench.cost.costs import cost_table, pricing_of

    pricing = pricing_of(study, region, basis, as_of)
    named = records or ([] if exactly else [RECORDED])
    table = cost_table(named, prices, pricing, recorded=recorded, target_auroc=target_auroc, runs=runs)
    _print(table, as_json, _costs_in_columns(table), out)


@app.command("regimes")
def cost_regimes(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """The same cells, and the published ratio, under every price basis and date; does the ranking turn?"""
    from cxrbench.cost import costs, ratios, regimes
    from cxrbench.cost.prices import read_prices

    pricing, table = costs.pricing_of(study, region), read_prices(prices)
    cells = regimes.regime_table(costs.hours_of(costs.runs_of(records or [RECORDED])), table, pricing)
    pairs = ratios.ratio_table(table, pricing)
    if as_json:
        rows = (some.to_json(orient="records") for some in (cells, pairs))
        print('{{"cells": {},\n "ratios": {}}}'.format(*rows))
    else:
        print(_costs_in_columns(cells), _in_columns(pairs, "instance", "baseline"), sep="\n\n", end="\n\n")
        sentences = (*ratios.turning_sentences(table, pricing), *regimes.ranking_sentences(cells))
        print(*map(wrapped, sentences), sep="\n")


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
    known = _priced(records, study, prices, region)
    table = spot_table(*known, rate or RATES, save_every / 60, hours)
    lines = [_in_columns(table.drop(columns=["note", "setup_hours", "factor", "as_of"]))]
    if dates := [date for date in table["as_of"].unique() if date]:
        lines.append(f"Spot prices of: {', '.join(dates)}.")
    _print(table, as_json, "\n".join([*lines, *_reasons(table[table["note"] != ""], "run")]))


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
    from cxrbench.cost.porting import arithmetic, break_even_table
    from cxrbench.paper.cost_tables import runs_in_words

    given = {"--days": days, "--usd-per-day": usd_per_day, "--here": here, "--there": there}
    numbers = [number for number in given.values() if number is not None]
    if len(numbers) == len(given):
        print(*arithmetic(*numbers), sep="\n")
    elif numbers:
        missing = next(name for name, number in given.items() if number is None)
        raise UserError(f"{missing} is missing: break-even needs {', '.join(given)}")
    else:
        table = break_even_table(*_priced(records, study, prices))
        runs = table["runs"].map(runs_in_words).where(table["runs"].notna(), "never")
        shown = table.drop(columns=["source", "note", "saving"]).assign(runs=runs)
        priced = table["saving"].notna()
        lines = [_in_columns(shown[priced], "case"), "", *_reasons(table[~priced], "case")]
        _print(table, as_json, "\n".join(lines))


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
    from cxrbench.cost.prices import read_prices
    from cxrbench.cost.projection import projection_table
    from cxrbench.study.config import read_study

    table, _ = projection_table(read_study(study), read_prices(prices), recorded)
    made = table[table["why_not"].isna()].drop(columns=["sources", "assumptions", "why_not"])
    lines = [_in_columns(made)]
    for reason, some in table.groupby("why_not", sort=False):
        where = f" on {', '.join(some['instance'].unique())}" if some["instance"].notna().all() else ""
        lines.append(wrapped(f"{', '.join(some['architecture'].unique())}{where}: {reason}."))
    _print(table, as_json, "\n".join(lines), out)


@app.command("mine")
def cost_mine(
    network: Annotated[str, typer.Argument(help="A timm name.")],
    images: Annotated[int, typer.Option(min=1, help="Training images.")],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over them.")],
    pixels: Annotated[int, typer.Option(min=16, max=1024, help="Side of the images.")] = 224,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    gpu_images_per_second: Annotated[
        float | None, typer.Option(help="What you measured while training on --gpu, the whole instance.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Instance to compare with; none: the study's.")] = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
    cache: CacheOption = RESULTS / "audit",
    as_json: JsonOption = False,
) -> None:
    """Hours and dollars of training any timm network on every instance, and when Trainium would pay."""
    from cxrbench.compile.rules import Setting
    from cxrbench.cost.costs import EXCLUDED
    from cxrbench.cost.mine import Training, mine_table, trial_sentences, work_for
    from cxrbench.cost.prices import read_prices
    from cxrbench.study.config import read_study
    from cxrbench.study.platform_names import GPU

    if precision not in ("fp32", "bf16"):
        raise UserError(f"--precision: unknown value '{precision}'; use fp32 or bf16")
    of = read_study(study)
    work = work_for(network, Setting(pixels, 32, precision), recorded, cache, say)
    instance = gpu or of.prices.instances.get(GPU, "g5.xlarge")
    training = Training(work, images * epochs, precision, instance, gpu_images_per_second)
    table = mine_table(training, of, read_prices(prices), recorded)
    assumed, at = table["assumptions"].dropna().explode().unique(), of.prices
    elsewhere = table[table["region"] != at.region].groupby("region")["instance"].agg(", ".join)
    notes = [
        f"{network}, {pixels} px, {precision}: {work.gmac:.3g} GMAC forward an image, {images:,} images x "
        f"{epochs} epochs; without evaluation and compilation.",
        *trial_sentences(table, training, at),
        f"Prices: on demand unless named, in {at.region}"
        + "".join(f"; {region}: {names}" for region, names in elsewhere.items())
        + ".",
        *(["Assumed: " + "; ".join(assumed) + "."] if len(assumed) else []),
        *(f"{text}: {', '.join(some)}." for text, some in table.groupby("why_not")["instance"]),
        f"Not charged: {EXCLUDED}.",
    ]
    _print(table, as_json, "\n".join([_hours_and_dollars(table), "", *map(wrapped, notes)]))


def _hours_and_dollars(table: pd.DataFrame) -> str:
    """Return the rows of :func:`~cxrbench.cost.mine.mine_table` with an accelerator, in 100 columns."""
    import pandas as pd

    short = {basis: f"{basis} ".replace("capacity_", "") for basis in table["basis"]} | {"on_demand": ""}

    rows = [
        {
            "instance": row["instance"],
            "USD/h": digits(row["usd_per_hour"]),
            "price of": f"{short[row['basis']]}{row['as_of']}",
            "x GPU's": f"{row['break_even_ratio']:.2f}",
            "h at peak": digits(row["hours_at_peak"], 3),
            "hours": span(row["hours_low"], row["hours_high"]),
            "USD": span(row["usd_low"], row["usd_high"]),
            "kind": "-" if pd.isna(row["kind"]) else row["kind"],
        }
        for row in table.query("accelerator != ''").to_dict("records")
    ]
    return pd.DataFrame(rows).to_string(index=False)


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

    difference, not_sold = refresh(prices, region, instances, write, window)
    _print(difference, as_json)
    for instance in not_sold:
        say(f"{instance}: not offered in {region}")
    written = write and len(difference)
    say(f"wrote {prices}" if written else "nothing written; add --write to keep these prices")


@app.command("decide")
def cost_decide(
    spend: Annotated[float, typer.Option(prompt="USD per month spent on GPU training", help="USD a month.")],
    architecture: Annotated[
        str,
        typer.Option(
            prompt="cnn, transformer, a timm network, or data set/network of your own cells",
            help="cnn, transformer or a timm name (published ratios), or data set/network of your cells.",
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
    cache: CacheOption = RESULTS / "audit",
    as_json: JsonOption = False,
) -> None:
    """Port to Trainium or stay? Your numbers in, the arithmetic out."""
    import pandas as pd

    from cxrbench.cost.mine import published_kind
    from cxrbench.cost.porting import decide, ratio_for
    from cxrbench.cost.ratios import Ratio

    if ratio:
        chosen = Ratio(*ratio, "projected", "your own ratio")
    else:
        name = published_kind(architecture, RECORDED, cache, say)
        chosen = ratio_for(name, basis, records, study, prices)
    decision = decide(chosen, spend, porting, horizon, capacity, ongoing)
    as_rows = pd.Series(decision)  # its JSON has null for infinitely many months
    print(as_rows.to_json(indent=1) if as_json else "\n".join(decision["arithmetic"]))


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
