"""The CPU through eager PyTorch: the reference that every other platform is held against."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cxrbench.platforms.base import Platform


class CpuPlatform(Platform):
    """Same cell, same machine, same threads: bit-identical predictions."""

    name = "cpu"
    device = torch.device("cpu")

    # channels_last is slower for some networks here and gains less than 3 % for the others: not kept
    # (data/recorded/bench/*/gains.json).
    def network(self, network: nn.Module) -> nn.Module:
        return network.to(self.device)

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return images

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": f"CPU ({torch.backends.cpu.get_cpu_capability()})"}
