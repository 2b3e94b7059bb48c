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

from cxrbench.cost.prices import UNDATED
from cxrbench.errors import UserError, nearest

if TYPE_CHECKING:
    from cxrbench.evidence import Record

SPREAD = 2.0  # a single efficiency is taken as known to this factor only, up and down
MIN_DEVICES = 3  # leaving one device out needs two others


@dataclass(frozen=True)
class Device:
    """Documented dense bf16 (T4, V100: fp16) peak of one core, and its memory bandwidth if known."""

    name: str
    peak_tflops: float
    bandwidth_gb_s: float | None
    source: str


_TITAN = "pytorch/torchtitan torchtitan/tools/utils.py @02581674, after NVIDIA's data sheet"
_LIGHTNING = (
    "Lightning-AI/pytorch-lightning fabric/utilities/throughput.py @1526f840, after NVIDIA's data sheet"
)
_NKI = "AWS Neuron SDK docs, NKI architecture guide; trn1-arch: a core has half of its chip's 820 GiB/s"
_TRN2 = "AWS Neuron SDK docs, trn2-arch: the instance's bf16 peak over its 128 NeuronCores"
_A10G = "baseten.co, NVIDIA A10 vs A10G; Lightning's table has the A10's 125 TFLOP/s for it"
_H100 = f"{_TITAN}; bandwidth: CloudExpat, AWS Trainium vs NVIDIA H100"
DEVICES = {
    one.name: one
    for one in (
        Device("Trainium", 92.0, 820 * 1.073741824 / 2, _NKI),
        Device("Inferentia2", 92.0, 820 * 1.073741824 / 2, _NKI),
        Device("Trainium2", 10700 / 128, None, _TRN2),
        Device("A10G", 70.0, 600.0, _A10G),
        Device("T4", 65.0, None, _LIGHTNING),
        Device("V100", 125.0, None, _LIGHTNING),
        Device("L4", 121.0, None, _LIGHTNING),
        Device("L40S", 362.0, None, _TITAN),
        Device("A100-40GB", 312.0, None, _TITAN),
        Device("A100-80GB", 312.0, None, _TITAN),
        Device("H100", 989.0, 3350.0, _H100),
        Device("H200", 989.0, None, _TITAN),
    )
}


_KINDS = {"NC_v2": "Trainium", "NC_v3": "Trainium2"}  # what the Neuron runtime calls its cores


def device(name: str) -> Device:
    """The documented peaks of an accelerator as prices.csv names it; UserError when there are none."""
    if name not in DEVICES:
        raise UserError(
            f"no documented peak for '{name}'{nearest(name, DEVICES)} (known: {', '.join(DEVICES)}); "
            "add it with its source to cost/projection.py"
        )
    return DEVICES[name]


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


_ONE_CORE = (
    "published: scttfrdmn/aws-trainium-tutorial-for-research @2026-07-08, one NeuronCore of trn1.2xlarge, "
    "Neuron 2.30, batch 64"
)
PUBLISHED = (
    Efficiency("cnn", 1.07 / 92, "Trainium", f"{_ONE_CORE}, small CNN at 64 px, 1.07 TFLOP/s"),
    Efficiency("transformer", 5.51 / 92, "Trainium", f"{_ONE_CORE}, ViT, 5.51 TFLOP/s"),
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
        return Efficiency(self.work.kind, share, self.device.name, self.source)


def device_of_host(named: str) -> Device | None:
    """The device that a driver calls ``named`` (``NVIDIA A100-SXM4-40GB``); none without documented peaks."""
    for alias, name in _KINDS.items():
        if re.search(rf"\b{alias}d?\b", named):
            return DEVICES[name]
    for name, one in DEVICES.items():
        if all(re.search(rf"\b{part}\b", named) for part in name.split("-")):
            return one
    return None


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

    Efficiencies of other kinds of network are ignored; UserError when none is left. The high end never
    passes what the memory bandwidth allows.
    """
    usable = [one for one in known if one.kind == work.kind and one.share > 0]
    if not usable:
        raise UserError(f"no efficiency of a '{work.kind}' is known anywhere: nothing to project from")
    if cores < 1:
        raise UserError(f"{cores} cores: a run occupies one or more")
    assumptions = ["speed is proportional to cores", "backward costs twice forward"]
    low, high = min(one.share for one in usable), max(one.share for one in usable)
    if len({one.share for one in usable}) == 1:
        low, high = low / SPREAD, high * SPREAD
        assumptions.append(f"one efficiency only, taken as known to a factor of {SPREAD:g}")
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


def backtest(measured: Sequence[Measured]) -> pd.DataFrame:
    """How wrong the projection is where something was run: one row per measurement.

    Columns: device, network kind, ``measured``, ``low``, ``high`` (images/s), ``error`` (middle of the
    range, geometric, over measured, minus one) and ``method``. With three devices or more each is left
    out of its own projection; with fewer its own efficiency is in, and ``method`` says so.
    """
    rows = []
    for kind in dict.fromkeys(one.work.kind for one in measured):
        group = [one for one in measured if one.work.kind == kind]
        leave_out = len({one.device.name for one in group}) >= MIN_DEVICES
        for one in group:
            others = [o for o in group if not leave_out or o.device.name != one.device.name]
            made = project(one.work, one.device, one.cores, [o.efficiency() for o in others])
            rows.append(
                {
                    "device": one.device.name, "kind": kind, "measured": one.images_per_second,
                    "low": made.low, "high": made.high,
                    "error": math.sqrt(made.low * made.high) / one.images_per_second - 1,
                    "method": "leave one device out" if leave_out else "in sample: fewer than three devices",
                }
            )  # fmt: skip
    columns = ["device", "kind", "measured", "low", "high", "error", "method"]
    return pd.DataFrame(rows, columns=columns)


def projections(work: Work, rows: pd.DataFrame, known: Sequence[Efficiency]) -> pd.DataFrame:
    """Projected speed and cost of ``work`` on every instance of price ``rows``, all its cores used.

    Columns: instance, region, basis, as_of, cores, ``low``, ``high`` (images/s), ``usd_per_million_low``,
    ``usd_per_million_high``, kind (``projected``), sources, assumptions. Instances without an accelerator,
    or with one whose peak is not documented, have no row.
    """
    columns = [
        "instance", "region", "basis", "as_of", "cores", "low", "high", "usd_per_million_low",
        "usd_per_million_high", "kind", "sources", "assumptions",
    ]  # fmt: skip
    table = []
    for row in rows.itertuples():
        if row.accelerator not in DEVICES:
            continue
        made = project(work, DEVICES[row.accelerator], int(row.cores), known)
        table.append(
            (
                row.instance, row.region, row.basis, row.as_of or UNDATED, row.cores, made.low, made.high,
                *made.usd_per_million_images(row.usd_per_hour), made.kind, "; ".join(made.sources),
                "; ".join(made.assumptions),
            )
        )  # fmt: skip
    return pd.DataFrame(table, columns=columns)
