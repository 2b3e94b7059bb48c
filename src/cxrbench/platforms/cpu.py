"""The CPU through eager PyTorch: the reference that every other platform is held against."""

from __future__ import annotations

from typing import Any

import torch

from cxrbench.platforms.base import Platform


class CpuPlatform(Platform):
    """Same cell, same machine, same threads: bit-identical predictions."""

    name = "cpu"
    device = torch.device("cpu")

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": f"CPU ({torch.backends.cpu.get_cpu_capability()})"}
