"""The platform seam: what a training loop asks of a device, one module per platform. Imports no torch.

A platform may have a second module, ``<module>_settings``, for what is needed before torch is imported:
``unavailable()`` and ``environment(precision, compiler, given)``, as in neuron_settings.py; and
``recover()`` where a killed trainer leaves something behind.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import suppress
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING

from cxrbench.study.config import Compiler
from cxrbench.study.errors import UserError
from cxrbench.study.platform_names import ENTRIES, PLATFORMS

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform


def unavailable(name: str) -> str | None:
    """Return why ``name`` cannot run on this machine, in one sentence; None when it can."""
    if name not in PLATFORMS:
        raise UserError(f"unknown platform '{name}'; use {', '.join(PLATFORMS)}")
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
    """Return the version of an installed package; None where it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def load(name: str, threads: int, precision: str, compiler: Compiler | None = None) -> Platform:
    """Return the platform ``name``, ready to train; UserError when it cannot run here.

    ``compiler`` is the recipe's; None: its defaults. A platform's environment is set before its module, and
    what it imports, is imported.
    """
    if reason := unavailable(name):
        raise UserError(f"platform {name} cannot run here: {reason}")
    if precision not in (offered := ENTRIES[name].precisions):
        raise UserError(f"platform {name} has no precision {precision}; use {', '.join(offered)}")
    if settings := _settings(name):
        os.environ.update(settings.environment(precision, compiler or Compiler(), os.environ))
    module = importlib.import_module(f"cxrbench.platforms.{ENTRIES[name].module}")
    return getattr(module, ENTRIES[name].cls)(threads, precision)


def _settings(name: str) -> ModuleType | None:
    """Return the settings module of a platform; None where it has none."""
    module = f"cxrbench.platforms.{ENTRIES[name].module}_settings"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None
