"""Accelerators: documented peaks and bandwidths of one core, each with its source."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Training = Literal["yes", "before SDK 2.30", "inference"]  # what AWS documents a device for


@dataclass(frozen=True)
class Device:
    """Documented dense peaks of one core in TFLOP/s, and its memory bandwidth; None: not documented.

    ``tflops`` is of bf16 (T4, V100: fp16), ``tflops_fp32`` of true fp32, not TF32. Efficiencies carry over
    within a ``family`` only. ``evidence``: whether the source itself was read.
    """

    name: str
    family: str  # neuron, gpu or cpu
    tflops: float
    tflops_fp32: float | None
    bandwidth_gb_s: float | None
    evidence: str  # read, second hand
    source: str
    source_fp32: str = ""
    training: Training = "yes"

    @property
    def chip(self) -> str:
        """Return the name without the size of the memory: such variants have the same peaks."""
        return re.sub(r"-\d+GB$", "", self.name)

    def peak(self, precision: str) -> float | None:
        """Return the TFLOP/s of one core in ``precision``; None where no document gives it."""
        return {"fp32": self.tflops_fp32, "bf16": self.tflops}.get(precision)


_TITAN = "NVIDIA's data sheet, as quoted in pytorch/torchtitan torchtitan/tools/utils.py @02581674"
_LIGHTNING = (
    "NVIDIA's data sheet, as quoted in Lightning-AI/pytorch-lightning "
    "fabric/utilities/throughput.py @1526f840"
)
_LIGHTNING_FP32 = _LIGHTNING.replace("1526f840", "0810121f")
_NKI = "AWS Neuron SDK docs, NKI architecture guide; trn1-arch: a core has half of its chip's 820 GiB/s"
_NKI_FP32 = "AWS Neuron SDK docs, NKI architecture guide: a quarter of the bf16 rate"
_TRN2 = "AWS Neuron SDK docs, trn2-arch: the instance's bf16 peak over its 128 NeuronCores"
_TRN2_FP32 = "AWS Neuron SDK docs 2.29, trainium2-arch: the chip's 181 TFLOP/s over its 8 NeuronCores"
# Lightning's table has the A10's 125 TFLOP/s and its fp32 peak for the A10G: neither is used.
_A10G = (
    "NVIDIA and AWS, A10G data sheet of 2022-02-17 (d1.awsstatic.com, NVIDIA_AWS_A10G_DataSheet): 140 "
    "TFLOP/s with sparsity, 70 without, as quoted in two public repositories"
)
_H100 = f"{_TITAN}; bandwidth: CloudExpat, AWS Trainium vs NVIDIA H100"
_CORE_BANDWIDTH = 820 * 1.073741824 / 2
_READ, _QUOTED = "read", "second hand"
_ENDED: Training = "before SDK 2.30"
# PyTorch NeuronX is "for training on Trn1 and Trn2", "for inference on Inf2, Trn1, and Trn2" (SDK 2.26,
# frameworks/torch); frameworks/index of 2.29 names Inf2 for both.
_INFERENCE: Training = "inference"
DEVICES = {
    device.name: device
    for device in (
        Device("Trainium", "neuron", 92.0, 23.0, _CORE_BANDWIDTH, _READ, _NKI, _NKI_FP32, _ENDED),
        Device("Inferentia2", "neuron", 92.0, 23.0, _CORE_BANDWIDTH, _READ, _NKI, _NKI_FP32, _INFERENCE),
        Device("Trainium2", "neuron", 10700 / 128, 181 / 8, None, _READ, _TRN2, _TRN2_FP32),
        Device("A10G", "gpu", 70.0, None, 600.0, _QUOTED, _A10G),
        Device("T4", "gpu", 65.0, 8.1, None, _QUOTED, _LIGHTNING, _LIGHTNING_FP32),
        Device("V100", "gpu", 125.0, 15.7, None, _QUOTED, _LIGHTNING, _LIGHTNING_FP32),
        Device("L4", "gpu", 121.0, None, None, _QUOTED, _LIGHTNING),
        Device("L40S", "gpu", 362.0, None, None, _QUOTED, _TITAN),
        Device("A100-40GB", "gpu", 312.0, 19.5, None, _QUOTED, _TITAN, _LIGHTNING_FP32),
        Device("A100-80GB", "gpu", 312.0, 19.5, None, _QUOTED, _TITAN, _LIGHTNING_FP32),
        Device("H100", "gpu", 989.0, 67.0, 3350.0, _QUOTED, _H100, _LIGHTNING_FP32),
        Device("H200", "gpu", 989.0, None, None, _QUOTED, _TITAN),
    )
}

# Claim D07 and docs/neuron.md have the sources.
TRAINIUM_ENDED = (
    "From Neuron SDK 2.30 on AWS supports no training with PyTorch/XLA, and so none on trn1; the successor, "
    "TorchNeuron, is a public beta for trn2 and trn3 only."
)
_NEURON_CORES = {"NC_v2": "Trainium", "NC_v3": "Trainium2"}  # what the Neuron runtime calls them


def device_of_host(named: str) -> Device | None:
    """Return the device that a driver calls ``named``, such as ``NVIDIA A100-SXM4-40GB``.

    None if it is unknown, or a slice (MIG), whose peak is a part that no table here has.
    """
    if re.search(r"\bMIG\b", named):
        return None
    for alias, name in _NEURON_CORES.items():
        if re.search(rf"\b{alias}d?\b", named):
            return DEVICES[name]
    for name, known in DEVICES.items():
        if all(re.search(rf"\b{part}\b", named) for part in name.split("-")):
            return known
    return None


def support(accelerators: Iterable[str]) -> list[str]:
    """Return the sentence on training that AWS no longer supports, where it concerns ``accelerators``."""
    found = (DEVICES[name].training for name in accelerators if name in DEVICES)
    return [TRAINIUM_ENDED] if _ENDED in found else []
