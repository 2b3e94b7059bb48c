"""The platform seam: what a training loop asks of a device, and one module per answer.

This module knows the platforms by name and says, without importing torch, which can run here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cxrbench.config import Platform as Name
from cxrbench.errors import UserError, nearest

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform

PLATFORMS: tuple[str, ...] = get_args(Name)
_MODULES = {
    "cpu": "cpu:CpuPlatform",
    "cuda": "cuda:CudaPlatform",
    "xla_cpu": "xla:XlaPlatform",
    "neuron": "neuron:NeuronPlatform",
    "torchneuron": "torchneuron:TorchNeuronPlatform",
}
NEURON_PLATFORMS = ("neuron", "torchneuron")
DEVICES = Path("/dev")


def unavailable(name: str) -> str | None:
    """Why ``name`` cannot run on this machine, in one sentence; None when it can. Imports no torch."""
    if name not in PLATFORMS:
        raise UserError(f"unknown platform '{name}'{nearest(name, PLATFORMS)}; use {', '.join(PLATFORMS)}")
    if name in NEURON_PLATFORMS:
        return _no_neuron(name)
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed here (run `make setup`)"
    if name == "xla_cpu" and importlib.util.find_spec("torch_xla") is None:
        return "torch_xla is not installed here (run `make setup`)"
    if name == "cuda" and not Path("/proc/driver/nvidia/version").exists():
        return "there is no NVIDIA driver on this machine"
    return None


def _no_neuron(name: str) -> str | None:
    """The device first, then the package: one name covers two products, told apart by their version."""
    if not any(DEVICES.glob("neuron[0-9]*")):
        return f"there is no Neuron device on this machine ({DEVICES / 'neuron0'} does not exist)"
    wanted = f"requirements/{name}.txt"
    try:
        version = metadata.version("torch-neuronx")
    except metadata.PackageNotFoundError:
        return f"torch-neuronx is not installed here (install {wanted})"
    found = re.match(r"(\d+)\.(\d+)", version)
    native = found is not None and (int(found[1]), int(found[2])) >= (2, 13)
    if native != (name == "torchneuron"):
        which = "TorchNeuron, for trn2 and trn3" if native else "the torch_xla one, for trn1"
        return f"torch-neuronx {version} is {which}; platform {name} needs the versions in {wanted}"
    return None


def load(name: str, threads: int, precision: str) -> Platform:
    """The platform called ``name``, ready to train; UserError when it cannot run here."""
    if reason := unavailable(name):
        raise UserError(f"platform {name} cannot run here: {reason}")
    if name in NEURON_PLATFORMS:
        from cxrbench.platforms import neuron_settings

        # Compiler and runtime read these when torch_xla or torch_neuronx is first imported.
        os.environ.update(neuron_settings.environment(name, precision, os.environ))
    module, _, attribute = _MODULES[name].partition(":")
    platform: Platform = getattr(importlib.import_module(f"cxrbench.platforms.{module}"), attribute)(
        threads, precision
    )
    return platform
