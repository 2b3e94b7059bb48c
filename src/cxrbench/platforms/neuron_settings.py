"""Environment of Neuron's compiler and runtime, all of it explicit: defaults changed between releases.

Sources: Neuron SDK, neuronx-cc API reference (flags); neuron-caching.rst and training-troubleshooting.rst
(cache); torch-neuron-envvars.rst (variables). Imports no torch.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cxrbench.common.errors import UserError
from cxrbench.study.config import CompileOptions, Compiler
from cxrbench.study.platforms import installed

DEVICE_FOLDER = Path("/dev")
DEFAULT_CACHE = "/var/tmp/neuron-compile-cache"  # Neuron's own
TAG = "cxrbench"  # by which neuron-monitor finds the processes of a cell
RUNTIME = {
    # Round to nearest, as the other platforms do. The seed has no effect then, but is named all the same.
    "NEURON_RT_STOCHASTIC_ROUNDING_EN": "0",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
    "NEURON_PROCESS_TAG": TAG,
}

# Casting is left to PyTorch: fp32 is fp32 (the compiler's default was matmult until SDK 2.27), and bf16 is
# torch.autocast, for which Neuron's guide says to turn the compiler's own casting off.
_AUTO_CAST = "none"
# 64-bit integers, of which a step has BatchNorm's counters alone: native where the chip has them (trn1 has
# none), and an error where the compiler would round them to fp32. Flags of neuronx-cc 2.27 (SDK 2.32,
# 2026-08-17), whose notes announce other defaults for 2.28; earlier compilers do not know them.
_INTEGERS_SINCE = (2, 27)
_INTEGERS = {"--native-int64": "", "--implicit-integer-downcast": "none"}
# A failed compilation is cached and returned at once, without the reason that the record needs. It may also
# have failed for lack of host memory alone (training-troubleshooting.rst): so it is tried again.
_RETRY = "--retry_failed_compilation"
_HOLDERS = ("neuronx-cc", "neuron_parallel_compile", "cxrbench.training.child")
# Locks do not hold there: training-troubleshooting.rst names NFS, EFS (nfs4) and FSx (lustre).
_NETWORK = ("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "fuse.sshfs", "9p")


def why_not(platform: str) -> str | None:
    """The reason a Neuron platform cannot run on this machine, or None."""
    if not any(DEVICE_FOLDER.glob("neuron[0-9]*")):
        return f"there is no Neuron device on this machine ({DEVICE_FOLDER / 'neuron0'} does not exist)"
    wanted = f"requirements/{platform}.txt, see docs/neuron.md"
    if (version := installed("torch-neuronx")) is None:
        return f"torch-neuronx is not installed here (install {wanted})"
    # The package is two products: TorchNeuron from version 2.13 on, before it an addition to torch_xla.
    torchneuron = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 13)
    if torchneuron != (platform == "torchneuron"):
        which = "TorchNeuron, for trn2 and trn3" if torchneuron else "the torch_xla one, for trn1"
        return f"torch-neuronx {version} is {which}; platform {platform} needs the versions in {wanted}"
    return None


unavailable = partial(why_not, "neuron")


def recover() -> None:
    """Clear the locks of killed compilers in the compile cache, for which others would wait without end.

    The tool clears all locks of a cache, so that nothing is done while another process here may hold one, and
    never in S3, where another machine may. Source: Neuron SDK, pytorch-neuron-parallel-compile.rst.
    """
    cache = os.environ.get("NEURON_COMPILE_CACHE_URL", DEFAULT_CACHE)
    holders = "others, in S3" if cache.startswith("s3://") else _may_hold_locks(cache)
    if holders:
        print(
            f"the locks of Neuron's compile cache {cache} are left: {holders} may hold them", file=sys.stderr
        )
        return
    # Beside the interpreter too, which may have been called by its path.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])
    if program := shutil.which("neuron_parallel_compile", path=path):
        command = [program, "--command", "clear-locks"]
        subprocess.run(command, env=os.environ | {"PATH": path}, stdout=sys.stderr, check=False)


def _may_hold_locks(cache: str) -> str:
    """The processes of other families that compile or train with a cache, in words; empty: none."""
    ours = psutil.Process()
    family = {process.pid for process in (ours, *ours.parents(), *ours.children(recursive=True))}
    holders = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        words, given = " ".join(process.info["cmdline"] or ()), process.info["environ"]
        same = given is None or given.get("NEURON_COMPILE_CACHE_URL", DEFAULT_CACHE) == cache
        if process.info["pid"] not in family and same and any(name in words for name in _HOLDERS):
            holders.append(f"process {process.info['pid']}")
    return ", ".join(holders)


def environment(precision: str, compiler: Compiler, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide how a cell compiles and rounds.

    ``precision`` and ``compiler`` are the recipe's; ``given`` is the environment, whose NEURON_CC_FLAGS may
    add flags and name the cache. UserError where it contradicts the recipe or the cache is unsafe.
    """
    flags = compiler_flags(precision, compiler, given.get("NEURON_CC_FLAGS", ""))
    folder = next((flag.partition("=")[2] for flag in flags if flag.startswith("--cache_dir=")), "")
    cache = folder or given.get("NEURON_COMPILE_CACHE_URL", "") or DEFAULT_CACHE
    _check_cache(cache)
    return RUNTIME | {"NEURON_CC_FLAGS": shlex.join(flags), "NEURON_COMPILE_CACHE_URL": cache}


