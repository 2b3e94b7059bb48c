"""The platform seam: what a training loop asks of a device, and one module per answer.

This module knows the platforms by name and says, without importing torch, which can run here.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cxrbench.config import Platform as Name
from cxrbench.errors import UserError, nearest

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform

PLATFORMS: tuple[str, ...] = get_args(Name)
_MODULES = {"cpu": "cpu:CpuPlatform", "cuda": "cuda:CudaPlatform", "xla_cpu": "xla:XlaPlatform"}


def unavailable(name: str) -> str | None:
    """Why ``name`` cannot run on this machine, in one sentence; None when it can. Imports no torch."""
    if name not in PLATFORMS:
        raise UserError(f"unknown platform '{name}'{nearest(name, PLATFORMS)}; use {', '.join(PLATFORMS)}")
    if name not in _MODULES:
        return f"this version of cxrbench has no adapter for {name} yet"
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed here (run `make setup`)"
    if name == "xla_cpu" and importlib.util.find_spec("torch_xla") is None:
        return "torch_xla is not installed here (run `make setup`)"
    if name == "cuda" and not Path("/proc/driver/nvidia/version").exists():
        return "there is no NVIDIA driver on this machine"
    return None


def load(name: str, threads: int, precision: str) -> Platform:
    """The platform called ``name``, ready to train; UserError when it cannot run here."""
    if reason := unavailable(name):
        raise UserError(f"platform {name} cannot run here: {reason}")
    module, _, attribute = _MODULES[name].partition(":")
    platform: Platform = getattr(importlib.import_module(f"cxrbench.platforms.{module}"), attribute)(
        threads, precision
    )
    return platform
