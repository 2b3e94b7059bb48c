"""Projected images per second where nothing was run: always a range, always labelled ``projected``.

A training image costs 3 x 2 x GMAC x 1e9 FLOP (backward is twice forward, a MAC is two FLOP) and moves
``bytes`` through memory. A device does at best ``efficiency x peak`` FLOP/s and its bandwidth in bytes/s;
efficiencies come from runs elsewhere with the same kind of network in the same precision: a share of a bf16
peak says nothing about fp32. Nothing here is ever a measurement.
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

# A single device's efficiency is taken as known to this factor only, up and down. An assumption; a test holds
# it above the largest factor between our own cells of one kind on one processor, over networks and sizes.
SPREAD = 4.0
MIN_DEVICES = 3  # leaving one device out needs two others
BACKTEST_COLUMNS = [
    "device", "family", "kind", "precision", "measured", "share", "low", "high", "error", "method", "source",
]  # fmt: skip


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
    """Share of a device's peak in ``precision`` that a kind of network reached, and who says so."""

    kind: str
    share: float
    device: str
    source: str
    family: str = "gpu"
    precision: str = "fp32"


_ONE_CORE = (
    "published: scttfrdmn/aws-trainium-tutorial-for-research @2026-07-08, one NeuronCore of trn1.2xlarge, "
    "Neuron 2.30, batch 64; precision not stated: its script casts nothing, nor does Neuron 2.30 by default, "
    "so taken as fp32"
)
PUBLISHED = (
    Efficiency("cnn", 1.07 / 23, "Trainium", f"{_ONE_CORE}; small CNN at 64 px, 1.07 TFLOP/s", "neuron"),
    Efficiency("transformer", 5.51 / 23, "Trainium", f"{_ONE_CORE}; ViT, 5.51 TFLOP/s", "neuron"),
)


@dataclass(frozen=True)
class Measured:
    """A speed that a cell did reach: images per second over ``cores`` cores of a device."""

    device: Device
    cores: int
    work: Work
    images_per_second: float
    source: str
    precision: str = "fp32"

    def efficiency(self) -> Efficiency:
        """The share of the peak of its cores that this cell reached."""
        peak = _peak(self.device, self.precision)
        share = self.images_per_second * self.work.flop / (self.cores * peak * 1e12)
        return Efficiency(
            self.work.kind, share, self.device.name, self.source, self.device.family, self.precision
        )


def measured_of(record: Record, work: Work) -> Measured | None:
    """The speed that a record reached; none without a steady state or a documented peak in its precision."""
    found = device_of_host(record.host.device)
    speed = record.timing.images_per_second
    precision = str(record.recipe.get("precision", "fp32"))
    if found is None or not speed or found.peak(precision) is None:
        return None
    return Measured(found, record.host.devices_used, work, speed, f"cell {record.cell}", precision)


def _peak(target: Device, precision: str) -> float:
    if (peak := target.peak(precision)) is None:
        raise UserError(no_peak(target, precision))
    return peak


def no_peak(target: Device, precision: str) -> str:
    """The sentence for a device without a documented peak in ``precision``."""
    return f"not projected: no documented {precision} peak of {target.name}"


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


def _usable(kind: str, family: str, precision: str, known: Iterable[Efficiency]) -> list[Efficiency]:
    """The efficiencies of the same kind of network, family of devices and precision."""
    wanted = (kind, family, precision)
    return [o for o in known if (o.kind, o.family, o.precision) == wanted and o.share > 0]


def project(
    work: Work, target: Device, cores: int, known: Iterable[Efficiency], precision: str = "fp32"
) -> Projection:
    """Images per second of ``work`` on ``cores`` cores of ``target``, from efficiencies ``known``.

    Efficiencies of other kinds of network, families of devices and precisions are ignored; UserError when
    none is left, or when ``target`` has no documented peak in ``precision``. The range is that of the
    efficiencies; those of a single device are taken as known to a factor of :data:`SPREAD` only. The high
    end never passes the peak or what memory bandwidth allows.
    """
    usable = _usable(work.kind, target.family, precision, known)
    if not usable:
        raise UserError(nothing_known(work.kind, target.family, precision))
    if cores < 1:
        raise UserError(f"{cores} cores: a run occupies one or more")
    assumptions = [
        "speed is proportional to cores",
        "backward costs twice forward",
        f"the share of the {precision} peak carries over between devices and image sizes",
    ]
    shares, devices = [o.share for o in usable], {o.device for o in usable}
    low, high = min(shares), max(shares)
    if len(devices) == 1:
        low, high = low / SPREAD, high * SPREAD
        assumptions.append(f"one device's efficiency only, taken as known to a factor of {SPREAD:g}")
    low, high = min(low, 1.0), min(high, 1.0)
    per_share = cores * _peak(target, precision) * 1e12 / work.flop
    ends = [low * per_share, high * per_share]
    if work.bytes is None or target.bandwidth_gb_s is None:
        assumptions.append("memory bandwidth not considered: bytes per image or the device's are not known")
    else:
        limit = cores * target.bandwidth_gb_s * 1e9 / work.bytes
        assumptions.append("at most what the documented memory bandwidth lets through")
        ends = [min(end, limit) for end in ends]
    source = target.fp32_source if precision == "fp32" else target.source
    sources = (f"peak: {source}", *(f"{o.share:.2%} of peak: {o.source}" for o in usable))
    return Projection(ends[0], ends[1], sources, tuple(assumptions))


