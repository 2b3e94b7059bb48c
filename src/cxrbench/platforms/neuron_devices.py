"""NeuronCores and Neuron software of this machine, from the driver, the tools and the packages. No torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

DEVICES = Path("/dev")
_TOOLS = "/opt/aws/neuron/bin"  # where Neuron's packages put them; not on every PATH
_DRIVER = Path("/sys/module/neuron/version")


def unavailable(platform: str, native: bool) -> str | None:
    """Return why a Neuron platform cannot run on this machine; None when it can.

    The package torch-neuronx is two products: from version 2.13 on TorchNeuron (``native``), before it an
    addition to torch_xla.
    """
    if not any(DEVICES.glob("neuron[0-9]*")):
        return f"there is no Neuron device on this machine ({DEVICES / 'neuron0'} does not exist)"
    wanted = f"requirements/{platform}.txt, see docs/neuron.md"
    try:
        version = metadata.version("torch-neuronx")
    except metadata.PackageNotFoundError:
        return f"torch-neuronx is not installed here (install {wanted})"
    found = re.match(r"(\d+)\.(\d+)", version)
    installed = found is not None and (int(found[1]), int(found[2])) >= (2, 13)
    if installed != native:
        which = "TorchNeuron, for trn2 and trn3" if installed else "the torch_xla one, for trn1"
        return f"torch-neuronx {version} is {which}; platform {platform} needs the versions in {wanted}"
    return None


def tool(name: str) -> str | None:
    """Return the path of one of Neuron's command line tools, or None."""
    return shutil.which(name) or shutil.which(name, path=_TOOLS)


def describe(kind: str) -> dict[str, Any]:
    """Return device facts for the record. A device is a physical NeuronCore, as in data/prices.csv."""
    chips = _chips()
    joined = chips[0].get("logical_neuroncore_config", 1) if chips else 1  # what one process holds
    per_chip = [chip["nc_count"] * joined for chip in chips]
    memory = chips[0].get("memory_size") if chips else None
    return {
        "device": kind,
        "device_count": sum(per_chip),
        "devices_per_process": joined,
        "device_memory_gib": round(memory / per_chip[0] / 2**30, 1) if memory and per_chip[0] else None,
        "driver": _driver(),
        "sdk": _packages(),
    }


def _chips() -> list[dict[str, Any]]:
    """Return an entry per chip as ``neuron-ls`` prints them; empty when it is missing or prints others.

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


def _driver() -> str | None:
    with suppress(OSError):
        return f"aws-neuronx-dkms {_DRIVER.read_text(encoding='utf-8').strip()}"
    return None


def _packages() -> str | None:
    """Return the versions of compiler and runtime packages, which identify an SDK release together."""
    found = []
    for name in ("neuronx-cc", "torch-neuronx", "libneuronxla"):
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return ", ".join(found) or None
