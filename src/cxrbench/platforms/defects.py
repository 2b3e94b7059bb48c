"""Defects that the gate of steps must find, planted in one operator of a platform under test."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from cxrbench.common.errors import UserError
from cxrbench.platforms.gate import innermost
from cxrbench.platforms.judged import Stepped

Wrong = Callable[[Tensor], Tensor]


def _dense(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and module.groups == 1 and max(module.kernel_size) > 1


def _pointwise(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and module.groups == 1 and max(module.kernel_size) == 1


def _depthwise(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and 1 < module.groups == module.in_channels


MODULES: dict[str, Callable[[nn.Module], bool]] = {
    "dense": _dense,
    "depthwise": _depthwise,
    "pointwise": _pointwise,
    "linear": lambda module: isinstance(module, nn.Linear),
    "layernorm": lambda module: isinstance(module, nn.LayerNorm),
    "batchnorm": lambda module: isinstance(module, _BatchNorm),
    "gelu": lambda module: "GELU" in type(module).__name__,
    "pooling": lambda module: "Pool" in type(module).__name__,
}
OPERATORS = (*MODULES, "adamw", "averaging")
DEFECT_KINDS = ("sign", "factor", "rolled", "border", "stale")
PLACES = ("output", "input", "weight", "buffer")  # result; gradient of input, of weights; running statistics
FACTOR = 1.02


class NoSuchDefect(UserError):
    """A defect that cannot be planted."""


class Defect:
    """A kind of wrong result in place of an operator's: ``OPERATOR:KIND`` or ``OPERATOR:KIND:PLACE``.

    ``sign``: the other sign; ``factor``: times 1.02; ``rolled``: given to the next channel; ``border``: the
    last row with values, where there is one row the last channel, is never written;
    ``stale``: what the step before had.
    Without a place: the gradient of the weights, of the input where there are none. NoSuchDefect for what
    there is not.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.operator, _, kind_and_place = text.partition(":")
        self.kind, _, self.place = kind_and_place.partition(":")
        if self.operator not in OPERATORS or self.kind not in DEFECT_KINDS or self.place not in ("", *PLACES):
            raise NoSuchDefect(
                f"there is no defect '{text}'; give OPERATOR:KIND or OPERATOR:KIND:PLACE, with "
                f"{', '.join(OPERATORS)}; {', '.join(DEFECT_KINDS)}; {', '.join(PLACES)}"
            )

    def plant(self, stepped: Stepped) -> str:
        """Plant it in one such operator of a network; the name of its module, of a weight for the rest."""
        if self.operator in MODULES:
            return self._in_module(stepped)
        name, weight = next(
            (name, candidate) for name, candidate in stepped.network.named_parameters() if candidate.dim() > 1
        )
        if self.operator == "adamw":
            self._change(stepped.optimizer, "step", weight)
            return name.rpartition(".")[0]
        if not stepped.averaged:
            raise NoSuchDefect("nothing averages weights here; choose another defect")
        self._change(stepped.averaged, "update", stepped.averaged.state[name])
        return name

    def _in_module(self, stepped: Stepped) -> str:
        fits = MODULES[self.operator]
        modules = [
            (name, module_of) for name, module_of in innermost(stepped.network).items() if fits(module_of)
        ]
        if not modules:
            raise NoSuchDefect(f"this network has no {self.operator}; choose another defect or network")
        weight = next(iter(modules[0][1].parameters()), None)
        place = self.place or ("input" if weight is None else "weight")
        if place == "weight" and weight is None:
            raise NoSuchDefect(f"{self.operator} has no weights; choose output or input")
        if place == "buffer" and self.operator != "batchnorm":
            raise NoSuchDefect(f"{self.operator} keeps no running statistics; batchnorm does")
        # Images need no gradient: the first module of all may have none to make wrong.
        name, module = modules[-1 if place == "input" else 0]
        wrong = self.wrong(channel=-1 if self._last(module) else 1)
        if place == "weight" and weight is not None:
            weight.register_hook(self.wrong(channel=0))
        elif place == "output":
            module.register_forward_hook(lambda _, given, returned: wrong(returned), prepend=True)
        elif place == "input":
            module.register_forward_pre_hook(lambda _, given: (_passed(given[0], wrong), *given[1:]))
        elif isinstance(module, _BatchNorm) and module.running_mean is not None:
            keep = _in_place(self.wrong(channel=0), module.running_mean)
            module.register_forward_pre_hook(lambda *_: keep(True))
            # Not before: the backward pass needs what the forward pass left.
            stepped.optimizer.register_step_pre_hook(lambda *_: keep(False))
        return name

    def _last(self, module: nn.Module) -> bool:
        """Whether channels are the last dimension of what the module returns."""
        return isinstance(module, nn.Linear) or type(module) is nn.LayerNorm or self.operator == "gelu"

    def _change(self, owner: Any, method: str, tensor: Tensor) -> None:
        """Make what a method changes in a tensor wrong."""
        right, keep = getattr(owner, method), _in_place(self.wrong(channel=0), tensor)

        def wrongly(*positional: Any, **named: Any) -> Any:
            keep(True)
            result = right(*positional, **named)
            keep(False)
            return result

        setattr(owner, method, wrongly)

    def wrong(self, channel: int) -> Wrong:
        """A function that makes a tensor wrong."""
        before: list[Tensor] = []

        def stale(tensor: Tensor) -> Tensor:
            before.append(tensor.detach().clone())
            # In its place, not instead of it: the gradient goes on to what computed the new one.
            return tensor + (before.pop(0) - tensor).detach() if len(before) > 1 else tensor

        def along(tensor: Tensor) -> int:
            # After a convolution GELU's channels are the second dimension; its last may be of size one.
            dimension = channel % tensor.dim()
            return dimension if tensor.shape[dimension] > 1 else min(1, tensor.dim() - 1)

        def border(tensor: Tensor) -> Tensor:
            rows = tensor.dim() - 2
            last = rows if rows > 1 and tensor.shape[rows] > 1 else along(tensor)
            other_dimensions = [dimension for dimension in range(tensor.dim()) if dimension != last]
            # The last row that has values: a stride leaves others at zero, where nothing would be missing.
            place = torch.arange(tensor.shape[last], device=tensor.device)
            sums = tensor.detach().abs().sum(other_dimensions) if other_dimensions else tensor.detach().abs()
            written = place != (place * (sums > 0)).max()
            return tensor * written.to(tensor.dtype).view(
                [-1 if dimension == last else 1 for dimension in range(tensor.dim())]
            )

        return {
            "sign": lambda tensor: -tensor,
            "factor": lambda tensor: tensor * FACTOR,
            "rolled": lambda tensor: tensor.roll(1, along(tensor)),
            "border": border,
            "stale": stale,
        }[self.kind]


def _passed(tensor: Tensor, wrong: Wrong) -> Tensor:
    """The tensor itself, with a gradient that is made wrong."""
    copy = tensor.clone()
    if copy.requires_grad:
        copy.register_hook(wrong)
    return copy


def _in_place(wrong: Wrong, tensor: Tensor) -> Callable[[bool], None]:
    """A function to be called before and after a change of ``tensor``, which makes the change wrong."""
    kept: list[Tensor] = []

    @torch.no_grad()
    def keep(before: bool) -> None:
        if before:
            kept[:] = [tensor.detach().clone()]
        else:
            tensor.copy_(kept[0] + wrong(tensor - kept[0]))

    return keep
