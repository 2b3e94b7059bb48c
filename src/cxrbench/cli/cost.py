"""``cxrbench cost``: what cells cost, under which prices, today's prices, whether to port."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cxrbench.cli.cost_columns import cost_columns, costs_and_notes, mine_columns
from cxrbench.cli.cost_job import at_equal_shares, cheapest, shortfall, the_job, volume_speed
from cxrbench.cli.cost_words import (
    age_of,
    on_spot,
    reasoning,
    supported,
    when_it_pays,
)
from cxrbench.cli.words import (
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    JsonOption,
    PricesOption,
    RecordedOption,
    StudyOption,
    must_be_captured,
    print_json,
    say,
    wrapped,
)
from cxrbench.common.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


app = typer.Typer(help="What cells cost, today's prices, and whether a port pays.", no_args_is_help=True)
RecordsArgument = Annotated[list[Path] | None, typer.Argument(help="record.json files, or their folders.")]
RegionOption = Annotated[str | None, typer.Option(help="AWS region. Default: the study's.")]
CacheOption = Annotated[Path, typer.Option(help="Folder that keeps captured graphs.")]


def _print(table: pd.DataFrame, as_json: bool, text: str | None = None, out: Path | None = None) -> None:
    """Print rows as JSON or as ``text`` (none: all columns); ``out``: write them as CSV instead of text."""
    from cxrbench.common.files import write_csv

    if out:
        write_csv(out, table)
        say(f"wrote {out}")
    if as_json:
        print_json(table)
    elif not out:
        print(cost_columns(table) if text is None else text)


@app.command("table")
def cost_of_records(
    records: RecordsArgument = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    region: RegionOption = None,
    basis: Annotated[
        str | None, typer.Option(help="on_demand, spot, and so on. Default: the study's.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="Use the newest prices up to this date.")] = None,
    target_auroc: Annotated[
        float | None, typer.Option(help="Add the cost until this validation AUROC was reached.")
    ] = None,
    runs: Annotated[float | None, typer.Option(help="Number of runs that share one compilation.")] = None,
    recorded: RecordedOption = RECORDED,
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Price cells: the hours of each phase times the price of an instance."""
    from cxrbench.cli.compare import located
    from cxrbench.cost.costs import cost_table, pricing_of

    pricing = pricing_of(study, region, basis, as_of)
    named = [Path(located(str(path))) for path in records or [RECORDED]]
    table = cost_table(named, prices, pricing, recorded=recorded, target_auroc=target_auroc, runs=runs)
    _print(
        table,
        as_json,
        f"{costs_and_notes(table)}\n{wrapped(age_of(table['as_of']))}" if len(table) else None,
        out,
    )


