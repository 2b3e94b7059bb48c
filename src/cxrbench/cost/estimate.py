"""The hours of a training: its images over a speed that was measured, else a bound from a documented peak.

A training image costs 3 x 2 x GMAC x 1e9 FLOP: backward is twice forward, a MAC is two FLOP.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.cost.devices import DEVICES, Device, device_of_host
from cxrbench.cost.published import Published
from cxrbench.evidence.record import Record, short_processor
from cxrbench.evidence.store import EvidenceStore
from cxrbench.neuron.audit import of_setting
from cxrbench.neuron.rules import Setting, facts_of
from cxrbench.study.config import Study
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED

AUDITED_BATCH = 32  # images of the step that work is counted of
FORWARD_SHARE = 1 / 3  # of the time of a training image, for one that is scored: forward alone


class NotKnown(UserError):
    """Why there are no hours: no speed was measured, or the device or the work is not known."""


class Network(NamedTuple):
    """What a speed is of: a timm name, the side of the images, a precision."""

    architecture: str
    pixels: int
    precision: str


class Work(NamedTuple):
    """One training image of a network: its kind, forward GMAC, and bytes moved per image (none: unknown);
    ``step_gib``: what a step of :data:`AUDITED_BATCH` images keeps on the device, at least."""

    kind: str
    gmac: float
    bytes: float | None = None
    step_gib: float | None = None

    @property
    def flop(self) -> float:
        """FLOP of one training image: forward, and backward at twice that."""
        return 6e9 * self.gmac


class Speed(NamedTuple):
    """Images/s that one core of ``chip`` reached in training ``network``, a mean over seeds.

    On a processor ``chip`` is the platform and the speed that of the whole machine.
    """

    network: Network
    chip: str
    images_per_second: float
    source: str


def device_called(accelerator: str) -> Device:
    """The device for training that a table of prices calls ``accelerator``.

    NotKnown for one without documented peaks, and for one that AWS documents for inference.
    """
    if (device := DEVICES.get(accelerator)) is None:
        raise NotKnown(f"no peaks of '{accelerator}' in cost/devices.toml")
    if device.training == "inference":
        raise NotKnown(f"AWS documents {accelerator} for inference, trn1 and trn2 for training")
    return device


def ceiling(work: Work, target: Device, cores: int, precision: str) -> float:
    """The images per second that documented peak and memory bandwidth of ``cores`` cores let through.

    Raises NotKnown where no peak in this precision is documented.
    """
    if (peak := {"fp32": target.tflops_fp32, "bf16": target.tflops}.get(precision)) is None:
        raise NotKnown(f"no {precision} peak of {target.name} in cost/devices.toml")
    fastest = cores * peak * 1e12 / work.flop
    if work.bytes is None or target.bandwidth_gb_s is None:
        return fastest
    return min(fastest, cores * target.bandwidth_gb_s * 1e9 / work.bytes)


def equal_shares(work: Work, precision: str, chip: Mapping[Any, Any], gpu: Mapping[Any, Any]) -> float | None:
    """The USD of an image on ``chip`` over those on ``gpu``, each at its own roofline.

    The two are prices with accelerator and cores. None where a peak, a bandwidth or the least traffic of a
    step is not documented: without traffic both would be at their peaks, which memory seldom lets through.
    """
    usd = []
    for rate in (chip, gpu):
        device = DEVICES[rate["accelerator"]]
        if device.bandwidth_gb_s is None or work.bytes is None:
            return None
        try:
            usd.append(rate["usd_per_hour"] / ceiling(work, device, int(rate["cores"]), precision))
        except NotKnown:
            return None
    return float(usd[0] / usd[1])


def hours_of_training(
    images: float,
    network: Network,
    chip: str,
    cores: int,
    speeds: Iterable[Speed],
    fastest: float | None,
    published: Published | None = None,
) -> dict[str, Any]:
    """The hours of ``images`` training images, with what they rest on.

    ``hours_low`` and ``hours_high`` are at the speeds measured with this network on this chip, else at a
    ``published`` speed that was scaled. Without one ``why_not`` says so, and ``hours_at_least`` are those at
    ``fastest`` images per second, where given.
    """
    measured = [speed for speed in speeds if (speed.network, speed.chip) == (network, chip)]
    if measured:
        hours = [images / (speed.images_per_second * cores) / 3600 for speed in measured]
        sources = "; ".join(speed.source for speed in measured)
        return {"hours_low": min(hours), "hours_high": max(hours), "kind": "proxy", "rests_on": sources}
    if published:
        ends = (images / (speed * cores) / 3600 for speed in (published.high, published.low))
        hours_low, hours_high = (float(hours) for hours in ends)
        scaled = "timm, scaled" + (f", times {cores}" if cores > 1 else "")
        return {
            "hours_low": hours_low, "hours_high": hours_high, "kind": "projected", "rests_on": scaled
        }  # fmt: skip
    bound = {"hours_at_least": images / fastest / 3600, "kind": "projected"} if fastest else {}
    return {"why_not": f"no speed of this network, size and precision was measured on {chip}"} | bound


def dollars(row: dict[str, Any], usd_per_hour: float) -> dict[str, float]:
    """The USD of every number of hours in ``row``: ``usd_low`` for ``hours_low``."""
    hours = {name: value for name, value in row.items() if name.startswith("hours_")}
    return {name.replace("hours", "usd"): value * usd_per_hour for name, value in hours.items()}


def measured_speeds(study: Study, recorded: Path) -> list[Speed]:
    """The steady speeds of the recorded cells on quiet machines, a mean over seeds per machine."""
    seeds: dict[tuple[Network, str, str], list[float]] = {}
    for record in EvidenceStore(recorded).records().values():
        cell, speed = Cell.parse(record.cell), record.timing.images_per_second
        chip, pixels = _chip(record, cell), _pixels(record, cell, study)
        if not chip or not speed or not pixels or record.busy:
            continue
        precision = str(record.recipe.get("precision", "fp32"))
        cores = record.host.devices_used if cell.platform in ACCELERATED else 1
        source = f"recorded on {record.host.device}"
        if cell.platform not in ACCELERATED:
            source = f"recorded on {short_processor(record.processor)}, {record.host.cores} cores"
        key = Network(cell.architecture, pixels, precision), chip, source
        seeds.setdefault(key, []).append(speed / cores)
    return [Speed(network, chip, mean(rates), source) for (network, chip, source), rates in seeds.items()]


def _chip(record: Record, cell: Cell) -> str | None:
    """The device, network and setting that a record's speed belongs to; none for an unknown device."""
    if cell.platform not in ACCELERATED:
        return cell.platform
    device = device_of_host(record.host.device)
    return device.chip if device else None


