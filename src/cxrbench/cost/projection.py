"""Projected images per second where nothing was run: always a range, always labelled ``projected``.

A training image costs 3 x 2 x GMAC x 1e9 FLOP (backward is twice forward, a MAC is two FLOP). A device does
at best ``share x peak`` FLOP/s; shares come from runs elsewhere with the same kind of network and precision.
"""

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pandas as pd

from cxrbench.compile.audit import of_setting, read_audit
from cxrbench.compile.rules import Setting
from cxrbench.cost.devices import DEVICES, Device, device_of_host
from cxrbench.cost.prices import newest
from cxrbench.evidence.machine import host_in_words, is_busy, machine_of
from cxrbench.evidence.record import Record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.cells import Cell
from cxrbench.study.config import Study
from cxrbench.study.errors import UserError
from cxrbench.study.platform_names import ENTRIES, FAMILIES

# The shares of few devices are assumed known within this factor, up and down; a test asserts that it exceeds
# the largest factor between our own cells of one kind on one processor.
SPREAD = 4.0
AUDITED_BATCH = 32  # images of the step that work is counted of
MIN_DEVICES = 3  # whose shares are a range by themselves; leaving one device out needs two others
PROJECTION_COLUMNS = [
    "architecture", "pixels", "precision", "instance", "region", "basis", "as_of", "cores", "low", "high",
    "usd_per_million_low", "usd_per_million_high", "kind", "sources", "assumptions", "error", "why_not",
]  # fmt: skip
BACKTEST_COLUMNS = [
    "device", "machine", "measured_by", "family", "kind", "precision", "measured", "share", "low", "high",
    "error", "method", "source",
]  # fmt: skip
PROPORTIONAL = "speed is proportional to cores"  # an assumption
_MEASURED = "measured beside it"  # the source of a peak
# Published speeds that are no known share of a peak, by Speed.alike, and why.
_NOT_TAKEN = {
    ("transformer", "neuron", "bf16"): "AWS's rate of ViT-Base in training on a trn1.32xlarge is not taken: "
    "its unit is sequences a second, not images (data/reported.csv)"
}