@app.command("mine")
def cost_mine(
    network: Annotated[str, typer.Argument(help="A timm name.")],
    images: Annotated[int, typer.Option(min=1, help="Training images.")],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")],
    pixels: Annotated[int, typer.Option(min=16, max=1024, help="Side of the images.")] = 224,
    precision: Annotated[str, typer.Option(help="bf16, or fp32 (true fp32, TF32 off).")] = "bf16",
    gpu_speed: Annotated[
        float | None, typer.Option(help="Your measured training images/s on --gpu, of the whole instance.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU instance to compare with. Default: the study's.")
    ] = None,
    scored: Annotated[
        int | None, typer.Option(min=0, help="Images scored after each epoch. Default: a tenth of --images.")
    ] = None,
    region: RegionOption = None,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
    cache: CacheOption = RESULTS / "audit",
    why: Annotated[bool, typer.Option("--why", help="Print what the numbers rest on too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate how long training a timm network takes, what it costs, and when Trainium would pay.

    Example: cxrbench cost mine resnet50 --images 100000 --epochs 10
    """
    import pandas as pd

    from cxrbench.cost.costs import pricing_of
    from cxrbench.cost.estimate import Network
    from cxrbench.cost.mine import EBS_USD, Training, mine_table, priced_elsewhere, work_for
    from cxrbench.cost.prices import read_prices
    from cxrbench.cost.ratios import cheapest_block, thresholds
    from cxrbench.neuron.rules import Setting
    from cxrbench.paper.cost_tables import EXCLUDED, OF_ITS_BATCH
    from cxrbench.study.config import read_study
    from cxrbench.study.platforms import GPU

    must_be_captured([precision])
    config = read_study(study)
    config = config.model_copy(update={"prices": pricing_of(study, region)})
    work = work_for(network, Setting(pixels, 32, precision), recorded, cache, say)
    instance = gpu or config.prices.instances.get(GPU, "g5.xlarge")
    scored = images // 10 if scored is None else scored
    key = Network(network, pixels, precision)
    training = Training(key, work, images, epochs, scored, instance, gpu_speed)
    listed = read_prices(prices)
    table = mine_table(training, config, listed, recorded)
    needed = thresholds(listed, instance, config.prices)
    block = cheapest_block(listed, instance, config.prices, next(iter(needed["instance"]), ""))
    age = age_of(pd.concat([table["as_of"], block["as_of"]]))
    answers = [*shortfall(training, table), *volume_speed(training, table)]
    if away := priced_elsewhere(training, config, listed):
        answers.append(f"No price of {', '.join(away)} is listed in {config.prices.region}.")
    answers += [*when_it_pays(table, training, needed, block), age]
    notes = [
        *the_job(training, table),
        *on_spot(table, listed, config.prices),
        *at_equal_shares(training, needed, listed, config.prices),
        f"Not charged: {EXCLUDED.removeprefix('storage, ')}. Where the own disk is known to be too "
        f"small, USD includes a network volume, at {EBS_USD} USD a GB and month. {OF_ITS_BATCH}",
    ]
    first = [*map(wrapped, [*cheapest(table), *supported(table["instance"], listed)]), ""]
    more = notes if why else ["What hours (timm, scaled), bounds and prices rest on: add --why."]
    shown = [
        *first,
        mine_columns(table, config.prices.region),
        "",
        *map(wrapped, answers),
        "",
        *map(wrapped, more),
    ]
    _print(table, as_json, "\n".join(shown))


@app.command("refresh")
def cost_refresh(
    prices: PricesOption = PRICES,
    region: Annotated[str, typer.Option(help="AWS region; 'all' with a catalogue.")] = "us-east-1",
    instances: Annotated[
        list[str] | None, typer.Argument(help="EC2 instance types. Default: all in the table.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Add today's prices to the table.")] = False,
    price_list: Annotated[
        str | None,
        typer.Option(
            help="Address or file of AWS's list or SkyPilot's catalogue; 'skypilot': that catalogue (spot, "
            "all regions). Default: AWS's list."
        ),
    ] = None,
    dated: Annotated[str | None, typer.Option(help="Day of a file's prices, such as 2026-11-20.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the table with AWS's public price list, or with SkyPilot's public catalogue.

    Only --write changes the table.
    """
    from cxrbench.cost.refresh import CATALOGUE, EVERY_REGION, PRICE_LIST, refresh

    source = CATALOGUE if price_list == "skypilot" else price_list or PRICE_LIST
    reading = partial(say, f"reading {source.replace('{region}', region)}, a large file")
    difference, not_sold = refresh(prices, region, instances, write, source, dated, reading)
    _print(difference, as_json)
    if not_sold:
        there = "any region" if region == EVERY_REGION else region
        say(f"the price list has no price of {', '.join(not_sold)} in {there}")
    if write and len(difference):
        say(f"wrote {prices}")
    elif len(difference):
        say("nothing written; add --write to keep these prices")
    else:
        say("no price was found; nothing written")


_QUESTIONS = {
    "spend": "USD per month spent on GPU training",
    "architecture": "cnn, transformer, a timm name, or dataset/network of your cells",
    "porting": "Budget of the port, in USD",
    "horizon": "Months that the model will be trained",
    "capacity": "Fraction of the training that Trainium can take, 0 to 1",
}


def _asked(**given: Any) -> list[Any]:
    """The values of options, or the answers to their questions; UserError that names all where nobody
    answers."""
    try:
        for name in [name for name, value in given.items() if value is None]:
            given[name] = typer.prompt(_QUESTIONS[name], type=str if name == "architecture" else float)
    except typer.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        typer.echo()  # after the question
        missing = [name for name, value in given.items() if value is None]
        questions = "; ".join(f"--{name} is missing: {_QUESTIONS[name]}" for name in missing)
        raise UserError(f"{questions}; give these options") from None
    return [*given.values()]


@app.command("decide")
def cost_decide(
    spend: Annotated[float | None, typer.Option(help=_QUESTIONS["spend"])] = None,
    architecture: Annotated[str | None, typer.Option(help=_QUESTIONS["architecture"])] = None,
    porting: Annotated[float | None, typer.Option(help=_QUESTIONS["porting"])] = None,
    horizon: Annotated[float | None, typer.Option(help=_QUESTIONS["horizon"])] = None,
    capacity: Annotated[float | None, typer.Option(help=_QUESTIONS["capacity"])] = None,
    ongoing: Annotated[float, typer.Option(help="USD per month of work on the second platform.")] = 0.0,
    ratio: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Your own cost ratio, Trainium over GPU: --ratio 0.8 1.1."),
    ] = None,
    speeds: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="GPU TRAINIUM",
            help="Your measured training images/s on --gpu and on --trainium, whole instances.",
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU instance. Default: the study's.")] = None,
    trainium: Annotated[
        str | None, typer.Option(help="Trainium instance. Default: the cheapest that is supported.")
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(help="Convert the preprint's ratio (cnn) to the newest prices of this basis."),
    ] = None,
    records: Annotated[Path, typer.Option(help="Folder of your own cells.")] = RECORDED,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    cache: CacheOption = RESULTS / "audit",
    as_json: JsonOption = False,
) -> None:
    """Decide whether a port to Trainium pays, and print the arithmetic.

    Options that are missing are asked for. The answer "Port" needs a ratio of
    your own: --ratio, --speeds, or cells.
    """
    import pandas as pd

    from cxrbench.cost.costs import pricing_of
    from cxrbench.cost.mine import must_be_gpu, published_kind
    from cxrbench.cost.porting import Numbers, decide, ratio_for
    from cxrbench.cost.prices import newest, read_prices
    from cxrbench.cost.ratios import (
        cheapest_block,
        ratio_given,
        ratio_of_speeds,
        supported_on,
        thresholds,
    )
    from cxrbench.study.platforms import GPU

    if ratio and speeds:
        raise UserError("--ratio and --speeds both give the cost ratio: leave one of them out")
    if basis and (ratio or speeds):
        raise UserError("--basis converts the preprint's ratio: leave it out where you give your own")
    pricing, listed = pricing_of(study), read_prices(prices)
    instance = gpu or pricing.instances.get(GPU, "g5.xlarge")
    if gpu:
        must_be_gpu(listed, gpu)
    needed = thresholds(listed, instance, pricing)
    needed = supported_on(needed, trainium) if trainium else needed
    spend, architecture, porting, horizon, capacity = _asked(
        spend=spend, architecture=architecture, porting=porting, horizon=horizon, capacity=capacity
    )
    if ratio:
        chosen = ratio_given(*ratio, needed, trainium)
    elif speeds:
        block = cheapest_block(listed, instance, pricing, next(iter(needed["instance"]), ""))
        chosen = ratio_of_speeds(*speeds, needed, block)
    else:
        name = published_kind(architecture, RECORDED, cache, say)
        chosen = ratio_for(name, basis, records, study, prices)
    given = Numbers(spend, porting, ongoing, horizon, capacity)
    decision = decide(chosen, given)
    lines = reasoning(chosen, given, decision, needed)
    if gpu and not chosen.own and chosen.kind != "unknown":
        lines.append(f"--gpu {gpu} sets the hour of measuring alone: the ratio is of its source's instances.")
    ends = {"ratio_low": chosen.low, "ratio_high": chosen.high, "kind": chosen.kind, "source": chosen.source}
    measure = {"own": chosen.own, "hardware": chosen.hardware, "measure_on": needed.to_dict("records")}
    as_row = pd.Series(decision._asdict() | ends | measure | {"arithmetic": lines})  # null: infinitely long
    print(as_row.to_json(indent=1) if as_json else "\n".join(map(wrapped, lines)))
    say(age_of(newest(listed)["as_of"], f"price in {prices}"))
