"""Projected images per second where nothing was run: always a range, always labelled ``projected``.

A training image costs 3 x 2 x GMAC x 1e9 FLOP (backward is twice forward, a MAC is two FLOP) and moves
``bytes`` through memory. A device does at best ``efficiency x peak`` FLOP/s and its bandwidth in bytes/s;
efficiencies come from runs elsewhere with the same kind of network. Nothing here is ever a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from cxrbench.cost.devices import DEVICES, Device, device_of_host
from cxrbench.cost.prices import UNDATED
from cxrbench.errors import UserError

if TYPE_CHECKING:
    from cxrbench.evidence import Record

SPREAD = 2.0  # a single efficiency is taken as known to this factor only, up and down
MIN_DEVICES = 3  # leaving one device out needs two others


_NETWORKS = {  # timm's family names, by how they load a device
    "cnn": ("resnet", "resnext", "wide_resnet", "densenet", "vgg", "regnetx", "regnety"),
    "depthwise": ("convnext", "mobilenet", "efficientnet", "tf_efficientnet", "rexnet", "mnasnet"),
    "transformer": ("vit", "deit", "swin", "beit", "eva"),
}


def kind_of(architecture: str) -> str | None:
    """cnn, depthwise or transformer, by timm's name of a network; none when the name is not known."""
    for kind, families in _NETWORKS.items():
        if re.match(rf"({'|'.join(families)})[\dv_]", architecture):
            return kind
    return None


@dataclass(frozen=True)
class Work:
    """One training image of a network: forward GMAC, bytes moved per image (none: unknown), and kind.

    ``kind`` groups networks that load a device alike: cnn, depthwise, transformer.
    """

    kind: str
    gmacs: float
    bytes: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gmacs) and self.gmacs > 0 and (self.bytes is None or self.bytes > 0)):
            raise UserError(f"{self.gmacs} GMAC and {self.bytes} bytes per image: both must be above zero")

    @property
    def flop(self) -> float:
        """FLOP of one training image: forward, and backward at twice that."""
        return 6e9 * self.gmacs


@dataclass(frozen=True)
class Efficiency:
    """Share of a device's peak that a kind of network reached somewhere, and who says so."""

    kind: str
    share: float
    device: str
    source: str
    family: str = "gpu"


_ONE_CORE = (
    "published: scttfrdmn/aws-trainium-tutorial-for-research @2026-07-08, one NeuronCore of trn1.2xlarge, "
    "Neuron 2.30, batch 64"
)
PUBLISHED = (
    Efficiency("cnn", 1.07 / 92, "Trainium", f"{_ONE_CORE}, small CNN at 64 px, 1.07 TFLOP/s", "neuron"),
    Efficiency("transformer", 5.51 / 92, "Trainium", f"{_ONE_CORE}, ViT, 5.51 TFLOP/s", "neuron"),
)


@dataclass(frozen=True)
class Measured:
    """A speed that a cell did reach: images per second over ``cores`` cores of a device."""

    device: Device
    cores: int
    work: Work
    images_per_second: float
    source: str

    def efficiency(self) -> Efficiency:
        """The share of the peak of its cores that this cell reached."""
        share = self.images_per_second * self.work.flop / (self.cores * self.device.peak_tflops * 1e12)
        return Efficiency(self.work.kind, share, self.device.name, self.source, self.device.family)


def measured_of(record: Record, work: Work) -> Measured | None:
    """The speed that a record reached; none without a steady state or a device with documented peaks."""
    found = device_of_host(record.host.device)
    speed = record.timing.images_per_second
    if found is None or not speed:
        return None
    return Measured(found, record.host.devices_used, work, speed, f"cell {record.cell}")


@dataclass(frozen=True)
class Projection:
    """Images per second as a range; ``kind`` is always the word ``projected``."""

    low: float
    high: float
    sources: tuple[str, ...]
    assumptions: tuple[str, ...]
    kind: str = "projected"

    def usd_per_million_images(self, usd_per_hour: float) -> tuple[float, float]:
        """USD per million training images at a price of the instance: from the fast end to the slow one."""
        return usd_per_hour / self.high / 3600 * 1e6, usd_per_hour / self.low / 3600 * 1e6


