"""One optimizer step on a device from given weights, judged tensor by tensor (platforms/gate.py)."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cxrbench.platforms.base import Platform
from cxrbench.platforms.gate import (
    AUGMENTATION,
    Exact,
    Followed,
    Loss,
    TensorDifference,
    change,
    on_host,
    tensor_difference,
)

_REPLAYED = 3  # steps without hooks on a device that records its steps: the last of them is replayed
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of an AdamW whose groups do not name them (platforms/adamw.py)
_MOMENTS = ("exp_avg", "exp_avg_sq")
AVERAGING = "the averaged weights"
Plant = Callable[["Stepped"], None]


@dataclass
class Stepped:
    """A network that takes optimizer steps on a device; ``averaged``, by name, has average weights, if any.

    ``take`` takes a step on a batch and returns its loss, a tensor on the device.
    """

    platform: Platform
    network: nn.Module
    optimizer: torch.optim.Optimizer
    take: Callable[[Any], Tensor]
    loss: Loss
    averaged: Any = None  # training.method.Averaged
    share: float = 0.0  # that a step's weights get in the average


@dataclass(frozen=True)
class StepStart:
    """What every judged step starts from, on the CPU."""

    network: nn.Module
    averaged: dict[str, Tensor]
    batch: Any  # what the judged batch is, where the CPU makes it

    def given_to(self, stepped: Stepped) -> None:
        """Fill the network on the device, and its averaged weights."""
        stepped.platform.restore_network(stepped.network, dict(self.network.state_dict()))
        if stepped.averaged:
            stepped.platform.restore(stepped.averaged.state, self.averaged)


@dataclass
class _Tensors:
    """All tensors that a step reads and writes besides activations, copied to the CPU, by name."""

    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]
    moments: dict[str, dict[str, Tensor]]
    averaged: dict[str, Tensor]

    @classmethod
    def of(cls, stepped: Stepped) -> "_Tensors":
        stepped.platform.synchronise()
        network, state = stepped.network, stepped.optimizer.state
        return cls(
            _copies(network.named_parameters()),
            _copies(network.named_buffers()),
            {
                name: _copies((kind, state[weight][kind]) for kind in _MOMENTS if kind in state[weight])
                for name, weight in network.named_parameters()
                if weight in state
            },
            _copies(stepped.averaged.state.items()) if stepped.averaged else {},
        )


def _copies(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True) for name, value in named}


def judge(
    stepped: Stepped, start: StepStart, batches: list[Any], compare: bool = True
) -> tuple[list[TensorDifference], str]:
    """The differences of the step on the last of ``batches`` from the exact one, and a digest of its bits.

    The batches before it are trained on first, so that AdamW's moments and what a defect may keep are there.
    Without ``compare`` the steps are taken, and nothing is compared.
    """
    *earlier, batch = batches
    for earlier_batch in earlier:
        start.given_to(stepped)
        stepped.take(earlier_batch)
    exact = Exact(start.network, stepped.loss, batch, stepped.platform.biased_variance)
    start.given_to(stepped)
    followed = Followed(stepped.network)
    loss = stepped.take(batch)
    followed.end()
    stepped.platform.synchronise()
    buffers = _copies(stepped.network.named_buffers())
    differences = list[TensorDifference]()
    if compare:
        differences += _of_batch(start.batch, batch)
        differences += exact.of_calls(followed.calls, _gradients(stepped.network), buffers, loss)
    del followed
    for _ in range(1 if stepped.platform.device.type == "cpu" else _REPLAYED):
        start.given_to(stepped)
        before = _Tensors.of(stepped)
        stepped.take(batch)
    after, gradients = _Tensors.of(stepped), _gradients(stepped.network)
    if compare:
        differences += [*exact.whole(gradients), *_updates(stepped, exact, before, after, gradients)]
    return differences, _digest([*gradients.values(), *after.weights.values(), *after.averaged.values()])


def _of_batch(exact: Any, batch: Any) -> Iterator[TensorDifference]:
    """Yield how far a batch on the device is from the one that the CPU makes."""
    for place, (right, value) in enumerate(zip(tree_leaves(exact), tree_leaves(batch), strict=True)):
        if isinstance(right, Tensor):
            yield tensor_difference(AUGMENTATION, f"tensor {place} of the batch", on_host(right), value)


def _gradients(network: nn.Module) -> dict[str, Tensor]:
    weights = network.named_parameters()
    return _copies((name, weight.grad) for name, weight in weights if weight.grad is not None)


def _digest(tensors: list[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _updates(
    stepped: Stepped, exact: Exact, before: _Tensors, after: _Tensors, gradients: dict[str, Tensor]
) -> Iterator[TensorDifference]:
    """Yield the differences of AdamW and of the average, from the gradients and moments that were there."""
    names = {parameter: name for name, parameter in stepped.network.named_parameters()}
    for group in stepped.optimizer.param_groups:
        for parameter in group["params"]:
            if (name := names[parameter]) not in gradients or not before.moments.get(name):
                continue
            taken = stepped.optimizer.state[parameter].get("step", group.get("step"))
            weight, gradient = before.weights[name].double(), gradients[name].double()
            moments = {kind: moment.double() for kind, moment in before.moments[name].items()}
            right = _adamw(group, int(taken), weight, gradient, moments)
            operator, name_there = exact.label(name)
            operator = f"{type(stepped.optimizer).__name__} on {operator}"
            yield change(operator, f"update of {name_there}", weight, right[0], after.weights[name])
            for kind, moment in zip(_MOMENTS, right[1:], strict=True):
                yield tensor_difference(
                    operator, f"{kind} of {name_there}", moment, after.moments[name][kind]
                )
    now = after.weights | after.buffers
    for name, average in after.averaged.items():
        if average.is_floating_point():
            old = before.averaged[name].double()
            yield change(AVERAGING, name, old, old + (now[name].double() - old) * stepped.share, average)


def _adamw(
    group: dict[str, Any], taken: int, weight: Tensor, gradient: Tensor, moments: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """A weight and both moments after AdamW's step ``taken`` (from 1), in float64."""
    rate, decay, (beta1, beta2) = float(group["lr"]), group["weight_decay"], group.get("betas", _BETAS)
    mean = beta1 * moments["exp_avg"] + (1 - beta1) * gradient
    square = beta2 * moments["exp_avg_sq"] + (1 - beta2) * gradient**2
    root = (square / (1 - beta2**taken)).sqrt() + group.get("eps", _EPSILON)
    return weight - rate * (decay * weight + mean / (1 - beta1**taken) / root), mean, square
