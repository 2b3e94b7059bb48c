"""``neuron-monitor`` as a side process: what it says is kept, and its death changes nothing.

It prints one JSON object a period (Neuron SDK, neuron-monitor-user-guide.rst). Imports no torch.
"""

from __future__ import annotations

import atexit
import json
import math
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from cxrbench.platforms.neuron_devices import tool
from cxrbench.platforms.neuron_settings import TAG

_CONFIG = {
    "period": "1s",
    "neuron_runtimes": [
        {"tag_filter": TAG, "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}]}
    ],
    "system_metrics": [{"type": "memory_info"}],
}


class Monitor:
    """Utilisation per NeuronCore and peak device memory since it was started."""

    def __init__(self) -> None:
        self.reports = self.unreadable = 0
        self._peak_bytes: float | None = None  # of the process that held most
        self._percent: dict[str, tuple[int, float]] = {}  # core: (readings, sum)
        self._process: subprocess.Popen[str] | None = None
        self._why_none = "neuron-monitor is not installed"
        self._reader = threading.Thread(target=self._read, daemon=True)
        if program := tool("neuron-monitor"):
            self._start(program)

    def _start(self, program: str) -> None:
        try:
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
        except OSError as error:
            self._why_none = f"neuron-monitor does not start ({error.strerror})"
            return
        atexit.register(self.close)
        self._reader.start()

    def _read(self) -> None:
        """Take in lines until the side process ends; a line that is no report is counted and left out."""
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._take(json.loads(line))
                self.reports += 1
            except (ValueError, TypeError, AttributeError):
                self.unreadable += 1

    def _take(self, report: dict[str, Any]) -> None:
        for runtime in report.get("neuron_runtime_data", ()):
            said = runtime.get("report") or {}
            used = (said.get("memory_used") or {}).get("neuron_runtime_used_bytes") or {}
            if (held := _number(used.get("neuron_device"))) is not None:
                self._peak_bytes = max(held, self._peak_bytes or 0.0)
            cores = (said.get("neuroncore_counters") or {}).get("neuroncores_in_use") or {}
            for core, counters in cores.items():
                percent = _number((counters or {}).get("neuroncore_utilization"))
                if percent is not None:
                    count, total = self._percent.get(core, (0, 0.0))
                    self._percent[core] = count + 1, total + percent

    def peak_memory_mib(self) -> float | None:
        """The most device memory that one process held; None when nothing was read."""
        return None if self._peak_bytes is None else self._peak_bytes / 2**20

    def report(self) -> dict[str, Any]:
        """Mean utilisation per core in percent of the time it was in use, and how it was read."""
        process = self._process
        if process is None:
            return {"neuron_monitor": self._why_none}
        code = process.poll()
        return {
            "neuron_monitor": "running" if code is None else f"ended with exit code {code}",
            "neuron_monitor_reports": self.reports,
            "neuron_monitor_unreadable": self.unreadable,
            "neuroncore_utilization_percent": {
                core: round(total / count, 2) for core, (count, total) in sorted(self._percent.items())
            },
        }

    def close(self) -> None:
        """End the side process and take in what it still said."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reader.join(timeout=5)
            self._config.unlink(missing_ok=True)


def _number(value: Any) -> float | None:
    """A finite number of zero or more, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
