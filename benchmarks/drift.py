"""Which operator of a training step drifts: one step from equal weights and images, followed part by part.

The parts come in the order in which a step computes them: what each innermost module gets and returns, and
the loss; backwards the gradients of what it returned and of what it got, then those of all weights; at last
the weights after the update. The first that differs from the CPU's names the operator that computed it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.store import STEP_TOLERANCE
from cxrbench.platforms.base import Platform
from cxrbench.study import platforms
from cxrbench.study.config import Recipe
from cxrbench.training.run import update_of
from cxrbench.training.steps import Steps

AUGMENTATION, LOSS = "the augmentation of images", "binary_cross_entropy_with_logits"
# Weights whose exact gradient is zero have rounding alone: it counts against this share of the largest.
_SHARE = 0.01


@dataclass(frozen=True)
class Part:
    """A tensor of a step, with the operator and the pass that computed it."""

    operator: str  # such as layer1.0.bn1 (BatchNorm2d)
    stage: str  # forward, backward or update
    tensor: torch.Tensor
    least: float = 0.0  # the norm that a difference is compared with is at least this


class _Followed:
    """What a network's innermost modules get and return in a step, copied, and the gradients of both."""

    def __init__(self, network: nn.Module) -> None:
        self.forward, self.backward, self._order = list[Part](), list[Part](), list[str]()
        modules = dict(network.named_modules())
        self._names = {of: f"{name or 'network'} ({type(of).__name__})" for name, of in modules.items()}
        for module in modules.values():
            if not [*module.children()]:
                module.register_forward_pre_hook(self._enter)
                module.register_forward_hook(self._leave)

    def _enter(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        self._order.append(name := self._names[module])
        if not (given and torch.is_tensor(given[0])):
            return None
        own = given[0].clone()  # whose gradient is of this call alone
        self._follow(own, self._before(len(self._order) - 1), lambda: name)
        return own, *given[1:]

    def _leave(self, module: nn.Module, given: tuple[Any, ...], returned: Any) -> None:
        if torch.is_tensor(returned):
            self._follow(returned, self._names[module], partial(self._before, len(self._order)))

    def _before(self, call: int) -> str:
        """Return what comes before a call of a module in the step's order, or before the loss."""
        if call == 0:
            return AUGMENTATION
        return (
            LOSS
            if call == len(self._order)
            else f"what is between {' and '.join(self._order[call - 1 : call + 1])}"
        )

    def _follow(self, tensor: torch.Tensor, operator: str, of_gradient: Callable[[], str]) -> None:
        """Copy a tensor now, and its gradient when it comes; ``of_gradient`` names what computed that."""

        def keep(gradient: torch.Tensor) -> None:
            self.backward.append(Part(of_gradient(), "backward", gradient.detach().clone()))

        self.forward.append(Part(operator, "forward", tensor.detach().clone()))
        if tensor.requires_grad:
            tensor.register_hook(keep)

    def parts(self, loss: float, update: str) -> Iterator[Part]:
        """Yield the parts of the step that was followed."""
        yield from (*self.forward, Part(LOSS, "forward", torch.tensor(loss)), *self.backward)
        weights = [(name, weight) for of, name in self._names.items() for weight in of.parameters(False)]
        gradients = [(name, weight.grad) for name, weight in weights if weight.grad is not None]
        least = _SHARE * max(float(gradient.norm()) for _, gradient in gradients)
        yield from (Part(name, "backward", gradient, least) for name, gradient in gradients)
        yield from (Part(update, "update", weight) for _, weight in weights)


def _step(
    architecture: str, device: Platform, recipe: Recipe, packed: Path, number: int, state: dict[str, Any]
) -> list[Part]:
    """Return the parts of the step ``number`` (from 1) on a platform, from the weights in ``state``."""
    trained = Steps(architecture, device, recipe, read_packed(packed), done=number - 1)
    device.restore_network(trained.network, state)
    batches = trained.all_batches()
    for _ in islice(batches, number - 1):
        pass
    followed = _Followed(trained.network)
    trained.take(batches)
    return list(followed.parts(trained.loss(), update_of(trained.optimizer)))


def drift(architecture: str, platform: str, recipe: Recipe, packed: Path, number: int) -> str:
    """Return in a sentence which operator of the step ``number`` is the first to differ from the CPU's."""
    exact = recipe.model_copy(update={"precision": "fp32"})
    cpu = platforms.load("cpu", recipe.threads, "fp32")
    before = Steps(architecture, cpu, exact, read_packed(packed))
    before.take(before.all_batches(), number - 1)
    state = {name: value.detach().clone() for name, value in before.network.state_dict().items()}
    on_cpu = _step(architecture, cpu, exact, packed, number, state)
    device = platforms.load(platform, recipe.threads, recipe.precision)
    there = _step(architecture, device, recipe, packed, number, state)
    limit, largest = STEP_TOLERANCE[recipe.precision], 0.0
    for one, other in zip(on_cpu, there, strict=True):
        difference = _difference(one, other)
        if not difference <= limit:
            return (
                f"{one.operator} is the first operator of step {number} that differs, in the {one.stage} "
                f"pass: by {difference:.1e}, all before it by {largest:.1e} at most"
            )
        largest = max(largest, difference)
    return (
        f"no operator of step {number} differs by itself: from equal weights all agree within {largest:.1e}, "
        "so the difference grew over the steps before"
    )


def _difference(one: Part, other: Part) -> float:
    """Return the norm of the difference over that of the CPU's tensor."""
    exact, values = (part.tensor.detach().cpu().double() for part in (one, other))
    apart = float((values - exact).norm())
    return apart / max(float(exact.norm()), one.least) if apart else 0.0
