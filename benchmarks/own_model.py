"""Anybody's own network and loss through the gate of steps (benchmarks/gate.py)."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from benchmarks.gate import Prepared, ready_for_the_gate, start_of
from cxrbench.common.errors import UserError
from cxrbench.platforms.base import Platform
from cxrbench.platforms.gate import Loss
from cxrbench.platforms.judged import Stepped

_RATE, _DECAY = 1e-3, 0.05  # of AdamW


@dataclass(frozen=True)
class OwnModel:
    """Anybody's network and loss: ``function``, as package.module:name, returns both.

    The loss is called with the network and a batch. ``batch``: a file that torch.save wrote, or random:SHAPE
    such as random:8x3x64x64, normal numbers.
    """

    function: str
    batch: str

    def __str__(self) -> str:
        return self.function

    def named(self) -> dict[str, Any]:
        """What a row says of the network."""
        return {"architecture": self.function, "batch": self.batch}

    def __call__(self, platform: Platform, seed: int) -> Prepared:
        torch.manual_seed(seed)
        network, loss = self._network_and_loss()
        ready_for_the_gate(network)
        batch = self._batch(seed)
        start = start_of(network, seed, batch)
        network = platform.network(network)
        optimizer = platform.optimizer([{"params": [*network.parameters()]}], _RATE, _DECAY)

        def take(batch: Any) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with platform.arithmetic():
                with platform.autocast():
                    value = loss(network, batch)
                value.backward()
            optimizer.step()
            platform.end_step()
            return value.detach().float()

        half = tree_map_only(Tensor, lambda value: value / 2 if value.is_floating_point() else value, batch)
        batches = [tree_map_only(Tensor, platform.to_device, tensors) for tensors in (half, batch)]
        return start, Stepped(platform, network, optimizer, take, loss), batches

    def _network_and_loss(self) -> tuple[nn.Module, Loss]:
        module, _, name = self.function.partition(":")
        sys.path.insert(0, str(Path.cwd()))
        try:
            made = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(f"--model {self.function}: {error}; give package.module:function") from None
        finally:
            sys.path.pop(0)
        given = made()
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], nn.Module)):
            raise UserError(f"--model {self.function}: it must return a network and a loss(network, batch)")
        return given

    def _batch(self, seed: int) -> Any:
        kind, _, shape = self.batch.partition(":")
        if kind == "random":
            try:
                sizes = [int(size) for size in shape.split("x")]
            except ValueError:
                raise UserError(
                    f"--batch {self.batch}: give random:SHAPE, such as random:8x3x64x64"
                ) from None
            return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
        try:
            return torch.load(self.batch, map_location="cpu", weights_only=True)
        except OSError as error:
            raise UserError(f"--batch {self.batch}: {error.strerror}; give a file, or random:SHAPE") from None
        except Exception as error:  # of unpickling, of which torch has many
            reason = str(error).splitlines()[0]
            raise UserError(f"--batch {self.batch}: {reason}; write it with torch.save") from None
