"""Accelerators: documented peaks and bandwidths of one core, each with its source."""

import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Device:
    """Documented dense peaks of one core in TFLOP/s, and its memory bandwidth; None: not documented.

    ``tflops`` is of the format ``half``, ``tflops_fp32`` of true fp32, not TF32. ``evidence``: whether the
    source itself was read.
    """

    name: str
    family: str  # neuron, gpu, tpu or cpu
    tflops: float
    half: Literal["bf16", "fp16"] = "bf16"  # the half precision that it computes in
    tflops_fp32: float | None = None
    bandwidth_gb_s: float | None = None
    evidence: str  # read, second hand
    source: str
    source_fp32: str = ""
    training: Literal["yes", "before SDK 2.30", "inference"] = "yes"  # what AWS documents it for
    support: str = ""  # of training on it, in words; empty: as any GPU

    @property
    def chip(self) -> str:
        """The name without the size of the memory: such variants have the same peaks."""
        return re.sub(r"-\d+GB$", "", self.name)


_TEXT = resources.files(__package__).joinpath("devices.toml").read_text(encoding="utf-8")
DEVICES = {name: Device(name=name, **fields) for name, fields in tomllib.loads(_TEXT).items()}

# The Trainium accelerators that AWS supports for training.
SUPPORTED = [name for name, chip in DEVICES.items() if chip.family == "neuron" and chip.training == "yes"]

_NEURON_CORES = {"NC_v2": "Trainium", "NC_v3": "Trainium2"}  # what the Neuron runtime calls them


def device_of_host(named: str) -> Device | None:
    """The device that a driver calls ``named``, such as ``NVIDIA A100-SXM4-40GB``.

    None if it is unknown, or a slice (MIG), whose peak is a part that no table here has.
    """
    if re.search(r"\bMIG\b", named):
        return None
    for alias, name in _NEURON_CORES.items():
        if re.search(rf"\b{alias}d?\b", named):
            return DEVICES[name]
    for name, device in DEVICES.items():
        if all(re.search(rf"\b{part}\b", named) for part in name.split("-")):
            return device
    return None
