"""What docs/practitioner.md says: three sizes of jobs, an example, and from when a port pays."""

import math
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.cost.devices import DEVICES
from cxrbench.cost.estimate import FORWARD_SHARE
from cxrbench.cost.prices import NoPrice, price, read_prices
from cxrbench.cost.published import leave_one_card_out, published_speed
from cxrbench.cost.ratios import cheapest_block, thresholds, where
from cxrbench.neuron.reports import read_reported
from cxrbench.paper.blocks import as_markdown
from cxrbench.paper.formats import Range, text
from cxrbench.paper.results import PRICES, Results
from cxrbench.study.config import Pricing


class ExampleJob(NamedTuple):
    """A training job: images, side of the images, epochs, timm name."""

    size: str
    images: int
    pixels: int
    epochs: int
    network: str


class Example(NamedTuple):
    """The run of the example, and its port: images/s in training, Trainium's cost over the GPU's."""

    images: int = 60_000
    scored: int = 6_000
    epochs: int = 10
    speed: int = 600
    porting_usd: int = 20_000
    ratio: float = 1 / 1.3  # 30 % better price-performance
    horizon_months: int = 12


JOBS = (
    ExampleJob("small", 120_000, 224, 20, "convnext_tiny"),
    ExampleJob("large", 2_000_000, 512, 10, "efficientnet_b0"),
    ExampleJob("very large", 2_000_000, 512, 30, "convnext_base"),
)
JOB_INSTANCES = (
    *("g6.xlarge", "g5.xlarge", "g6e.xlarge", "g7e.2xlarge", "g5.12xlarge", "g6e.12xlarge", "p4d.24xlarge"),
    *("p5.4xlarge", "p5.48xlarge"),
)
GPU_INSTANCE = "g5.xlarge"  # that ports are judged against
OF_THRESHOLDS = (GPU_INSTANCE, "g6e.xlarge", "g7e.2xlarge", "p5.4xlarge")  # and those that the page advises
EXAMPLE = Example()


def jobs_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """A row per job and instance: hours and USD of its training images, at timm's speeds as scaled by
    :func:`~cxrbench.cost.published.published_speed`; ``*_middle`` is the geometric middle,
    ``spot`` the USD per hour of ``spot_as_of``, NaN and empty where none is known."""
    rows = []
    spot = {instance: _on_spot(prices, instance, pricing) for instance in JOB_INSTANCES}
    for job in JOBS:
        for instance in JOB_INSTANCES:
            rate = price(prices, instance, pricing.region, pricing.basis, pricing.as_of)
            speed = published_speed(job.network, job.pixels, DEVICES[rate["accelerator"]])
            assert speed, f"timm timed no {job.network}, or {instance} has no documented bandwidth"
            ends = (speed.high * rate["cores"], speed.low * rate["cores"])
            low, high = (job.images * job.epochs / rate_of / 3600 for rate_of in ends)
            middle, usd = math.sqrt(low * high), float(rate["usd_per_hour"])
            rows.append(
                {"job": job.size, "instance": instance, "usd_per_hour": usd, "as_of": rate["as_of"]}
                | {"accelerators": rate["accelerators"]}
                | spot[instance]
                | {"hours_low": low, "hours_high": high, "hours_middle": middle, "usd_low": low * usd}
                | {"usd_high": high * usd, "usd_middle": middle * usd}
            )
    return pd.DataFrame(rows)


def _on_spot(prices: pd.DataFrame, instance: str, pricing: Pricing) -> dict[str, Any]:
    with suppress(NoPrice):
        rate = price(prices, instance, pricing.region, "spot", pricing.as_of)
        return {"spot": float(rate["usd_per_hour"]), "spot_as_of": rate["as_of"]}
    return {"spot": math.nan, "spot_as_of": ""}


def jobs(read: Results) -> pd.DataFrame:
    """:func:`jobs_table` at the newest prices of the study's region; no rows where one is unknown."""
    with suppress(NoPrice):
        return jobs_table(read_prices(PRICES), read.study.prices)
    return pd.DataFrame()


def cheapest_jobs(read: Results) -> pd.DataFrame:
    """The row of each job's cheapest instance, by the geometric middle of its range."""
    return _cheapest(jobs(read))


def cheapest_jobs_on_spot(read: Results) -> pd.DataFrame:
    """The row of each job's cheapest instance at spot prices: of all (``several``), and of single GPUs."""
    rows = jobs(read)
    if rows.empty:
        return rows
    rows = rows.dropna(subset="spot").assign(usd_middle=lambda table: table["hours_middle"] * table["spot"])
    single = rows[rows["accelerators"] == 1]
    return pd.concat([_cheapest(rows).assign(several=True), _cheapest(single).assign(several=False)])


