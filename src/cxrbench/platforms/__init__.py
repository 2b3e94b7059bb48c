"""The platform seam: what a training loop asks of a device, and one module per answer.

Says, without importing torch, which of the platforms in :mod:`cxrbench.platform_names` can run here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cxrbench.config import Compiler
from cxrbench.errors import UserError, nearest
from cxrbench.platform_names import ENTRIES, PLATFORMS

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform

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
    for package in ("timm", *ENTRIES[name].modules):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed here (run `make setup`)"
    if (found_by := ENTRIES[name].found_by) and not Path(found_by[0]).exists():
        return found_by[1]
    return None


def _no_neuron(name: str) -> str | None:
    """The device first, then the package: one name covers two products, told apart by their version."""
    if not any(DEVICES.glob("neuron[0-9]*")):
        return f"there is no Neuron device on this machine ({DEVICES / 'neuron0'} does not exist)"
    wanted = f"requirements/{name}.txt, see docs/neuron.md"
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


def load(name: str, threads: int, precision: str, compiler: Compiler | None = None) -> Platform:
    """The platform called ``name``, ready to train; UserError when it cannot run here.

    ``compiler`` is the recipe's, for Neuron's platforms; none: its defaults.
    """
    if reason := unavailable(name):
        raise UserError(f"platform {name} cannot run here: {reason}")
    if name in NEURON_PLATFORMS:
        from cxrbench.platforms import neuron_settings

        # torch_xla's compiler and runtime read these when it is first imported. TorchNeuron may have been
        # imported with torch before (docs/neuron.md): its documented default is the one that is set here.
        wanted = compiler or Compiler()
        os.environ.update(neuron_settings.environment(name, precision, wanted, os.environ))
    module = importlib.import_module(f"cxrbench.platforms.{ENTRIES[name].module}")
    platform: Platform = getattr(module, ENTRIES[name].cls)(threads, precision)
    return platform
