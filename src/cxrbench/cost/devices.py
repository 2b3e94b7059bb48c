"""Accelerators: documented peaks and bandwidths of one core, each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrbench.study.errors import UserError, nearest


@dataclass(frozen=True)
class Device:
    """Documented dense bf16 (T4, V100: fp16) peak of one core, its fp32 peak and memory bandwidth if known.

    ``fp32_tflops`` is of true fp32, not of TF32: PyTorch multiplies fp32 matrices in fp32 by default.
    ``family``: neuron, gpu or cpu. Efficiencies carry over within one, never between them: the share of
    its peak that a CPU gives a small network says nothing about a GPU or a systolic array.
    ``read``: whether the source itself was read; otherwise it is quoted by somebody else.
    """

    name: str
    peak_tflops: float
    bandwidth_gb_s: float | None
    source: str
    family: str = "gpu"
    read: bool = False
    fp32_tflops: float | None = None
    fp32_source: str = ""

    def peak(self, precision: str) -> float | None:
        """TFLOP/s of one core in ``precision``; none where no document gives it."""
        return self.fp32_tflops if precision == "fp32" else self.peak_tflops


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
DEVICES = {
    device.name: device
    for device in (
        Device("Trainium", 92.0, _CORE_BANDWIDTH, _NKI, "neuron", True, 23.0, _NKI_FP32),
        Device("Inferentia2", 92.0, _CORE_BANDWIDTH, _NKI, "neuron", True, 23.0, _NKI_FP32),
        Device("Trainium2", 10700 / 128, None, _TRN2, "neuron", True, 181 / 8, _TRN2_FP32),
        Device("A10G", 70.0, 600.0, _A10G),
        Device("T4", 65.0, None, _LIGHTNING, fp32_tflops=8.1, fp32_source=_LIGHTNING_FP32),
        Device("V100", 125.0, None, _LIGHTNING, fp32_tflops=15.7, fp32_source=_LIGHTNING_FP32),
        Device("L4", 121.0, None, _LIGHTNING),
        Device("L40S", 362.0, None, _TITAN),
        Device("A100-40GB", 312.0, None, _TITAN, fp32_tflops=19.5, fp32_source=_LIGHTNING_FP32),
        Device("A100-80GB", 312.0, None, _TITAN, fp32_tflops=19.5, fp32_source=_LIGHTNING_FP32),
        Device("H100", 989.0, 3350.0, _H100, fp32_tflops=67.0, fp32_source=_LIGHTNING_FP32),
        Device("H200", 989.0, None, _TITAN),
    )
}

_KINDS = {"NC_v2": "Trainium", "NC_v3": "Trainium2"}  # what the Neuron runtime calls its cores


def device(name: str) -> Device:
    """The documented peaks of an accelerator as prices.csv names it; UserError when there are none."""
    if name not in DEVICES:
        raise UserError(
            f"no documented peak for '{name}'{nearest(name, DEVICES)} (known: {', '.join(DEVICES)}); "
            "add it with its source to cost/devices.py"
        )
    return DEVICES[name]


def device_of_host(named: str) -> Device | None:
    """The device that a driver calls ``named`` (``NVIDIA A100-SXM4-40GB``); none without documented peaks."""
    for alias, name in _KINDS.items():
        if re.search(rf"\b{alias}d?\b", named):
            return DEVICES[name]
    for name, known in DEVICES.items():
        if all(re.search(rf"\b{part}\b", named) for part in name.split("-")):
            return known
    return None
