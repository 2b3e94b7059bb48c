"""What ``neuron-ls`` and ``neuron-monitor`` report. No torch.

The monitor is a side process that prints a JSON object a period (Neuron SDK, neuron-monitor-user-guide.rst);
its death changes nothing.
"""

import atexit
import json
import math
import os
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cxrbench.platforms.neuron_settings import TAG, as_found
from cxrbench.study.platforms import installed

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform as Base
else:
    Base = object

_TOOLS = "/opt/aws/neuron/bin"  # where Neuron's packages put them; not on every PATH
_DRIVER = Path("/sys/module/neuron/version")
_CONFIG = {
    "period": "1s",
    "neuron_runtimes": [
        {"tag_filter": TAG, "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}]}
    ],
    "system_metrics": [{"type": "memory_info"}],
}


def tool(name: str) -> str | None:
    """The path of one of Neuron's command line tools, or None."""
    return shutil.which(name) or shutil.which(name, path=_TOOLS)


def describe(kind: str) -> dict[str, Any]:
    """Device facts for the record. A device is a physical NeuronCore, as in data/prices.csv."""
    chips = _chips()
    first = chips[0] if chips else {"nc_count": 0}
    joined = first.get("logical_neuroncore_config", 1)  # what one process holds
    cores, memory = first["nc_count"] * joined, first.get("memory_size")
    driver = None
    with suppress(OSError):
        driver = f"aws-neuronx-dkms {_DRIVER.read_text(encoding='utf-8').strip()}"
    packages = ("neuronx-cc", "torch-neuronx", "libneuronxla")  # together they identify a release
    sdk = [f"{name} {version}" for name in packages if (version := installed(name))]
    return {
        "device": kind,
        "device_count": sum(chip["nc_count"] * joined for chip in chips),
        "devices_per_process": joined,
        "device_memory_gib": round(memory / cores / 2**30, 1) if memory and cores else None,
        "driver": driver,
        "sdk": ", ".join(sdk) or None,
    }


def _chips() -> list[dict[str, Any]]:
    """An entry per chip as ``neuron-ls`` prints them; empty when it is missing or prints others.

    Keys: ``nc_count`` (logical NeuronCores), ``logical_neuroncore_config`` (physical cores in a logical one;
    absent means 1), ``memory_size`` (bytes per chip). Source: Neuron SDK, neuron-ls.rst. SDK 2.34 is to
    replace ``--json-output`` by ``--output-format json``, with fields of the machine around the list
    (announce-intent-eos-neuron-ls-json.rst, 2026-10-16).
    """
    program = tool("neuron-ls") or ""
    for options in (["--json-output"], ["--output-format", "json"]):
        printed: Any = []
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run([program, *options], capture_output=True, text=True, timeout=30)
            printed = json.loads(done.stdout)
        lists = printed.values() if isinstance(printed, dict) else [printed]
        entries = [entry for entries in lists if isinstance(entries, list) for entry in entries]
        chips = [chip for chip in entries if isinstance(chip, dict) and isinstance(chip.get("nc_count"), int)]
        if chips:
            return chips
    return []


class Monitor:
    """Utilisation per NeuronCore and peak device memory since the object was made."""

    def __init__(self) -> None:
        self._reports = self._unreadable = 0
        self._peak_bytes: float | None = None  # of the process that held most
        self._percent: defaultdict[str, list[float]] = defaultdict(list)  # readings by core
        self._process: subprocess.Popen[str] | None = None
        self._absent = "neuron-monitor is not installed"
        if program := tool("neuron-monitor"):
            try:
                self._start(program)
            except OSError as error:
                self._absent = f"neuron-monitor does not start ({error.strerror})"

    def _start(self, program: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as config:
            json.dump(_CONFIG, config)
        self._config = Path(config.name)
        self._process = subprocess.Popen(
            [program, "-c", config.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the trainer's own output must end with the trainer
            encoding="utf-8",
            errors="replace",
        )
        atexit.register(self.close)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: Any) -> None:
        """Read lines until the side process ends; a line that is not a report is counted and left out."""
        with lines:
            for line in lines:
                try:
                    self._take(json.loads(line))
                    self._reports += 1
                except (ValueError, TypeError, AttributeError):
                    self._unreadable += 1

    def _take(self, report: dict[str, Any]) -> None:
        for runtime in report.get("neuron_runtime_data", ()):
            held = _inside(runtime, "report", "memory_used", "neuron_runtime_used_bytes", "neuron_device")
            if (held := _number(held)) is not None:
                self._peak_bytes = max(held, self._peak_bytes or 0.0)
            cores = _inside(runtime, "report", "neuroncore_counters", "neuroncores_in_use")
            for core, counters in cores.items():
                if (percent := _number(_inside(counters, "neuroncore_utilization"))) is not None:
                    self._percent[core].append(percent)

    def peak_memory_mib(self) -> float | None:
        """The most device memory that one process held; None when nothing was read."""
        return None if self._peak_bytes is None else self._peak_bytes / 2**20

    def report(self) -> dict[str, Any]:
        """The mean utilisation per core in percent of the time it was in use, and how it was read."""
        if self._process is None:
            return {"neuron_monitor": self._absent}
        code = self._process.poll()
        return {
            "neuron_monitor": "running" if code is None else f"ended with exit code {code}",
            "neuron_monitor_reports": self._reports,
            "neuron_monitor_unreadable": self._unreadable,
            "neuroncore_utilization_percent": {
                core: round(fmean(readings), 2) for core, readings in sorted(self._percent.items())
            },
        }

    def close(self) -> None:
        """End the side process and read its last lines."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reader.join(timeout=5)
            self._config.unlink(missing_ok=True)


def _inside(value: Any, *keys: str) -> Any:
    """The value in nested dictionaries, any of which may be null or missing."""
    for key in keys:
        value = (value or {}).get(key)
    return {} if value is None else value


def _number(value: Any) -> float | None:
    """A finite number of zero or more, else None."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real and math.isfinite(value) and value >= 0 else None


class Monitored(Base):
    """A Neuron platform whose first process reads all processes of the machine with neuron-monitor."""

    kind: str  # of the device, for the record

    def __init__(self, threads: int, precision: str) -> None:
        super().__init__(threads, precision)
        self._monitor = Monitor() if self.rank == 0 else None

    def peak_memory_mib(self) -> float | None:
        return self._monitor.peak_memory_mib() if self._monitor else None

    def energy_joules(self) -> tuple[float | None, str | None]:
        return None, "neuron-monitor reports no energy"

    def describe(self) -> dict[str, Any]:
        return describe(self.kind)

    def report(self) -> dict[str, Any]:
        monitor = self._monitor.report() if self._monitor else {}
        return super().report() | as_found(os.environ) | monitor