def _cheapest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows if rows.empty else rows.loc[rows.groupby("job")["usd_middle"].idxmin()]


def named_or(instances: pd.Series) -> str:
    """Names with ``or`` before the last."""
    *others, last = instances
    return f"{', '.join(others)} or {last}" if others else last


def scaling(read: Results) -> pd.DataFrame:
    """How well the scaling of speeds predicts timm's other cards: shares of networks, a row per card."""
    return leave_one_card_out()


def example(read: Results) -> pd.DataFrame:
    """A row about the example: what one run takes and costs on the GPU, and what a port must bring.

    No row where the study's region has no price of the GPU.
    """
    pricing = read.study.prices
    try:
        rate = price(read_prices(PRICES), GPU_INSTANCE, pricing.region, pricing.basis, pricing.as_of)
    except NoPrice:
        return pd.DataFrame()
    job = EXAMPLE
    hours = job.epochs * (job.images + job.scored * FORWARD_SHARE) / job.speed / 3600
    usd = hours * rate["usd_per_hour"]
    monthly = job.porting_usd / job.horizon_months / (1 - job.ratio)
    row = {"minutes": 60 * hours, "usd": usd, "runs": job.porting_usd / usd, "monthly": monthly}
    return pd.DataFrame([row | {name: rate[name] for name in ("usd_per_hour", "as_of")}])


def threshold(read: Results) -> pd.DataFrame:
    """The row of :func:`~cxrbench.cost.ratios.thresholds` of the cheapest instance that can be trained on."""
    return thresholds(read_prices(PRICES), GPU_INSTANCE, read.study.prices).head(1)


def inference_of_a_convnext(read: Results) -> pd.DataFrame:
    """The published speeds of a ConvNeXt's inference on Trainium2, a row per device."""
    rows = read_reported()
    return rows[(rows["architecture"] == "convnext_tiny") & (rows["part"] == "forward")]


def _time(low: float, high: float) -> str:
    """A range of hours, in minutes where it ends before two hours."""
    minutes = text(Range(60 * low, 60 * high), "short")
    return f"{minutes} min" if high < 2 else f"{text(Range(low, high), 'short')} h"


def jobs_in_markdown(read: Results) -> str:
    """The table of jobs and instances in Markdown, with region and date of its prices."""
    rows, pricing = jobs(read), read.study.prices
    instances = rows.drop_duplicates("instance")
    spot = instances["spot"].map("; spot {:.2f}".format).where(instances["spot"].notna(), "")
    rates = instances["instance"] + " (" + instances["usd_per_hour"].map("{:.2f}".format) + spot + ")"
    shown = pd.DataFrame({"instance (USD/h)": [*rates]})
    for job in JOBS:
        named = f"{job.size}: {job.images:,} x {job.pixels} px, {job.epochs} epochs, {job.network}"
        shown[named] = [
            f"{_time(row.hours_low, row.hours_high)}, {text(Range(row.usd_low, row.usd_high), 'short')} USD"
            for row in rows[rows["job"] == job.size].itertuples()
        ]
    dates, spot_dates = (", ".join(sorted({*rows[name]} - {""})) for name in ("as_of", "spot_as_of"))
    on_demand = f"{pricing.region}, {pricing.basis.replace('_', ' ')}, {dates}"
    return f"{as_markdown(shown)}Prices: {on_demand}; spot: {spot_dates or 'none'}.\n"


def thresholds_in_markdown(read: Results) -> str:
    """How many times the images/s of each of ``OF_THRESHOLDS`` the instance of :func:`threshold` must reach
    to cost the same, by its capacity block and on spot, as a table in Markdown with the instance's prices
    below it; empty without a price."""
    prices, pricing = read_prices(PRICES), read.study.prices
    instance = next(iter(threshold(read)["instance"]), "")
    rows, own = [], dict[str, None]()
    for gpu in OF_THRESHOLDS:
        on_spot = thresholds(prices, gpu, pricing).query("instance == @instance")
        block = cheapest_block(prices, gpu, pricing, instance)
        if on_spot.empty or block.empty:
            return ""
        pair = {"Capacity Block": block.iloc[0], "spot": on_spot.iloc[0]}
        cells = {
            f"{instance}, {basis}": f"{row['price_ratio']:.2f} ({where(row, '_gpu')})"
            for basis, row in pair.items()
        }
        rows.append({"GPU (basis of its price)": gpu} | cells)
        own |= {f"{row['usd_per_hour']:g} USD/h ({where(row)})": None for row in pair.values()}
    return f"{as_markdown(pd.DataFrame(rows))}Prices of a {instance}: {'; '.join(own)}.\n"
