"""What one training of yours takes and costs, on the few instances that fit it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.common.errors import UserError, nearest
from cxrbench.common.files import read_csv
from cxrbench.cost.devices import DEVICES
from cxrbench.cost.estimate import (
    FORWARD_SHARE,
    Network,
    NotKnown,
    Speed,
    Work,
    ceiling,
    dollars,
    hours_of_training,
    measured_speeds,
    work_of,
)
from cxrbench.cost.prices import KEY, accelerator_of, by_the_hour, newest, price, regions
from cxrbench.cost.published import published_speed
from cxrbench.cost.ratios import PUBLISHED_RATIOS
from cxrbench.neuron.audit import read_audit, survey
from cxrbench.neuron.rules import Setting
from cxrbench.study.config import Pricing, Study
from cxrbench.training.plan import ARCHITECTURES, must_be_architectures

_MOST_ROWS = 8
_IN_REGION = 2  # what the region counts for a price to be near; its basis counts one
EBS_USD = 0.08  # a GB and month of a gp3 volume, us-east-1: gitlab-org docker-machine, merge request 45
EBS_MB_S = (
    125 * 1.048576
)  # read from a gp3 volume at this price: saisci.com, gp3 Throughput Explained, 2021-01-13
_MONTH = 730.0  # hours
_DISKS = Path("data/instances.csv")
_MINE_COLUMNS = [
    *KEY, "as_of", "accelerator", "accelerators", "usd_per_hour", "hours_low", "hours_high", "hours_at_least",
    "usd_low", "usd_high", "usd_at_least", "price_ratio", "kind", "rests_on", "why_not", "family", "training",
    "support", "disk_gb", "packed_gb", "usd_volume",
]  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A training run: its images, epochs, and the images that are scored after each epoch; ``speed``:
    training images/s of the whole instance ``gpu``."""

    network: Network
    work: Work
    images: int
    epochs: int
    scored: int
    gpu: str
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.speed is not None and not 0 < self.speed < math.inf:
            raise UserError(f"--gpu-speed: {self.speed:g} is no speed; give images per second")

    @property
    def passes(self) -> float:
        """Training images in all epochs, a scored one as a third of one."""
        return self.epochs * (self.images + self.scored * FORWARD_SHARE)

    @property
    def packed_gb(self) -> float:
        """GB of all images as packed: a byte per pixel."""
        return (self.images + self.scored) * self.network.pixels**2 / 1e9


def work_for(
    architecture: str, setting: Setting, recorded: Path, cache: Path, say: Callable[[str], None]
) -> Work:
    """The work of a timm network: from recorded audits, else captured here (which takes torch_xla).

    Raises UserError for an unknown name and NotKnown for a network that cannot be traced at this size.
    """
    must_be_architectures([architecture], "name it as timm does")
    key = architecture, setting.pixels, setting.precision
    try:
        return work_of(read_audit(recorded), *key)
    except NotKnown:
        return work_of(survey([architecture], [setting], cache, say), *key)


def published_kind(architecture: str, recorded: Path, cache: Path, say: Callable[[str], None]) -> str:
    """The kind of a timm network, for which a cost ratio may be published: cnn, transformer or depthwise.

    The first two and ``dataset/network`` are returned as they are. UserError for any other name.
    """
    names = ARCHITECTURES.read_text(encoding="utf-8").split()
    if architecture in PUBLISHED_RATIOS or "/" in architecture:
        return architecture
    if architecture not in names:
        raise UserError(
            f"architecture '{architecture}': no published cost ratio"
            f"{nearest(architecture, [*PUBLISHED_RATIOS, *names])} (known: {', '.join(PUBLISHED_RATIOS)}, "
            "names of timm, DATASET/NETWORK of your cells); give --ratio LOW HIGH"
        )
    kind = work_for(architecture, Setting(), recorded, cache, say).kind
    if kind in PUBLISHED_RATIOS:
        say(f"{architecture} is taken as a {kind}, for which a cost ratio is published")
    return kind


def mine_table(training: Training, study: Study, prices: pd.DataFrame, recorded: Path) -> pd.DataFrame:
    """Hours and USD of ``training`` on at most :data:`_MOST_ROWS` instances that fit it.

    The named GPU instance comes first, then the cheapest with several of its GPUs, then Trainium (what AWS
    supports before what it no longer does), then the region's cheapest instance of each other GPU with no
    more accelerators than the named one. Hours are at measured speeds (``kind`` given or proxy), else between
    two scalings of timm's published one, else at least those at the documented peak, on Trainium without
    compilation. ``price_ratio``: how much faster than the named GPU it must be to cost the same; NaN where
    the prices differ in region or basis. ``usd_*`` include ``usd_volume``, a network volume for the packed
    images over these hours, where the instance's own disk (``disk_gb``, NaN: not known) does not hold them.
    """
    quote = price(prices, training.gpu, study.prices.region, study.prices.basis, study.prices.as_of)
    must_be_gpu(prices, training.gpu)
    _must_be_possible(training, quote)
    rates, speeds = _fitting(prices, study.prices, quote, training.network), measured_speeds(study, recorded)
    disks = read_csv(_DISKS).set_index("instance")["disk_gb"]
    rows = [_row(training, rate, quote, speeds, disks) for rate in rates.to_dict("records")]
    return pd.DataFrame(rows).reindex(columns=_MINE_COLUMNS)


