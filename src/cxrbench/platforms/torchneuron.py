"""Trainium 2 and 3 through TorchNeuron: ordinary PyTorch with device ``neuron``.

Never run on the hardware yet, and a public beta (docs/neuron.md). Sources: Neuron SDK 2.33 documentation,
torch/compile/reference-torch-compile, torch/guides/torch-distributed, torch/reference/env-vars.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn
from torch._dynamo import utils as dynamo

from cxrbench.platforms.base import Platform
from cxrbench.platforms.neuron_tools import Monitored


class TorchNeuronPlatform(Monitored, Platform):
    """One process per logical NeuronCore; the network is compiled, the rest runs eagerly."""

    name = "torchneuron"
    kind = "Trainium NeuronCore (TorchNeuron)"
    compiles_graphs = True
    device_type = "neuron"
    backend = "cpu:gloo,neuron:neuron"  # gradients on the device, values of the host through gloo
    compiler = "neuron"
    steps_between_votes = 10

    def __init__(self, threads: int, precision: str) -> None:
        self._library = importlib.import_module("torch_neuronx")  # registers the device and the backend
        self.device = torch.device(self.device_type)
        super().__init__(threads, precision)

    def network(self, network: nn.Module) -> nn.Module:
        network.to(self.device)
        network.compile(backend=self.compiler, dynamic=False)  # in place: names in checkpoints stay the same
        return network

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)  # asynchronous copies are not documented

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return images

    def optimizer(
        self, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay)

    def synchronise(self) -> None:
        torch.accelerator.synchronize()

    def compiles(self) -> tuple[int, float]:
        seconds = dynamo.compilation_time_metrics.get("_compile.compile_inner", [])
        return int(dynamo.counters["stats"]["unique_graphs"]), float(sum(seconds))

    def report(self) -> dict[str, Any]:
        fallbacks = getattr(self._library, "get_fallback_ops", lambda: None)()  # not in every version
        return {
            "compiler": f"torch.compile(backend='{self.compiler}', dynamic=False)",
            "fallback_operators": None if fallbacks is None else sorted(map(str, fallbacks)),
        } | super().report()