class NotProjected(UserError):
    """Why there is no speed to project from, or to."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not projected: {reason}")


class Work(NamedTuple):
    """One training image of a network: its kind, forward GMAC, and bytes moved per image (none: unknown)."""

    kind: str
    gmac: float
    bytes: float | None = None

    @property
    def flop(self) -> float:
        """FLOP of one training image: forward, and backward at twice that."""
        return 6e9 * self.gmac


class Speed(NamedTuple):
    """The share of the peak of a device that some work reached; of our own runs also cores and images/s."""

    device: Device
    work: Work
    share: float
    source: str
    precision: str = "fp32"
    cores: int = 1
    images_per_second: float = math.nan
    machine: str = ""  # where the device is measured on several machines
    measured_by: str = ""  # benchmark or cells, with network and size

    @property
    def alike(self) -> tuple[str, str, str]:
        """What speeds have in common whose shares carry over: kind of network, family, precision."""
        return self.work.kind, self.device.family, self.precision


_ONE_CORE = (
    "published: scttfrdmn/aws-trainium-tutorial-for-research @2026-07-08, one NeuronCore of trn1.2xlarge, "
    "Neuron 2.30, batch 64; precision not stated: its script casts nothing, nor does Neuron 2.30 by default, "
    "so taken as fp32"
)
_TIMM = (
    "published: huggingface/pytorch-image-models @5e7d47ca, 2022-07-19, "
    "results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv: GeForce RTX 3090, 224 px, autocast in fp16, "
    "whose peak is that of bf16"
)
# Added to a reason: a bound on Neuron without compilation would be taken for an estimate.
_MEASURE = "; hours on Neuron include compilation, which is unknown: rent a day and measure"
_UNCOMPILED = "hours on Neuron without compilation, which took 5 to 44 minutes for one small CNN (published)"


def reached(
    device: Device, cores: int, work: Work, images_per_second: float, source: str, precision: str = "fp32"
) -> Speed:
    """Return the speed of a run over ``cores`` cores of ``device`` as a share of their peak."""
    share = images_per_second * work.flop / (cores * _peak(device, precision) * 1e12)
    return Speed(device, work, share, source, precision, cores, images_per_second)


def device_called(accelerator: str) -> Device:
    """Return the device for training that a table of prices calls ``accelerator``.

    NotProjected for an unknown one, and for one that AWS documents for inference.
    """
    if (device := DEVICES.get(accelerator)) is None:
        raise NotProjected(f"no peaks of '{accelerator}' in cost/devices.toml")
    if device.training == "inference":
        raise NotProjected(f"AWS documents {accelerator} for inference, trn1 and trn2 for training")
    return device


def _peak(device: Device, precision: str) -> float:
    if (peak := {"fp32": device.tflops_fp32, "bf16": device.tflops}.get(precision)) is None:
        raise NotProjected(f"no {precision} peak of {device.name} in cost/devices.toml")
    return peak


# Speeds and GMAC of timm are those of its own tables (GMAC: infer_gmacs of the same folder).
PUBLISHED = (
    *(
        Speed(
            DEVICES["Trainium"], Work(kind, math.nan), tflops / 23, f"{_ONE_CORE}; {what}, {tflops} TFLOP/s"
        )
        for kind, what, tflops in (("cnn", "small CNN at 64 px", 1.07), ("transformer", "ViT", 5.51))
    ),
    *(
        reached(DEVICES["RTX3090"], 1, Work(kind, gmac), speed, f"{_TIMM}; {name}, {speed} images/s", "bf16")
        for name, kind, gmac, speed in (
            ("resnet50", "cnn", 4.11, 1218.01),
            ("convnext_tiny", "depthwise", 4.47, 819.24),
        )
    ),
)


def project(
    work: Work, target: Device, cores: int, known: Iterable[Speed], precision: str = "fp32"
) -> dict[str, Any]:
    """Return ``low`` and ``high`` images per second of ``work`` on ``cores`` cores of ``target``.

    The range spans the shares of :attr:`Speed.alike` runs, widened by :data:`SPREAD` at both ends if they are
    of fewer than :data:`MIN_DEVICES` devices; it never exceeds the peak or what memory bandwidth allows.
    """
    alike = work.kind, target.family, precision
    usable = [s for s in known if s.alike == alike and s.share > 0]
    if not usable:
        where = {"neuron": "a NeuronCore", "gpu": "a GPU", "cpu": "a CPU"}[target.family]
        reason = f"no efficiency of a {work.kind} network on {where} in {precision} is known"
        raise NotProjected("; ".join([reason, *(text for key, text in _NOT_TAKEN.items() if key == alike)]))
    assumptions = [
        PROPORTIONAL,
        "backward costs twice forward",
        f"the share of the {precision} peak carries over between devices and image sizes",
    ]
    low, high = min(s.share for s in usable), max(s.share for s in usable)
    if (chips := len({s.device.chip for s in usable})) < MIN_DEVICES:
        low, high = low / SPREAD, high * SPREAD
        efficiency = "one device's efficiency" if chips == 1 else "two devices' efficiencies"
        assumptions.append(f"{efficiency} only, taken as known to a factor of {SPREAD:g}")
    if work.bytes is None or target.bandwidth_gb_s is None:
        assumptions.append("memory bandwidth not considered: bytes per image or the device's are not known")
    else:
        assumptions.append("at most what the documented memory bandwidth lets through")
    per_share = cores * _peak(target, precision) * 1e12 / work.flop
    limit = ceiling(work, target, cores, precision)
    peak = target.source_fp32 if precision == "fp32" else target.source
    return {
        "low": min(low * per_share, limit),
        "high": min(high * per_share, limit),
        "kind": "projected",
        "sources": "; ".join([f"peak: {peak}", *(f"{s.share:.2%} of peak: {s.source}" for s in usable)]),
        "assumptions": assumptions,
    }


def ceiling(work: Work, target: Device, cores: int, precision: str) -> float:
    """Return the images per second that documented peak and memory bandwidth of ``cores`` cores let through.

    Raises NotProjected where no peak in this precision is documented.
    """
    fastest = cores * _peak(target, precision) * 1e12 / work.flop
    if work.bytes is None or target.bandwidth_gb_s is None:
        return fastest
    return min(fastest, cores * target.bandwidth_gb_s * 1e9 / work.bytes)


def hours_on(
    target: Device, cores: int, work: Work, images: float, known: Iterable[Speed], precision: str
) -> dict[str, Any]:
    """Return the hours of ``images`` training images on ``cores`` cores of ``target``: at its :func:`ceiling`
    (``hours_at_peak``; none on Neuron, where it would leave out compilation) and projected, with what they
    rest on, or with ``why_not``.

    Raises NotProjected where not even the ceiling is known.
    """
    hours: dict[str, Any] = {"hours_at_peak": images / ceiling(work, target, cores, precision) / 3600}
    if neuron := target.family == "neuron":
        hours = {}
    try:
        made = project(work, target, cores, known, precision)
    except NotProjected as reason:
        return hours | {"why_not": f"{reason}{_MEASURE if neuron else ''}"}
    made["assumptions"] = [*made["assumptions"], *([_UNCOMPILED] if neuron else [])]
    ends = {"hours_low": images / made["high"] / 3600, "hours_high": images / made["low"] / 3600}
    return hours | made | ends


def dollars(row: dict[str, Any], usd_per_hour: float) -> dict[str, float]:
    """Return the USD of every number of hours in ``row``: ``usd_low`` for ``hours_low``."""
    hours = {name: value for name, value in row.items() if name.startswith("hours_")}
    return {name.replace("hours", "usd"): value * usd_per_hour for name, value in hours.items()}


def projection_table(study: Study, prices: pd.DataFrame, recorded: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return every network of the study on every instance with an accelerator, projected, or ``why_not``;
    and all assumptions made. ``error`` is what the projection of that kind of network got wrong elsewhere."""
    audit, measured = read_audit(recorded), measured_speeds(study, recorded)
    known, tested, where = [*measured, *PUBLISHED], backtest(measured), study.prices
    rates = newest(prices, where.as_of, region=where.region, basis=where.basis)
    rates = rates[rates["accelerator"] != ""]
    family = rates["accelerator"].map({name: device.family for name, device in DEVICES.items()})
    wanted = dict.fromkeys(
        (cell.architecture, study.dataset(cell.dataset).pixels, study.recipe(cell.dataset).precision)
        for cell in study.all_cells()
    )
    rows: list[dict[str, Any]] = []
    for architecture, pixels, precision in wanted:
        network = {"architecture": architecture, "pixels": pixels, "precision": precision}
        offering = {entry.family for entry in ENTRIES.values() if precision in entry.precisions}
        rated = rates[family.isna() | family.isin(offering)].to_dict("records")
        try:
            work = work_of(audit, architecture, pixels, precision)
            some = [_projected(work, rate, known, precision, tested) for rate in rated]
        except NotProjected as reason:
            some = [{"why_not": str(reason)}]
        rows += [network | row for row in sorted(some, key=lambda row: "why_not" in row)]
    table = pd.DataFrame(rows, columns=PROJECTION_COLUMNS)
    assumed = list(table["assumptions"].dropna().explode().unique())
    return table.assign(assumptions=table["assumptions"].map("; ".join, na_action="ignore")), assumed