def must_be_gpu(prices: pd.DataFrame, instance: str) -> None:
    """Raise UserError for an instance without any price, or without a GPU whose peaks are documented."""
    gpu = DEVICES.get(accelerator_of(prices, instance))
    if gpu is None or gpu.family != "gpu":
        raise UserError(
            f"--gpu: {instance} has no GPU with documented peaks; name one that has, such as g5.xlarge"
        )


def priced_elsewhere(training: Training, study: Study, prices: pd.DataFrame) -> list[str]:
    """The cheapest instance of each GPU that fits the job and has a price, but none in the study's region."""
    pricing, gpus = study.prices, {name for name, device in DEVICES.items() if device.family == "gpu"}
    quote = price(prices, training.gpu, pricing.region, pricing.basis, pricing.as_of)
    rows = _candidates(prices, pricing, quote, training.network)
    away = rows["accelerator"].isin(gpus) & (rows["near"] < _IN_REGION) & ~rows["named"] & ~rows["several"]
    return [*rows.loc[away, "instance"]]


def _fitting(prices: pd.DataFrame, pricing: Pricing, quote: pd.Series, network: Network) -> pd.DataFrame:
    """A price for each instance to show: at the study's region and basis where the table has it."""
    rows = _candidates(prices, pricing, quote, network)
    return rows[rows["named"] | rows["neuron"] | (rows["near"] >= _IN_REGION)].head(_MOST_ROWS)


def _candidates(prices: pd.DataFrame, pricing: Pricing, quote: pd.Series, network: Network) -> pd.DataFrame:
    """The best price of each accelerator that fits the network, and of several of the named one."""
    devices = prices["accelerator"].map(DEVICES)
    if not _trains(gpu := DEVICES[quote["accelerator"]], network.precision):
        raise UserError(
            f"--gpu {quote['instance']}: {gpu.name} has no {network.precision}; give --precision fp32"
        )
    fits = devices.map(lambda device: _trains(device, network.precision), na_action="ignore").eq(True)
    rows = newest(by_the_hour(prices[fits]), pricing.as_of)
    rows = rows.assign(
        several=(rows["accelerator"] == quote["accelerator"])
        & (rows["accelerators"] > quote["accelerators"]),
        named=rows["instance"] == quote["instance"],
        neuron=rows["accelerator"].map(lambda name: DEVICES[name].family == "neuron"),
        trains=rows["accelerator"].map(lambda name: DEVICES[name].training == "yes"),
        near=(rows["region"] == pricing.region).astype(int) * _IN_REGION + (rows["basis"] == pricing.basis),
        region=regions(rows),
    )
    rows = rows[rows["several"] | (rows["accelerators"] <= quote["accelerators"])]
    order = ["named", "several", "neuron", "trains", "near", "usd_per_hour"]
    rows = rows.sort_values(order, ascending=[False] * 5 + [True], kind="stable")
    return rows.drop_duplicates(["accelerator", "several"])


def _trains(device: Any, precision: str) -> bool:
    return device.training != "inference" and (precision != "bf16" or device.half == "bf16")


def _must_be_possible(training: Training, quote: pd.Series) -> None:
    """Raise UserError for a speed above what the documented peak of the named GPU lets through."""
    gpu, precision = DEVICES[quote["accelerator"]], training.network.precision
    most = ceiling(training.work._replace(bytes=None), gpu, int(quote["cores"]), precision)
    if training.speed and training.speed > most:
        faster = "; if TF32 was on, measure without; if it was bf16, give --precision bf16"
        raise UserError(
            f"--gpu-speed: {training.speed:g} on {training.gpu} is {training.speed / most:.3g} "
            f"times what the documented {precision} peak of {gpu.name} lets through: correct it"
            f"{faster if precision == 'fp32' else ''}"
        )


def _row(
    training: Training, rate: dict[Any, Any], quote: pd.Series, speeds: list[Speed], disks: pd.Series
) -> dict[str, Any]:
    """The row of an instance: hours at a speed, or at least at the peak, or the reason for none."""
    alike = (rate["region"], rate["basis"]) == (quote["region"], quote["basis"])
    row = rate | {"price_ratio": rate["usd_per_hour"] / quote["usd_per_hour"] if alike else math.nan}
    device, cores, network = DEVICES[rate["accelerator"]], int(rate["cores"]), training.network
    row |= {"family": device.family, "training": device.training, "support": device.support}
    if training.speed and rate["accelerator"] == quote["accelerator"]:
        times = rate["accelerators"] / quote["accelerators"]
        hours = training.passes / (training.speed * times) / 3600
        made: dict[str, Any] = {"hours_low": hours, "hours_high": hours}
        made |= {"kind": "given", "rests_on": "your speed"}
        if not rate["named"]:
            made |= {"kind": "projected", "rests_on": f"your speed, times {times:g}"}
    else:
        supported = device.training == "yes"
        fastest = ceiling(training.work, device, cores, network.precision) if supported else None
        # timm's are under autocast: of true fp32 they say nothing.
        half = network.precision != "fp32"
        timed = published_speed(network.architecture, network.pixels, device) if half else None
        made = hours_of_training(training.passes, network, device.chip, cores, speeds, fastest, timed)
    disk = float(disks.get(rate["instance"], math.nan))
    row |= {"disk_gb": disk, "packed_gb": training.packed_gb}
    longest = made.get("hours_high", made.get("hours_at_least", math.nan))
    volume = EBS_USD * training.packed_gb / _MONTH if disk < training.packed_gb else 0.0  # USD per hour
    row["usd_volume"] = math.nan if math.isnan(disk) else volume and volume * longest
    return row | made | dollars(made, rate["usd_per_hour"] + volume)