def nothing_known(kind: str, family: str, precision: str) -> str:
    """The sentence for a network, a family of devices and a precision that no efficiency is known for."""
    where = {"neuron": "a NeuronCore", "gpu": "a GPU", "cpu": "a CPU"}[family]
    return f"not projected: no efficiency of a {kind} network on {where} in {precision} is known"


def why_not(work: Work, target: Device, known: Sequence[Efficiency], precision: str) -> str:
    """Why ``work`` cannot be projected on ``target``; empty where it can."""
    if not _usable(work.kind, target.family, precision, known):
        return nothing_known(work.kind, target.family, precision)
    return no_peak(target, precision) if target.peak(precision) is None else ""


def backtest(measured: Sequence[Measured]) -> pd.DataFrame:
    """How wrong the projection is where something was run: one row per measurement.

    Columns: device, its family, network kind, precision, ``measured``, ``low``, ``high`` (images/s),
    ``share`` of the peak, ``error`` (middle of the range, geometric, over measured, minus one), ``method``
    and source. With three devices or more of a family each is left out of its own projection; with fewer,
    each network and size is left out of what its own device reached, because a run's own efficiency only
    gives back what was measured.
    """
    rows = []
    groups: dict[tuple[str, str, str], list[Measured]] = {}
    for run in measured:
        groups.setdefault((run.work.kind, run.device.family, run.precision), []).append(run)
    for (kind, family, precision), group in groups.items():
        across = len({run.device.name for run in group}) >= MIN_DEVICES
        for run in group:
            others = [other.efficiency() for other in group if _left(other, run, across)]
            made = project(run.work, run.device, run.cores, others, precision) if others else None
            low, high = (made.low, made.high) if made else (math.nan, math.nan)
            rows.append(
                {
                    "device": run.device.name, "family": family, "kind": kind, "precision": precision,
                    "measured": run.images_per_second, "share": run.efficiency().share, "low": low,
                    "high": high, "error": math.sqrt(low * high) / run.images_per_second - 1,
                    "method": _method(across, made is not None), "source": run.source,
                }
            )  # fmt: skip
    return pd.DataFrame(rows, columns=BACKTEST_COLUMNS)


def _left(other: Measured, run: Measured, across: bool) -> bool:
    """Whether ``other`` may stand in the projection of ``run``."""
    if across:
        return other.device.name != run.device.name
    return other.device.name == run.device.name and other.work.gmacs != run.work.gmacs


def _method(across: bool, tested: bool) -> str:
    if across:
        return "leave one device out"
    if tested:
        return "leave one network and size out, same device"
    return "no error: nothing else of this kind measured on this device"


def projections(
    work: Work, rows: pd.DataFrame, known: Sequence[Efficiency], precision: str = "fp32"
) -> pd.DataFrame:
    """Projected speed and cost of ``work`` on every instance of price ``rows``, all its cores used.

    Columns: instance, region, basis, as_of, cores, ``low``, ``high`` (images/s), ``usd_per_million_low``,
    ``usd_per_million_high``, kind (``projected``), sources, assumptions. Instances without an accelerator,
    with one whose peak in ``precision`` is not documented, or without any known efficiency, have no row.
    """
    columns = [
        "instance", "region", "basis", "as_of", "cores", "low", "high", "usd_per_million_low",
        "usd_per_million_high", "kind", "sources", "assumptions",
    ]  # fmt: skip
    table = []
    for row in rows.itertuples():
        target = DEVICES.get(row.accelerator)
        if target is None or why_not(work, target, known, precision):
            continue
        made = project(work, target, int(row.cores), known, precision)
        table.append(
            (
                row.instance, row.region, row.basis, row.as_of or UNDATED, row.cores, made.low, made.high,
                *made.usd_per_million_images(row.usd_per_hour), made.kind, "; ".join(made.sources),
                "; ".join(made.assumptions),
            )
        )  # fmt: skip
    return pd.DataFrame(table, columns=columns)