def _projected(
    work: Work, rate: dict[Any, Any], known: list[Speed], precision: str, tested: pd.DataFrame
) -> dict[str, Any]:
    """Return the row of ``work`` on an instance."""
    row = {name: rate[name] for name in ("instance", "region", "basis", "as_of", "cores")}
    try:
        device = device_called(rate["accelerator"])
        row |= project(work, device, int(rate["cores"]), known, precision)
    except NotProjected as reason:
        return row | {"why_not": str(reason)}
    for end, other in (("low", "high"), ("high", "low")):
        row[f"usd_per_million_{end}"] = rate["usd_per_hour"] / row[other] / 3600 * 1e6
    return row | {"error": _error(work.kind, device.family, tested)}


def _error(kind: str, family: str, tested: pd.DataFrame) -> str:
    """Return what the projection of a kind of network got wrong on devices of a family, in words."""
    some = tested[(tested["kind"] == kind) & (tested["family"] == family)]
    if some.empty:
        return "not tested: no such device measured by us"
    if some["error"].isna().all():
        return "not tested: nothing to leave out"
    each = some.groupby("device")["error"].mean()
    return "; ".join(f"{name}: {error:+.0%}" for name, error in each.items())


def backtest(measured: Sequence[Speed]) -> pd.DataFrame:
    """Return how wrong the projection is where something was run: one row per measurement.

    ``error`` is the middle of the range (geometric) over what was measured, minus one.
    """
    kinds = list(dict.fromkeys(run.alike for run in measured))
    rows = []
    for run in sorted(measured, key=lambda run: kinds.index(run.alike)):
        others, method = _without(run, [other for other in measured if other.alike == run.alike])
        low = high = math.nan
        if others:
            made = project(run.work, run.device, run.cores, others, run.precision)
            low, high = made["low"], made["high"]
        error = math.sqrt(low * high) / run.images_per_second - 1
        where = run.device.name, run.machine or run.device.name, run.measured_by or run.source
        of = (*where, run.device.family, run.work.kind, run.precision, run.images_per_second)
        rows.append((*of, run.share, low, high, error, method, run.source))
    return pd.DataFrame(rows, columns=BACKTEST_COLUMNS)


def _without(run: Speed, group: list[Speed]) -> tuple[list[Speed], str]:
    """Return the speeds of ``group`` to project ``run`` from, and the rule that chose them: projecting it
    from its own share would be circular."""
    same = [other for other in group if other.device.chip == run.device.chip]
    if len({other.device.chip for other in group}) >= MIN_DEVICES:
        return [other for other in group if other not in same], "leave one device out"
    if others := [other for other in same if other.work.gmac != run.work.gmac]:
        return others, "leave one network and size out, same device"
    return [], "no error: nothing else of this kind measured on this device"


