"""Which platforms there are, as data: reading a study or the graph must not import torch.

A platform is a module of ``cxrbench/platforms`` and an entry here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """Where a platform's class is, and what must be known of it before torch is imported."""

    module: str
    cls: str
    family: str = "cpu"  # what it computes on: cpu, gpu or neuron; all but cpu is counted and paid in devices
    modules: tuple[str, ...] = ()  # Python packages that it needs besides torch
    found_by: tuple[str, str] | None = None  # path whose presence implies the device, message if it is absent

    @property
    def accelerated(self) -> bool:
        return self.family != "cpu"


ENTRIES: dict[str, Entry] = {
    "cpu": Entry("cpu", "CpuPlatform"),
    "cuda": Entry(
        "cuda",
        "CudaPlatform",
        family="gpu",
        found_by=("/proc/driver/nvidia/version", "there is no NVIDIA driver on this machine"),
    ),
    "neuron": Entry("neuron", "NeuronPlatform", family="neuron"),
    "torchneuron": Entry("torchneuron", "TorchNeuronPlatform", family="neuron"),
    "xla_cpu": Entry("xla", "XlaPlatform", modules=("torch_xla",)),
}
PLATFORMS: tuple[str, ...] = tuple(ENTRIES)
ACCELERATED = frozenset(name for name, entry in ENTRIES.items() if entry.accelerated)
FAMILIES = {name: entry.family for name, entry in ENTRIES.items() if entry.accelerated}
TRAINIUM = tuple(name for name, family in FAMILIES.items() if family == "neuron")
GPU = "cuda"
