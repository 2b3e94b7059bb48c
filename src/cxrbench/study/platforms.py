"""Which platforms there are, whether one can run on this machine, and its loading. Imports no torch.

A platform is a module of ``cxrbench/platforms`` and an entry here. What is needed before torch is imported
stands in a second module, ``<module>_settings``: ``unavailable()`` and ``environment(precision, compiler,
given)``, as in neuron_settings.py; and ``recover()`` where a killed trainer leaves something behind.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cxrbench.common.errors import UserError, nearest

if TYPE_CHECKING:
    from cxrbench.study.recipe import Arithmetic, Compiler


@dataclass(frozen=True)
class Entry:
    """Where a platform's class is, and what must be known of it before torch is imported."""

    module: str
    cls: str
    family: str = "cpu"  # cpu, gpu, neuron or tpu; all but cpu is counted and paid in devices
    modules: tuple[str, ...] = ()  # Python packages that it needs besides torch
    found_by: tuple[str, ...] = ()  # paths of which one is there where the device is
    absent: str = ""  # message where none of them is
    precisions: tuple[str, ...] = ("fp32", "bf16")
    software: str = ""  # besides torch, what decides its speed: a key of a record's versions
    sdk: str = ""  # a name in every record's host.sdk
    reports: tuple[str, ...] = ()  # keys of every record's platform
    compiles: bool | None = None  # whether training compiles graphs; none: verify does not look
    priced_as: str = ""  # instance type, unless the study names another
    gres: str = ""  # devices of a job, as Slurm's --gres wants them
    memory_gib: int = 0  # host memory of a job of which nothing is recorded
    devices_per_process: int = 1  # of those that a price counts; a record has what the machine reports

    @property
    def accelerated(self) -> bool:
        return self.family != "cpu"


ENTRIES: dict[str, Entry] = {
    "cpu": Entry("cpu", "CpuPlatform", compiles=False, priced_as="c7a.large"),
    "cuda": Entry(
        "cuda",
        "CudaPlatform",
        family="gpu",
        found_by=("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"),  # the last is Windows'
        absent="there is no NVIDIA driver on this machine",
        precisions=("fp32", "tf32", "bf16"),
        sdk="CUDA",
        compiles=False,
        priced_as="g5.xlarge",
        gres="gpu:{processes}",
        memory_gib=12,
    ),
    "neuron": Entry(
        "neuron",
        "NeuronPlatform",
        family="neuron",
        software="torch_neuronx",
        sdk="neuronx-cc",
        reports=("compiler_flags", "compile_cache"),
        compiles=True,
        memory_gib=24,
    ),
    "torchneuron": Entry(
        "torchneuron",
        "TorchNeuronPlatform",
        family="neuron",
        software="torch_neuronx",
        sdk="torch-neuronx",
        reports=("compiler", "stochastic_rounding"),
        compiles=True,
        memory_gib=24,
        devices_per_process=2,  # a logical core of trn2, by default two physical ones
    ),
    "xla_cpu": Entry(
        "xla",
        "XlaPlatform",
        modules=("torch_xla",),
        software="torch_xla",
        reports=("fallback_operators",),
        compiles=True,
        priced_as="c7a.large",
    ),
    "xla_tpu": Entry(
        "xla_tpu",
        "XlaTpuPlatform",
        family="tpu",
        modules=("torch_xla", "libtpu"),
        software="torch_xla",
        sdk="libtpu",
        reports=("fallback_operators", "matrix_precision"),
        compiles=True,
        priced_as="ct5lp-hightpu-1t",
        memory_gib=24,
    ),
}
PLATFORMS: tuple[str, ...] = tuple(ENTRIES)


class LacksPrecision(UserError):
    """The device has no such arithmetic, and would run another under its name."""


class RecordingFailed(UserError):
    """A device could not record its step, and this process must end: its allocator cannot be trusted."""


# What a trainer may be started again without, when that has failed once.
RECORDING, CUDNN_DEPTHWISE = "recording", "cudnn_depthwise"
ACCELERATED = frozenset(name for name, entry in ENTRIES.items() if entry.accelerated)
TRAINIUM = tuple(name for name, entry in ENTRIES.items() if entry.accelerated and entry.family == "neuron")
GPU = "cuda"
_MEANT = {  # what else a platform is called
    **dict.fromkeys(("gpu", "nvidia"), GPU),
    **dict.fromkeys(("trainium", "trn1"), "neuron"),
    **dict.fromkeys(("trn2", "trn3"), "torchneuron"),
    **{"xla": "xla_cpu", "tpu": "xla_tpu"},
}


def unavailable(name: str) -> str | None:
    """The reason ``name`` cannot run on this machine, in one sentence, or None."""
    if name not in PLATFORMS:
        meant = f"; did you mean '{_MEANT[name]}'?" if name in _MEANT else nearest(name, PLATFORMS, 1)
        raise UserError(f"unknown platform '{name}'{meant} (known: {', '.join(PLATFORMS)})")
    if settings := _settings(name):
        return settings.unavailable()
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed here (run `make setup`)"
    for package in ("timm", *ENTRIES[name].modules):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed here (run `make setup`)"
    entry = ENTRIES[name]
    return entry.absent if entry.found_by and not any(map(os.path.exists, entry.found_by)) else None


def recover(name: str) -> None:
    """Remove what a killed trainer left behind, where the platform's settings say how."""
    if remove := getattr(_settings(name), "recover", None):
        remove()


def installed(package: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def load(
    name: str,
    threads: int,
    precision: str,
    compiler: Compiler | None = None,
    arithmetic: Arithmetic = "own",
) -> Any:
    """The ``Platform`` (platforms/base.py) called ``name``; UserError when it cannot run here.

    ``compiler`` (None: its defaults) and ``arithmetic`` are the recipe's. A platform's environment is set
    before its module, and what it imports, is imported.
    """
    if reason := unavailable(name):
        raise UserError(f"platform {name} cannot run here: {reason}")
    if precision not in (offered := ENTRIES[name].precisions):
        raise UserError(f"platform {name} has no precision {precision}; use {', '.join(offered)}")
    if settings := _settings(name):
        from cxrbench.study.recipe import Compiler  # pydantic, which a look at the names does without

        os.environ.update(settings.environment(precision, compiler or Compiler(), os.environ))
    module = importlib.import_module(f"cxrbench.platforms.{ENTRIES[name].module}")
    if arithmetic != "own":
        emulation = importlib.import_module("cxrbench.platforms.emulated")
        return emulation.emulated(getattr(module, ENTRIES[name].cls), threads, precision, arithmetic)
    return getattr(module, ENTRIES[name].cls)(threads, precision)


def _settings(name: str) -> ModuleType | None:
    """The settings module of a platform; None where it has none."""
    module = f"cxrbench.platforms.{ENTRIES[name].module}_settings"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None