def _pixels(record: Record, cell: Cell, study: Study) -> int | None:
    """The side of a record's images; a record without it, an older one, takes it from the study."""
    settings = (record.dataset and record.dataset.settings) or {}
    dataset = study.datasets.get(cell.dataset)
    return settings.get("pixels") or (dataset.pixels if dataset else None)


def work_of(audit: pd.DataFrame, architecture: str, pixels: int, precision: str) -> Work:
    """The training work of one image; NotKnown where no audit counted it.

    Bytes are the least that a step of :data:`AUDITED_BATCH` images moves per image in this precision.
    """
    # The wanted precision first; a step in tf32 is the graph of fp32.
    settings = (Setting(pixels, AUDITED_BATCH, name) for name in (precision, "fp32", "bf16"))
    counted = pd.concat([of_setting(audit, setting) for setting in settings])
    rows = counted[counted["architecture"] == architecture].to_dict("records")
    if not rows:
        command = f"cxrbench audit NAME --pixels {pixels} --record"
        raise NotKnown(f"no audit of this network at {pixels} px (run `{command}`)")
    first = rows[0]
    if first["problem"]:
        raise NotKnown(f"the audit failed: {first['problem']}")
    least = float(first["traffic_least_mib_per_image"]) if first["precision"] == precision else 0.0
    step = facts_of(first).step_gib(AUDITED_BATCH) if first["precision"] == precision else None
    return Work(_kind(first), float(first["gmac"]), least * 2**20 if least > 0 else None, step)


def _kind(audited: dict[Any, Any]) -> str:
    """The kind of load of a network on a device, by an audit's counts: cnn, depthwise or transformer."""
    if audited["depthwise_convolutions"]:
        return "depthwise"
    return "transformer" if audited["layernorms"] > audited["batchnorms"] else "cnn"
