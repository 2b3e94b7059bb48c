"""What the one training loop asks of a platform, with the answers that ordinary PyTorch gives."""

import os
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from cxrbench.common.errors import UserError


class Platform:
    """Ordinary PyTorch on one device. Subclasses change only what their device needs.

    ``threads`` and ``precision`` (of those that its entry offers) come from the recipe. What must be known of
    a platform before torch is imported, that entry, is in cxrbench/study/platforms.py.
    """

    name: str
    device: torch.device
    recomputes = True  # activations in backward, where a recipe has activation_checkpointing
    compiles_graphs = False  # as it meets them: the first steps are compilation
    backend = "gloo"  # how several processes talk to each other
    biased_variance = False  # BatchNorm's running one: divided by the number of values, not by one less
    keeps_input = True  # packed images may live on the device, where each batch is gathered from them
    steps_between_votes = 1  # processes agree on stopping and saving this often

    def __init__(self, threads: int, precision: str) -> None:
        self.threads = threads
        self.precision = precision
        torch.set_num_threads(threads)
        self.rank, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        if self.size > 1:
            distributed.init_process_group(self.backend)

    def allow_fastest_kernels(self) -> None:
        """Let libraries choose the fastest kernels, whether or not those repeat to the bit."""

    def do_without(self, part: str, why: str) -> None:
        """Leave out ``part`` (study/platforms.py), which failed in an earlier start because of ``why``."""

    def network(self, network: nn.Module) -> nn.Module:
        """The network on the device, in the memory layout that suits its convolutions best."""
        return network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """A host tensor on the device."""
        return tensor.to(self.device, non_blocking=True)

    def sent_ahead(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """What the next batch needs, from the thread that reads it: on the device where that may be sent so.

        Else as it is: :meth:`to_device` follows.
        """
        return tensors

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        """B x 1 x H x W images in the layout of :meth:`network`."""
        return images.contiguous(memory_format=torch.channels_last)

    def optimizer(
        self, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        """AdamW as this device runs it fastest with the same mathematics."""
        return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay, fused=True)

    def restore_network(self, network: nn.Module, values: dict[str, torch.Tensor]) -> None:
        """Fill a network on the device with a checkpoint's values, which its ``state_dict`` names."""
        network.load_state_dict(values)

    @torch.no_grad()
    def restore(self, tensors: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> None:
        """Fill tensors on the device with a checkpoint's values of the same names."""
        for name, tensor in tensors.items():
            tensor.copy_(values[name])

    def restore_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Put back what the optimizer's ``state_dict`` gave."""
        optimizer.load_state_dict(state)

    def number(self, value: float) -> float | torch.Tensor:
        """A number of the update that changes from step to step, in the form that this device needs."""
        return value

    def constant(self, value: float) -> float | torch.Tensor:
        """A number of a step that never changes, in the form that this device needs."""
        return value

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of forward and loss: bf16 autocast, or nothing for fp32."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def arithmetic(self) -> AbstractContextManager[Any]:
        """The context of forward, loss and backward, where another device's arithmetic is emulated."""
        return nullcontext()

    def settle(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Bring weights and moments to what this device keeps of them between steps: all, unless emulated."""

    def captured(self, work: Callable[..., Any], why_not: str | None = None) -> Callable[..., Any]:
        """``work`` (tensors or None in, tensors or None out), as this device repeats it fastest.

        It reads no tensor on the host, its inputs keep their shapes, and what it gives holds until its next
        call. With ``why_not`` it is never recorded, for that reason.
        """
        return work

    def end_step(self) -> None:
        """Where a training or evaluation step ends (lazy devices cut their graph here)."""

    def synchronise(self) -> None:
        """Wait for the device, and change nothing: called before every reading of a clock."""

    def compile_network(self) -> None:
        """Let torch.compile fuse what :meth:`parallel` returns from now on (``limits.torch_compile``)."""
        raise UserError(
            f"platform {self.name} cannot train with limits.torch_compile, which is for cuda; set it to false"
        )

    def parallel(self, network: nn.Module) -> nn.Module:
        """``network`` as training calls it: its backward averages gradients over processes as it goes.

        The network itself where there is one process, or the platform averages them with :meth:`mean`.
        """
        if self.size == 1:
            return network
        return DistributedDataParallel(network, broadcast_buffers=False, static_graph=True)

    def mean(self, tensors: list[torch.Tensor]) -> None:
        """Replace float tensors by their mean over all processes, in one message."""
        if self.size > 1 and tensors:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            distributed.all_reduce(flat)
            flat /= self.size
            parts = flat.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def seed(self, value: int) -> None:
        """Start all random generators that building a network or a step may use from ``value``, 0 or more."""
        torch.manual_seed(value)

    def generator_state(self) -> dict[str, Any]:
        """The states of these generators after :meth:`synchronise`, as a checkpoint can hold them."""
        return {"cpu": torch.get_rng_state()}

    def restore_generator(self, state: dict[str, Any]) -> None:
        """Put back what :meth:`generator_state` gave."""
        torch.set_rng_state(state["cpu"])

    def compiles(self) -> tuple[int, float]:
        """Graphs compiled so far, and the seconds that took."""
        return 0, 0.0

    def clock(self) -> float:
        """Seconds of a clock that stands still while this platform compiles: no second counts twice."""
        return time.monotonic() - self.compiles()[1]

    def peak_memory_mib(self) -> float | None:
        """The most memory this process has held on the device (host memory for a CPU); None: no reading."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def energy_joules(self) -> tuple[float | None, str | None]:
        """Joules used by the device since the start, or None with the reason."""
        return None, f"no energy counter is read on {self.name}"

    def describe(self) -> dict[str, Any]:
        """Device facts for the record: device, device_count, device_memory_gib, driver, sdk."""
        return {
            "device": self.name,
            "device_count": 1,
            "device_memory_gib": None,
            "driver": None,
            "sdk": None,
        }

    def report(self) -> dict[str, Any]:
        """What only this platform knows about the run, for the record."""
        return {}