def as_found(given: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a cell in its environment ``given``, for the record."""
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
    """The recipe's compiler flags and those ``given``, in a fixed order: the cache's key has them."""
    added = _flags(given)
    if added.pop("--auto-cast", _AUTO_CAST) != _AUTO_CAST or "--auto-cast-type" in added:
        raise UserError(
            f"NEURON_CC_FLAGS: --auto-cast changes the precision, which the recipe names ({precision}: "
            f"--auto-cast={_AUTO_CAST}); remove it and choose the precision in the recipe"
        )
    named = {"--model-type": compiler.model_type, "--optlevel": str(compiler.optlevel)}
    for flag, value in named.items():
        if (stated := added.pop(flag, value)) != value:
            key = flag.removeprefix("--").replace("-", "_")
            raise UserError(
                f"NEURON_CC_FLAGS: {flag}={stated} is not what the recipe names ({value}); remove it and set "
                f"`compiler: {{{key}: {stated}}}` in a recipe of its own"
            )
    added.pop(_RETRY, None)
    flags = {"--auto-cast": _AUTO_CAST} | named | integer_flags(installed("neuronx-cc") or "", "trn1")
    flags |= added | {_RETRY: ""}
    return [f"{flag}={value}" if value else flag for flag, value in flags.items()]


def integer_flags(version: str, target: str) -> dict[str, str]:
    """The flags that say what a release of the compiler does with 64-bit integers; none where it has none."""
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _INTEGERS_SINCE:
        return {}
    return {flag: value for flag, value in _INTEGERS.items() if value or target != "trn1"}


def graph_flags(options: CompileOptions, version: str, target: str) -> list[str]:
    """The flags for one graph by itself, for a release of the compiler, casting as ``options`` say."""
    named = {"--model-type": options.model_type, "--optlevel": str(options.optlevel)}
    flags = {"--auto-cast": options.auto_cast} | named | integer_flags(version, target)
    if target == "trn2":
        flags["--logical-nc-config"] = "2"  # its default, said
    return [f"{flag}={value}" if value else flag for flag, value in flags.items()]


def _flags(given: str) -> dict[str, str]:
    """Read ``--a=b --c -O1`` as {"--a": "b", "--c": "", "--optlevel": "1"}."""
    values: dict[str, str] = {}
    flag = ""
    for word in shlex.split(given):
        if word.startswith("-O"):
            flag, values["--optlevel"] = "", word[2:] or "2"
        elif word.startswith("-"):
            flag, _, values[flag] = word.partition("=")
        elif flag and not values[flag]:
            values[flag] = word
        else:
            raise UserError(f"NEURON_CC_FLAGS: '{word}' belongs to no flag; write --flag=value")
    return values


def _check_cache(location: str) -> None:
    """Raise UserError unless ``location`` is an S3 address or lies on a local file system."""
    if location.startswith("s3://"):
        return
    if "://" in location:
        raise UserError(f"Neuron compile cache '{location}': use a local folder or an s3:// address")
    # Of several mounts on one folder the last one counts.
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    real = Path(os.path.realpath(location))
    kind = next((mounts[folder] for folder in (real, *real.parents) if folder in mounts), "unknown")
    if kind in _NETWORK:
        raise UserError(
            f"Neuron compile cache '{location}' lies on a network file system ({kind}), where Neuron's locks "
            f"fail; set NEURON_COMPILE_CACHE_URL to a local folder such as {DEFAULT_CACHE} or to s3://..."
        )
