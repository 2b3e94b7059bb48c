"""Which machine a cell ran on, how busy it was, and which runs may stand for a group of cells.

Speeds and costs are averaged within one machine only. Two runs share a machine when :func:`machine_of`
returns the same text for both. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from cxrbench.study.platform_names import ACCELERATED, ENTRIES

if TYPE_CHECKING:  # pydantic takes a third of a second
    from cxrbench.evidence.record import Record

BUSY = 0.10  # share of the cores that other processes may use before speed and cost are marked
UNKNOWN = "unknown processor"
GROUP = ["dataset", "architecture", "platform"]


def processor_of(record: Record) -> str:
    """The processor that ``record`` names; a processor of its own for a record that names none."""
    return record.host.cpu.strip() or f"{UNKNOWN} of {record.cell}"


def machine_of(record: Record, platform: str) -> str:
    """Device, processor, cores, EC2 type and software of ``record``: ``AMD EPYC (AVX2), 2 cores, ...``.

    Processors of one name differ in the instructions that they have, and so in speed.
    """
    host, versions = record.host, record.versions
    instructions = host.device.removeprefix("CPU") if host.device.startswith("CPU (") else ""
    device = [f"{host.devices_used} {host.device}"] if platform in ACCELERATED else []
    decisive = ("torch", ENTRIES[platform].software if platform in ENTRIES else "")
    software = [f"{name} {versions[name]}" for name in decisive if versions.get(name)]
    driver = [f"driver {host.driver}"] if host.driver else []
    instance = [host.instance] if host.instance else []
    processor = processor_of(record) + instructions
    return ", ".join([*device, processor, f"{host.cores} cores", *instance, *driver, *software])


def short_processor(processor: str) -> str:
    """Return a processor's name without what every name has: ``Intel Xeon``."""
    plain = re.sub(r"\((R|TM)\)|@[^,]*|\b(Processor|CPU)\b", " ", processor)
    return re.sub(r" +,", ",", " ".join(plain.split()))


def host_in_words(folder: str) -> str:
    """Return the machine that a folder of measurements is named after: ``Intel Xeon, 2 cores``."""
    brands = {"intel": "Intel", "xeon": "Xeon", "amd": "AMD", "epyc": "EPYC", "nvidia": "NVIDIA"}
    parts = [
        brands.get(part, part) for part in folder.split("-") if part not in ("r", "tm", "processor", "cpu")
    ]
    return re.sub(r" (\d+ cores?)$", r", \1", " ".join(parts))


def processors_in_words(processors: Iterable[str]) -> str:
    """Return the different processors, shortened and sorted: ``AMD EPYC and Intel Xeon``."""
    return " and ".join(sorted({short_processor(name) for name in processors}))


def is_busy(record: Record) -> bool:
    """Whether others used more than :data:`BUSY` of the cores, or the device; unknown is not busy."""
    share = record.timing.others_share
    return (share is not None and share > BUSY) or bool(record.platform.get("other_processes"))


def load_in_words(others_share: float | None) -> str:
    """Return how busy the machine was: ``others used 48 % of the cores``, or that nobody measured it."""
    if others_share is None:
        return "load not recorded"
    return f"others used {others_share:.0%} of the cores".replace("%", " %")


def headline(runs: pd.DataFrame) -> pd.Series:
    """Which rows of ``runs`` stand for their group (:data:`GROUP`) where a single speed or cost is printed.

    Columns ``origin``, ``machine``, ``busy`` and ``status`` decide. All chosen rows of a group are of one
    machine, one origin and one load: quiet before busy, recorded before fresh, then the machine with the most
    usable seeds, then the first in order. So neither a busy run nor a fresh one moves a recorded headline.
    """
    chosen = pd.Series(False, index=runs.index)
    for _, group in runs.groupby(GROUP, sort=False):
        alike = [rows for _, rows in group.groupby(["busy", "origin", "machine"], sort=False)]
        chosen[min(alike, key=_rank).index] = True
    return chosen


def _rank(rows: pd.DataFrame) -> tuple[bool, bool, int]:
    first = rows.iloc[0]
    return bool(first["busy"]), first["origin"] != "recorded", -int((rows["status"] == "ok").sum())
