"""What Neuron's compiler and runtime are told, all of it explicit: defaults changed between releases.

Compiler flags, compile cache and rounding go in through the environment, before torch_xla is imported.
Sources: Neuron SDK, neuronx-cc API reference (flags); neuron-caching.rst and training-troubleshooting.rst
(cache); torch-neuron-envvars.rst (variables). Imports no torch.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from cxrbench.config import Compiler
from cxrbench.errors import UserError

DEFAULT_CACHE = "/var/tmp/neuron-compile-cache"  # Neuron's own
TAG = "cxrbench"  # by which neuron-monitor knows the processes of a cell

# Both precisions leave casting to PyTorch: fp32 is fp32 (the compiler's default was matmult until SDK 2.27),
# and bf16 is torch.autocast, for which Neuron's guide says to turn the compiler's own casting off.
_AUTO_CAST = {"fp32": "none", "bf16": "none"}
# Locks do not hold there: training-troubleshooting.rst names NFS, EFS (nfs4) and FSx (lustre).
_NETWORK = ("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "fuse.sshfs", "9p")


def environment(
    platform: str, precision: str, compiler: Compiler, given: Mapping[str, str]
) -> dict[str, str]:
    """The variables that decide how a cell compiles and rounds, from its recipe's precision and compiler.

    ``given`` is the environment as found: its NEURON_CC_FLAGS may add flags and name the cache. UserError
    where it contradicts the recipe or the cache is unsafe.
    """
    common = {
        # Round to nearest, as the other platforms do. The seed has no effect then, but is named all the same.
        "NEURON_RT_STOCHASTIC_ROUNDING_EN": "0",
        "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
        "NEURON_PROCESS_TAG": TAG,
    }
    if platform == "torchneuron":  # it has its own cache, and no documented flags for the compiler
        _must_tell_nothing(compiler, given)
        # A graph that does not compile must fail, not run eagerly without anybody noticing.
        return common | {"TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1"}
    flags = compiler_flags(precision, compiler, given.get("NEURON_CC_FLAGS", ""))
    cache = cache_location(flags, given)
    check_cache(cache)
    return common | {"NEURON_CC_FLAGS": shlex.join(flags), "NEURON_COMPILE_CACHE_URL": cache}


def _must_tell_nothing(compiler: Compiler, given: Mapping[str, str]) -> None:
    """UserError where a recipe or the environment tells the compiler what TorchNeuron has no way for."""
    if compiler != Compiler():
        raise UserError(
            "the recipe's `compiler` is for platform neuron: TorchNeuron documents no flags for its compiler;"
            " use a recipe without it"
        )
    if flags := given.get("NEURON_CC_FLAGS"):
        raise UserError(
            f"NEURON_CC_FLAGS is set ({flags}): TorchNeuron documents no flags for its compiler, and one may "
            "change the precision that the recipe names; unset it"
        )


def as_found(given: Mapping[str, str]) -> dict[str, Any]:
    """The same settings as a cell ran with them, for the record."""
    return {
        "compiler_flags": given.get("NEURON_CC_FLAGS"),
        "compile_cache": given.get("NEURON_COMPILE_CACHE_URL"),
        "visible_cores": given.get("NEURON_RT_VISIBLE_CORES"),
        "stochastic_rounding": {
            "enabled": given.get("NEURON_RT_STOCHASTIC_ROUNDING_EN") == "1",
            "seed": given.get("NEURON_RT_STOCHASTIC_ROUNDING_SEED"),
        },
    }


def compiler_flags(precision: str, compiler: Compiler, given: str) -> list[str]:
    """Compiler flags of a recipe, in a fixed order because the cache's key holds them."""
    mine = _split(given)
    wanted = _AUTO_CAST[precision]
    if mine.pop("--auto-cast", wanted) != wanted or "--auto-cast-type" in mine:
        raise UserError(
            f"NEURON_CC_FLAGS: --auto-cast changes the precision, which the recipe names ({precision}: "
            f"--auto-cast={wanted}); remove it and choose the precision in the recipe"
        )
    if "-O" in mine:
        mine["--optlevel"] = mine.pop("-O") or "2"
    named = {"--model-type": compiler.model_type, "--optlevel": str(compiler.optlevel)}
    for flag, value in named.items():
        if (found := mine.pop(flag, value)) != value:
            key = flag.removeprefix("--").replace("-", "_")
            raise UserError(
                f"NEURON_CC_FLAGS: {flag}={found} is not what the recipe names ({value}); remove it and set "
                f"`compiler: {{{key}: {found}}}` in a recipe of its own"
            )
    # A failed compilation is cached and returned at once, without the reason that the record needs. It may
    # also have failed for want of host memory alone (training-troubleshooting.rst): so it is tried again.
    mine.pop("--retry_failed_compilation", None)
    rest = [f"{flag}={value}" if value else flag for flag, value in mine.items()]
    chosen = [f"{flag}={value}" for flag, value in ({"--auto-cast": wanted} | named).items()]
    return [*chosen, *rest, "--retry_failed_compilation"]


def _split(given: str) -> dict[str, str]:
    """``--a=b --c d -O1`` as {"--a": "b", "--c": "d", "-O": "1"}; a flag without a value has ""."""
    found: dict[str, str] = {}
    flag = None
    for word in shlex.split(given):
        if word.startswith("-O"):
            flag, found["-O"] = None, word[2:]
        elif word.startswith("-"):
            flag, _, value = word.partition("=")
            found[flag] = value
        elif flag is not None and not found[flag]:
            found[flag] = word
        else:
            raise UserError(f"NEURON_CC_FLAGS: '{word}' belongs to no flag; write --flag=value")
    return found


def cache_location(flags: list[str], given: Mapping[str, str]) -> str:
    """Where compiled graphs are kept: --cache_dir, else NEURON_COMPILE_CACHE_URL, else Neuron's default."""
    named = next((flag.partition("=")[2] for flag in flags if flag.startswith("--cache_dir=")), "")
    return named or given.get("NEURON_COMPILE_CACHE_URL", "") or DEFAULT_CACHE


def check_cache(location: str) -> None:
    """UserError unless ``location`` is an S3 address or lies on a local file system."""
    if location.startswith("s3://"):
        return
    if "://" in location:
        raise UserError(f"Neuron compile cache '{location}': use a local folder or an s3:// address")
    kind = file_system(Path(location))
    if kind in _NETWORK:
        raise UserError(
            f"Neuron compile cache '{location}' lies on a network file system ({kind}), where Neuron's locks "
            f"fail; set NEURON_COMPILE_CACHE_URL to a local folder such as {DEFAULT_CACHE} or to s3://..."
        )


def file_system(path: Path) -> str:
    """Type of the file system that holds ``path`` (which need not exist yet), from the mount table."""
    real = Path(os.path.realpath(path))
    # Of several mounts on one folder the last one counts.
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (real, *real.parents) if folder in mounts), "unknown")
