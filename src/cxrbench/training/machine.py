"""The machine under a run: processes killed for memory, a spot instance that goes, cores that others use."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_TOKEN = "X-aws-ec2-metadata-token"


def out_of_memory_kills() -> int:
    """The number of processes that the kernel has killed for want of memory; 0 where it does not count."""
    with suppress(OSError, ValueError, KeyError):
        return int(dict(map(str.split, Path("/proc/vmstat").read_text().splitlines()))["oom_kill"])
    return 0


def spot_interruption_announced() -> bool:
    """Whether EC2 announces that it takes this instance (EC2 guide, "Spot interruption notices")."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    lasting = {f"{_TOKEN}-ttl-seconds": "60"}
    ask = urllib.request.Request(f"{base}/latest/api/token", method="PUT", headers=lasting)
    try:
        with urllib.request.urlopen(ask, timeout=2) as answer:
            given = {_TOKEN: answer.read().decode()}
        ask = urllib.request.Request(f"{base}/latest/meta-data/spot/instance-action", headers=given)
        with urllib.request.urlopen(ask, timeout=2):
            return True
    except OSError:
        return False  # 404: no notice


class CoreUse:
    """The machine's core-seconds since this object was made, and the part that other processes used."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def others(self, gather: Callable[[float], list[float]]) -> tuple[float, float]:
        """(core-seconds there were, those used by other processes than the trainer's).

        ``gather`` collects a value from all processes of the trainer.
        """
        there = (time.monotonic() - self._wall) * (psutil.cpu_count() or 1)
        busy = _busy_seconds() - self._busy
        return there, max(0.0, busy - sum(gather(_own_seconds() - self._own)))


def _busy_seconds() -> float:
    """The core-seconds used on the machine, with those that a hypervisor took away."""
    times = psutil.cpu_times()
    named = ("user", "nice", "system", "irq", "softirq", "steal")  # guest time is part of user
    return float(sum(getattr(times, name, 0.0) for name in named))


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