def project(work: Work, target: Device, cores: int, known: Iterable[Efficiency]) -> Projection:
    """Images per second of ``work`` on ``cores`` cores of ``target``, from efficiencies ``known``.

    Efficiencies of other kinds of network and of other families of devices are ignored; UserError when
    none is left. The range is that of the efficiencies; those of a single device are taken as known to a
    factor of :data:`SPREAD` only. The high end never passes the peak or what memory bandwidth allows.
    """
    usable = [o for o in known if o.kind == work.kind and o.family == target.family and o.share > 0]
    if not usable:
        raise UserError(nothing_known(work.kind, target.family))
    if cores < 1:
        raise UserError(f"{cores} cores: a run occupies one or more")
    assumptions = [
        "speed is proportional to cores",
        "backward costs twice forward",
        "the share of the peak carries over between devices, image sizes and precisions",
    ]
    low, high = min(one.share for one in usable), max(one.share for one in usable)
    if len({one.device for one in usable}) == 1:
        low, high = low / SPREAD, high * SPREAD
        assumptions.append(f"one device's efficiency only, taken as known to a factor of {SPREAD:g}")
    low, high = min(low, 1.0), min(high, 1.0)
    per_share = cores * target.peak_tflops * 1e12 / work.flop
    ends = [low * per_share, high * per_share]
    if work.bytes is None or target.bandwidth_gb_s is None:
        assumptions.append("memory bandwidth not considered: bytes per image or the device's are not known")
    else:
        limit = cores * target.bandwidth_gb_s * 1e9 / work.bytes
        assumptions.append(f"at most {limit:.3g} images/s by memory bandwidth")
        ends = [min(end, limit) for end in ends]
    sources = (f"peak: {target.source}", *(f"{one.share:.2%} of peak: {one.source}" for one in usable))
    return Projection(ends[0], ends[1], sources, tuple(assumptions))


def nothing_known(kind: str, family: str) -> str:
    """The sentence for a network and a family of devices that no efficiency is known for."""
    where = {"neuron": "a NeuronCore", "gpu": "a GPU", "cpu": "a CPU"}[family]
    return f"not projected: no efficiency of a {kind} network on {where} is known"


def backtest(measured: Sequence[Measured]) -> pd.DataFrame:
    """How wrong the projection is where something was run: one row per measurement.

    Columns: device, its family, network kind, ``measured``, ``low``, ``high`` (images/s), ``error`` (middle
    of the range, geometric, over measured, minus one) and ``method``. With three devices or more of a family
    each is left out of its own projection; with two the error is in sample, and with one there is none,
    because a device's own efficiency only gives back what was measured. ``method`` says which.
    """
    rows = []
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault((one.work.kind, one.device.family), []).append(one)
    for group in groups.values():
        devices = len({one.device.name for one in group})
        for one in group:
            others = [o for o in group if devices < MIN_DEVICES or o.device.name != one.device.name]
            made = project(one.work, one.device, one.cores, [o.efficiency() for o in others])
            middle = math.sqrt(made.low * made.high)
            rows.append(
                {
                    "device": one.device.name, "family": one.device.family, "kind": one.work.kind,
                    "measured": one.images_per_second,
                    "low": made.low if devices > 1 else math.nan,
                    "high": made.high if devices > 1 else math.nan,
                    "error": middle / one.images_per_second - 1 if devices > 1 else math.nan,
                    "method": _method(devices),
                }
            )  # fmt: skip
    columns = ["device", "family", "kind", "measured", "low", "high", "error", "method"]
    return pd.DataFrame(rows, columns=columns)


def _method(devices: int) -> str:
    if devices >= MIN_DEVICES:
        return "leave one device out"
    if devices == 2:
        return "in sample: two devices are too few to leave one out"
    return "no error: one device only, too few to leave one out"


def projections(work: Work, rows: pd.DataFrame, known: Sequence[Efficiency]) -> pd.DataFrame:
    """Projected speed and cost of ``work`` on every instance of price ``rows``, all its cores used.

    Columns: instance, region, basis, as_of, cores, ``low``, ``high`` (images/s), ``usd_per_million_low``,
    ``usd_per_million_high``, kind (``projected``), sources, assumptions. Instances without an accelerator,
    with one whose peak is not documented, or of a family without any known efficiency, have no row.
    """
    columns = [
        "instance", "region", "basis", "as_of", "cores", "low", "high", "usd_per_million_low",
        "usd_per_million_high", "kind", "sources", "assumptions",
    ]  # fmt: skip
    table = []
    for row in rows.itertuples():
        target = DEVICES.get(row.accelerator)
        if target is None or not any(o.kind == work.kind and o.family == target.family for o in known):
            continue
        made = project(work, target, int(row.cores), known)
        table.append(
            (
                row.instance, row.region, row.basis, row.as_of or UNDATED, row.cores, made.low, made.high,
                *made.usd_per_million_images(row.usd_per_hour), made.kind, "; ".join(made.sources),
                "; ".join(made.assumptions),
            )
        )  # fmt: skip
    return pd.DataFrame(table, columns=columns)