def measured_speeds(study: Study, recorded: Path) -> list[Speed]:
    """Return every recorded speed whose share of a peak is known: cells on documented devices, benchmarks,
    and quiet cells on a processor, a mean over seeds per network, size and precision.

    A benchmark's peak is its own measured matrix product, its work the audit's. A processor has no documented
    peak: a cell's share there is relative to 1 TFLOP/s, and each machine is a family of its own.
    """
    audit, found = read_audit(recorded), []
    seeds: dict[tuple[Device, Work, str, str], list[float]] = {}
    for record in EvidenceStore(recorded).records().values():
        with suppress(NotProjected):
            run = _speed(record, study, audit)
            if run.device.source != _MEASURED:
                found.append(run)
            elif not is_busy(record):
                alike = (run.device, run.work, run.source, run.precision)
                seeds.setdefault(alike, []).append(run.images_per_second)
    for path in sorted((recorded / "bench").glob("*/train.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            with suppress(NotProjected):
                found.append(_benchmarked(row, host_in_words(path.parent.name), audit))
    means = (reached(device, 1, work, mean(each), *how) for (device, work, *how), each in seeds.items())
    return [*found, *means]


def known_speeds(study: Study, recorded: Path) -> list[Speed]:
    """Return every speed that a projection may rest on, the published ones last."""
    return [*measured_speeds(study, recorded), *PUBLISHED]


def _speed(record: Record, study: Study, audit: pd.DataFrame) -> Speed:
    """Return the speed of a record; NotProjected where it is not known."""
    cell, speed = Cell.parse(record.cell), record.timing.images_per_second
    device, cores = device_of_host(record.host.device), record.host.devices_used
    if cell.platform == "cpu":
        device, cores = _measured_device(machine := machine_of(record, "cpu"), 1.0, machine), 1
    if device is None or not speed or cell.dataset not in study.datasets:
        raise NotProjected(f"{cell} has no speed on a device with documented peaks")
    precision, pixels = str(record.recipe.get("precision", "fp32")), study.dataset(cell.dataset).pixels
    work = work_of(audit, cell.architecture, pixels, precision)
    source = f"cells of {cell.architecture}, {pixels} px" if cell.platform == "cpu" else f"cell {cell}"
    return reached(device, cores, work, speed, source, precision)


def _benchmarked(row: dict[str, Any], machine: str, audit: pd.DataFrame) -> Speed:
    """Return the speed of a row of a benchmark's train.json; NotProjected where it has none."""
    peak, speed, platform = row["matmul_flops_per_second"], row["ours"], row["platform"]
    if not (peak and speed):
        raise NotProjected(f"{platform} of {machine} has no measured peak or speed")
    device = _measured_device(f"{platform} of {machine}", peak / 1e12, FAMILIES.get(platform, "cpu"))
    work = work_of(audit, row["architecture"], row["pixels"], row["precision"])
    by = f"benchmark of {row['architecture']}, {row['pixels']} px"
    known = reached(device, 1, work, speed, f"{by}, on {machine}", row["precision"])
    return known._replace(machine=machine, measured_by=by)


def _measured_device(name: str, tflops: float, family: str) -> Device:
    """Return a device whose peak is ``tflops`` in every precision."""
    return Device(
        name=name, family=family, tflops=tflops, tflops_fp32=tflops, evidence="measured",
        source=_MEASURED, source_fp32=_MEASURED,
    )  # fmt: skip


def work_of(audit: pd.DataFrame, architecture: str, pixels: int, precision: str) -> Work:
    """Return the training work of one image; NotProjected where it is not known.

    Bytes are the least that a step of :data:`AUDITED_BATCH` images moves per image in this precision.
    """
    # The wanted precision first; a step in tf32 is the graph of fp32.
    settings = (Setting(pixels, AUDITED_BATCH, name) for name in (precision, "fp32", "bf16"))
    counted = pd.concat([of_setting(audit, setting) for setting in settings])
    rows = counted[counted["architecture"] == architecture].to_dict("records")
    if not rows:
        command = f"cxrbench audit NAME --pixels {pixels} --record"
        raise NotProjected(f"no audit of this network at {pixels} px (run `{command}`)")
    first = rows[0]
    if first["problem"]:
        raise NotProjected(f"the audit failed: {first['problem']}")
    least = float(first["traffic_least_mib_per_image"]) if first["precision"] == precision else 0.0
    return Work(_kind(first), float(first["gmac"]), least * 2**20 if least > 0 else None)


def _kind(audited: dict[Any, Any]) -> str:
    """Return how a network loads a device, by what an audit counted: cnn, depthwise or transformer."""
    if audited["depthwise_convolutions"]:
        return "depthwise"
    return "transformer" if audited["layernorms"] > audited["batchnorms"] else "cnn"
