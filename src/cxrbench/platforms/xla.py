"""torch_xla: what XLA asks of an ordinary PyTorch loop.

XLA records operations and compiles them when the graph is cut. Eight things follow, marked (1) to (8); the
last three are rules that the loop keeps on every platform. The rest answers what the loop asks each platform.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from cxrbench.common.errors import UserError
from cxrbench.platforms.adamw import AdamW
from cxrbench.platforms.base import Platform

os.environ.setdefault("PJRT_DEVICE", "CPU")  # unset, torch_xla guesses; this device is always there
if os.environ["PJRT_DEVICE"] == "CPU":
    # Else torch_neuronx, where installed, puts its custom calls into torch_xla (aws-neuron-sdk issue 789).
    os.environ["NEURON_INTERNAL_USE_VANILLA_TORCH_XLA"] = "1"

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as xla_metrics


class XlaPlatform(Platform):
    """torch_xla on its CPU device: the same lazy graphs as on an accelerator, testable anywhere."""

    name = "xla_cpu"
    biased_variance = True
    compiles_graphs = True
    recomputes = False  # torch.utils.checkpoint fails under torch_xla 2.9 (aws-neuron-sdk issue 1317)
    hardware = "CPU"
    processes: tuple[int, ...] = (1,)  # that work together: gloo takes no XLA tensors

    def __init__(self, threads: int, precision: str) -> None:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count not in self.processes:
            raise UserError(
                f"platform {self.name} cannot run in {count} processes, only in "
                f"{', '.join(map(str, self.processes))}; change limits.processes"
            )
        super().__init__(threads, precision)
        # (1) The device: tensors that live on it are lazy, and it has a random generator of its own.
        self.device = torch_xla.device()

        hardware = xm.xla_device_hw(self.device)
        if hardware != self.hardware:
            raise UserError(
                f"platform {self.name} cannot run here: torch_xla found {hardware}, not {self.hardware} "
                f"(PJRT_DEVICE is {os.environ['PJRT_DEVICE']})"
            )

    def seed(self, value: int) -> None:
        super().seed(value)
        # (1), continued: PyTorch's own seed does not reach that generator.
        torch_xla.manual_seed(value)

    def generator_state(self) -> dict[str, Any]:
        # (1), continued: its state is one integer, and belongs to a checkpoint.
        return super().generator_state() | {"xla": xm.get_rng_state()}

    def restore_generator(self, state: dict[str, Any]) -> None:
        super().restore_generator(state)
        # (1), continued: a resumed run goes on from that state.
        xm.set_rng_state(state["xla"])

    def network(self, network: nn.Module) -> nn.Module:
        # (2) Built on the CPU, then moved: otherwise initialisation becomes part of the first graph.
        return network.to(self.device)

    def sent_ahead(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return self._sent(tensors)  # beside the step, as torch_xla's own loaders do

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return images  # XLA lays tensors out itself

    def parallel(self, network: nn.Module) -> nn.Module:
        return network  # DDP's hooks would cut the graph

    def optimizer(
        self, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        # (3) AdamW with bias corrections from the host: no counters on the device, no f64 in the graph.
        return AdamW(groups, learning_rate, weight_decay, changing=self.number)

    def restore_network(self, network: nn.Module, values: dict[str, torch.Tensor]) -> None:
        tensors = network.state_dict(keep_vars=True)
        # (2) as well: a resumed run makes its tensors in the order of a new one. Another is another graph.
        self.restore({name: tensors[name] for name in _as_moved(network) if name in tensors}, values)

    @torch.no_grad()
    def restore(self, tensors: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        sent = self._sent(values[name] for name in tensors)
        for tensor, value in zip(tensors.values(), sent, strict=True):
            tensor.set_(value)  # type: ignore[call-overload]  # a copy's memory would not be used again

    def restore_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        super().restore_optimizer(optimizer, state)
        places = [(of_weight, name) for of_weight in optimizer.state.values() for name in of_weight]
        sent = self._sent(of_weight[name] for of_weight, name in places)
        for (of_weight, name), value in zip(places, sent, strict=True):
            of_weight[name] = value

    def _sent(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        # (5) as well: sent one by one, equal numbers would become one value, and another graph.
        sent: Any = xm.send_cpu_data_to_device([tensor.cpu() for tensor in tensors], self.device)
        return list(sent)

    def autocast(self) -> AbstractContextManager[None]:
        return torch.autocast("xla", dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def end_step(self) -> None:
        # (4) The step barrier: cut the graph here, or it grows until memory ends.
        torch_xla.sync()

    def number(self, value: float) -> float | torch.Tensor:
        # (5) Numbers that change are tensors, in (3) and in the loop's sum of losses as well: where a scalar
        # meets another, zero or one, the graph is another.
        return self.to_device(torch.tensor([value]))

    # (6) Static shapes: training/method.py fills up the last batch, in training and in evaluation.
    # (7) No host reads inside the step: training/run.py reads the loss between steps.
    # (8) One graph scores: training/method.py calls the network with the averaged weights, and never fills it
    # with them.

    def synchronise(self) -> None:
        # (1), continued: every sync moves the generator on, and a reading of the clock must not.
        state = xm.get_rng_state()
        torch_xla.sync(wait=True)
        xm.set_rng_state(state)
        xm.wait_device_ops()  # a sync with nothing to compile waits for dispatch alone

    def compiles(self) -> tuple[int, float]:
        timed = xla_metrics.metric_data("CompileTime")  # (samples, nanoseconds, ...); None before the first
        return (timed[0], timed[1] / 1e9) if timed else (0, 0.0)

    def report(self) -> dict[str, Any]:
        fallbacks = sorted(name for name in xla_metrics.counter_names() if name.startswith("aten::"))
        return {"fallback_operators": fallbacks}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": "torch_xla on its CPU device"}


def _as_moved(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Yield the names of a module's tensors in the order in which ``Module.to`` moves them."""
    for name, child in module.named_children():
        yield from _as_moved(child, f"{prefix}{name}.")
    for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        yield prefix + name
