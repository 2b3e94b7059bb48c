"""The generated table of docs/practitioner.md: what three sizes of jobs take and cost on usual instances."""

import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from cxrbench.cost.devices import DEVICES
from cxrbench.cost.prices import price
from cxrbench.cost.published import published_speed
from cxrbench.paper.blocks import as_markdown, renew
from cxrbench.paper.formats import Range, text
from cxrbench.study.config import Pricing


class Job(NamedTuple):
    """A training job: images, side of the images, epochs, timm name."""

    size: str
    images: int
    pixels: int
    epochs: int
    network: str


JOBS = (
    Job("small", 120_000, 224, 20, "convnext_tiny"),
    Job("large", 2_000_000, 512, 10, "efficientnet_b0"),
    Job("very large", 2_000_000, 512, 30, "convnext_base"),
)
INSTANCES = (
    *("g6.xlarge", "g5.xlarge", "g6e.xlarge", "g5.12xlarge", "g6e.12xlarge", "p4d.24xlarge", "p5.4xlarge"),
    "p5.48xlarge",
)


def jobs_table(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """A row per job and instance: hours and USD of its training images, at timm's speeds as scaled by
    :func:`~cxrbench.cost.published.published_speed`; ``*_middle`` is the geometric middle."""
    rows = []
    for job in JOBS:
        for instance in INSTANCES:
            rate = price(prices, instance, pricing.region, pricing.basis, pricing.as_of)
            speed = published_speed(job.network, job.pixels, DEVICES[rate["accelerator"]])
            assert speed, f"timm timed no {job.network}, or {instance} has no documented bandwidth"
            ends = (speed.high * rate["cores"], speed.low * rate["cores"])
            low, high = (job.images * job.epochs / rate_of / 3600 for rate_of in ends)
            middle, usd = math.sqrt(low * high), float(rate["usd_per_hour"])
            rows.append(
                {"job": job.size, "instance": instance, "usd_per_hour": usd, "as_of": rate["as_of"]}
                | {"hours_low": low, "hours_high": high, "hours_middle": middle, "usd_low": low * usd}
                | {"usd_high": high * usd, "usd_middle": middle * usd}
            )
    return pd.DataFrame(rows)


def write_page(page: Path, prices: pd.DataFrame, pricing: Pricing) -> None:
    """Renew the table in ``page``."""
    table = jobs_table(prices, pricing)
    shown = pd.DataFrame({"instance (USD/h)": [
        f"{row.instance} ({row.usd_per_hour:.2f})"
        for row in table.drop_duplicates("instance").itertuples()
    ]})  # fmt: skip
    for job in JOBS:
        rows = table[table["job"] == job.size]
        named = f"{job.size}: {job.images:,} x {job.pixels} px, {job.epochs} epochs, {job.network}"
        shown[named] = [
            f"{text(Range(row.hours_low, row.hours_high), 'short')} h, "
            f"{text(Range(row.usd_low, row.usd_high), 'short')} USD"
            for row in rows.itertuples()
        ]
    dates = ", ".join(sorted(set(table["as_of"])))
    where = f"{pricing.region}, {pricing.basis.replace('_', ' ')}, {dates}"
    renew(page, {"jobs": f"{as_markdown(shown)}Prices: {where}.\n"})
