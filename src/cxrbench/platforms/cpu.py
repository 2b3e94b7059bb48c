"""The CPU through eager PyTorch: the reference that every other platform is held against."""

from typing import Any

import torch
from torch import nn

from cxrbench.platforms.base import Platform


class CpuPlatform(Platform):
    """Same cell, same machine, same threads: bit-identical predictions."""

    name = "cpu"
    device = torch.device("cpu")

    # In fp32 channels_last is slower for some networks and gains less than 3 % for the others: not kept
    # (data/recorded/bench/*/gains.json). In bf16, at 128 px and batch 64, a step is 1.2 times as fast with it
    # (tf_efficientnet_lite0: 34 instead of 28 images/s; resnet18: 105 instead of 88; two cores, AMD EPYC).
    def network(self, network: nn.Module) -> nn.Module:
        return super().network(network) if self.precision == "bf16" else network.to(self.device)

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return super().layout(images) if self.precision == "bf16" else images

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": f"CPU ({torch.backends.cpu.get_cpu_capability()})"}
