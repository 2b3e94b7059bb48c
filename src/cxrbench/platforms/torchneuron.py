"""Trainium 2 and 3 through TorchNeuron: ordinary PyTorch with device ``neuron``.

Never run on the hardware yet, and a public beta (docs/neuron.md). Sources: Neuron SDK 2.33 documentation,
torch/compile/reference-torch-compile, torch/guides/torch-distributed, torch/reference/env-vars and
torch/guides/memory-profiling-guide. What they leave open is unconfirmed (docs/neuron.md), and null in a
record where a version does not provide it.
"""

import importlib
from typing import Any

import torch
from torch import nn
from torch._dynamo import utils as dynamo

from cxrbench.platforms.adamw import AdamW
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
        self._neff_seconds = self._waited_for_neffs = 0.0
        self._constants: dict[float, torch.Tensor] = {}
        self._synchronised = self.clock()
        super().__init__(threads, precision)

    def network(self, network: nn.Module) -> nn.Module:
        network.to(self.device)
        # In place: names in checkpoints stay the same. Whole, or not at all: no part runs eagerly unnoticed.
        network.compile(backend=self.compiler, dynamic=False, fullgraph=True)
        return network

    def parallel(self, network: nn.Module) -> nn.Module:
        return network  # DDP around a compiled network has not been tried there

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device)  # asynchronous copies are not documented

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return images

    def optimizer(
        self, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        # Every number is a tensor: as a scalar a new rate may compile the update again.
        return AdamW(groups, learning_rate, weight_decay, changing=self.number, constant=self.constant)

    def number(self, value: float) -> torch.Tensor:
        return self.to_device(torch.tensor(value))

    def constant(self, value: float) -> torch.Tensor:
        # A Python float that meets a tensor is the reported cause of f64 in a graph (NCC_ESPP004).
        return self._constants.setdefault(value, self.number(value))

    def generator_state(self) -> dict[str, Any]:
        read = getattr(torch.get_device_module(self.device), "get_rng_state", None)
        return super().generator_state() | ({"neuron": read()} if read else {})

    def restore_generator(self, state: dict[str, Any]) -> None:
        super().restore_generator(state)
        if "neuron" in state:
            torch.get_device_module(self.device).set_rng_state(state["neuron"])

    def synchronise(self) -> None:
        torch.accelerator.synchronize()
        # NEFFs compile in parallel, after Dynamo's part: count no more of their seconds than have passed.
        to_neffs = sum(graph["neff_seconds"] for graph in self._graphs())
        self._waited_for_neffs += min(to_neffs - self._neff_seconds, self.clock() - self._synchronised)
        self._neff_seconds, self._synchronised = to_neffs, self.clock()

    def compiles(self) -> tuple[int, float]:
        seconds = dynamo.compilation_time_metrics.get("_compile.compile_inner", [])
        return int(dynamo.counters["stats"]["unique_graphs"]), sum(seconds) + self._waited_for_neffs

    def _graphs(self) -> list[dict[str, Any]]:
        """Name, nodes and seconds to NEFF of each graph; 0 s until its compiler has ended."""
        return [
            {
                "name": getattr(graph, "graph_name", None),
                "nodes": getattr(graph, "graph_node_count", None),
                "neff_seconds": getattr(graph, "torch_neuronx_compile_us", 0) / 1e6,
            }
            for graph in self._ask("get_dynamo_metrics", ())
        ]

    def peak_memory_mib(self) -> float | None:
        # Each may miss some: the monitor what comes and goes within its period, the allocator NEFFs.
        peaks = [super().peak_memory_mib(), self._allocated_mib()]
        return max((peak for peak in peaks if peak is not None), default=None)

    def _allocated_mib(self) -> float | None:
        """The most memory that tensors of this process have occupied."""
        peak = self._ask("max_memory_allocated", None)
        return None if peak is None else peak / 2**20

    def _ask(self, function: str, default: Any) -> Any:
        """Call a function of the library; a beta may lack it."""
        return getattr(self._library, function, lambda: default)()

    def report(self) -> dict[str, Any]:
        fallbacks = self._ask("get_fallback_ops", None)
        return {
            "compiler": f"torch.compile(backend='{self.compiler}', dynamic=False, fullgraph=True)",
            "compiler_options": "not documented, and no function gives them",
            "compiled_graphs": self._graphs(),
            "allocator_peak_mib": self._allocated_mib(),
            "generator_in_checkpoints": "neuron" in self.generator_state(),
            "fallback_operators": None if fallbacks is None else sorted(map(str, fallbacks)),
        } | super().report()
