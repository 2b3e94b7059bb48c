"""Which NeuronCores this machine has, as ``neuron-ls`` and the driver tell. Imports no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_TOOLS = Path("/opt/aws/neuron/bin")  # where Neuron's packages put them; not on every PATH
_DRIVER = Path("/sys/module/neuron/version")


def tool(name: str) -> str | None:
    """The path of one of Neuron's command line tools, or None."""
    return shutil.which(name) or shutil.which(name, path=str(_TOOLS))


def neuron_devices() -> list[dict[str, Any]]:
    """One entry per chip as ``neuron-ls`` prints them; empty when it is missing or says something else.

    Keys used here: ``nc_count`` (logical NeuronCores), ``logical_neuroncore_config`` (physical cores in a
    logical one; absent means 1), ``memory_size`` (bytes per chip), ``instance_type`` (newer releases).
    Source: Neuron SDK, neuron-ls.rst. SDK 2.34 is announced to replace ``--json-output`` by ``--output-format
    json`` with fields of the machine around the list (announce-intent-eos-neuron-ls-json.rst, 2026-10-16).
    """
    program = tool("neuron-ls")
    for words in (["--json-output"], ["--output-format", "json"]) if program else ():
        try:
            done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=30)
            chips = _chips(json.loads(done.stdout))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
        if chips:
            return chips
    return []


def _chips(printed: Any) -> list[dict[str, Any]]:
    """The entries with a core count in the list that was printed, or in a list inside an object."""
    lists = [*printed.values()] if isinstance(printed, dict) else [printed]
    found = [one for some in lists if isinstance(some, list) for one in some if isinstance(one, dict)]
    return [one for one in found if isinstance(one.get("nc_count"), int)]


def describe(kind: str) -> dict[str, Any]:
    """Device facts for the record. A device is a physical NeuronCore, as in data/prices.csv."""
    chips = neuron_devices()
    joined = chips[0].get("logical_neuroncore_config", 1) if chips else 1  # what one process holds
    per_chip = [one["nc_count"] * joined for one in chips]
    memory = chips[0].get("memory_size") if chips else None
    return {
        "device": kind,
        "device_count": sum(per_chip),
        "devices_per_process": joined,
        "device_memory_gib": round(memory / per_chip[0] / 2**30, 1) if memory and per_chip[0] else None,
        "driver": _driver(),
        "sdk": _packages(),
    }


def _driver() -> str | None:
    try:
        return f"aws-neuronx-dkms {_DRIVER.read_text(encoding='utf-8').strip()}"
    except OSError:
        return None


def _packages() -> str | None:
    """Versions of the compiler and of the runtime's Python packages, which name an SDK release together."""
    found = []
    for name in ("neuronx-cc", "torch-neuronx", "libneuronxla"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found) or None
