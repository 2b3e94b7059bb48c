"""The CPU through eager PyTorch: the reference that every other platform is held against."""

import ctypes
import platform
from typing import Any

import torch
from torch import nn

from cxrbench.platforms.base import Platform

# mallopt(3): glibc returns every large activation to the kernel and faults it in again, 5,000 to 60,000 pages
# a step. So it keeps them: one arena, no memory maps, no trimming, 256 MiB at a time. Bits stay the same.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_KEEPING = {_M_ARENA_MAX: 1, _M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 256 << 20}


class CpuPlatform(Platform):
    """Same cell, same machine, same threads: bit-identical predictions."""

    name = "cpu"
    device = torch.device("cpu")

    def __init__(self, threads: int, precision: str) -> None:
        super().__init__(threads, precision)
        self._keeps_memory = keep_memory()

    # In fp32 channels_last gains on one processor what it loses on the next, and is not used; in bf16 no
    # network lost by it (docs/decisions.md, with what data/recorded/bench has).
    @property
    def _channels_last(self) -> bool:
        return self.precision == "bf16"

    def network(self, network: nn.Module) -> nn.Module:
        return super().network(network) if self._channels_last else network.to(self.device)

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return super().layout(images) if self._channels_last else images

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": f"CPU ({torch.backends.cpu.get_cpu_capability()})"}

    def report(self) -> dict[str, Any]:
        layout = "channels_last" if self._channels_last else "contiguous"
        return {"memory_layout": layout, "memory_kept": self._keeps_memory}


def keep_memory() -> bool:
    """Let this process keep the memory that it frees; return False where its C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all([library.mallopt(option, value) for option, value in _KEEPING.items()])
