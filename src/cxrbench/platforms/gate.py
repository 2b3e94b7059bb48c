"""The gate of steps: whether a device computes the training step that its weights and images ask for.

Every operator is judged by what it was given. Hooks keep what the innermost modules of a network get and
return in one step on the device, and the gradients of both. From these tensors each module is computed again
in float64 on the CPU, forward and backward, and so is all that lies between the modules, the loss, AdamW and
the averaged weights. An error therefore shows where it is made and nowhere else: nothing compounds, and a
ReLU that takes the other branch because of rounding is no difference. After that the same step is taken
without hooks, as training takes it, and its gradients are compared with those of a whole step in float64.

PyTorch's benchmarks judge by the same ratio (torch/_dynamo/utils.py, ``same``: error against float64 over
the reference's own, at most 2, 3 in half precision), and so does AWS for ports (Neuron SDK 2.32, equivalence
skill, R: 1.2 is accepted). Both compare results of whole modules or networks from equal inputs, forward.
Here the backward pass, update and buffers are judged too, on the device's own tensors; the reference's error
is the largest over kernels, layouts and seeds, not one run's; and each error has two parts.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

Loss = Callable[[nn.Module, Any], Tensor]  # of a network and a batch

_FP32, _BF16 = 2.0**-24, 2.0**-9  # half a unit in the last place of a value between one and two, or less
_STORED = 4  # roundings of a stored value in a step: decay, step and average are written one by one
LOSS, AUGMENTATION, WHOLE = "the loss", "the augmentation of images", "gradient over the whole step"


class TensorDifference(NamedTuple):
    """How far a tensor of a device is from the exact one, in two parts that no constant hides.

    ``direction``: the norm of what is orthogonal to the exact tensor; ``norm``: how far the part along it is
    from one. Both over the exact norm, so that a factor of 1.02 has a ``norm`` of 0.02, a flipped sign 2.
    """

    operator: str  # such as layer1.0.bn1 (BatchNorm2d)
    tensor: str  # output, gradient of its input 0, gradient of weight, update of weight ...
    direction: float
    norm: float
    size: tuple[int, ...]
    floor: float = 0.0  # what rounding of stored values, or of sums in the operator's own bf16, allows


def tensor_difference(operator: str, tensor: str, exact: Tensor, value: Tensor) -> TensorDifference:
    """The difference of ``value`` from ``exact``; infinite where it is not finite or has another shape."""
    size = tuple(exact.shape)
    computed = on_host(value)
    if computed.shape != exact.shape:
        return TensorDifference(operator, tensor, float("inf"), float("inf"), size)
    exact, computed = exact.detach().reshape(-1), computed.reshape(-1)
    square = float(exact @ exact)
    if square == 0:
        wrong = float("inf") if bool(computed.any()) else 0.0
        return TensorDifference(operator, tensor, wrong, wrong, size)
    scale = float(exact @ computed) / square
    residual = float((computed - scale * exact).norm()) / square**0.5
    if not math.isfinite(residual):  # one NaN or infinity among the values is enough
        return TensorDifference(operator, tensor, float("inf"), float("inf"), size)
    return TensorDifference(operator, tensor, residual, abs(scale - 1), size)


def change(operator: str, tensor: str, before: Tensor, exact: Tensor, value: Tensor) -> TensorDifference:
    """The difference of what changed a tensor that is stored in fp32, from ``before`` to ``value``."""
    right = exact - before
    stored = _STORED * _FP32 * float(exact.norm()) / max(float(right.norm()), 1e-300)
    return tensor_difference(operator, tensor, right, on_host(value) - before)._replace(floor=stored)


def on_host(value: Tensor) -> Tensor:
    """A copy on the CPU; float64 where it is of floats."""
    host = value.detach().cpu()
    return host.double() if host.is_floating_point() else host.clone()


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


# -- what a step leaves behind ---------------------------------------------------------------------


@dataclass
class Call:
    """A call of an innermost module: what it got and returned, flattened, and the gradients of both."""

    module: str
    structure: Any  # of its arguments
    given: list[Any]
    returned: list[Any] = field(default_factory=list)
    returns: Any = None  # structure of what it returned
    given_gradients: dict[int, Tensor] = field(default_factory=dict)
    returned_gradients: dict[int, Tensor] = field(default_factory=dict)


def innermost(network: nn.Module) -> dict[str, nn.Module]:
    """The modules that have no children, by name; without those that only pass on what they get."""
    named = network.named_modules()
    return {
        name: module
        for name, module in named
        if not [*module.children()] and not isinstance(module, nn.Identity | nn.Sequential)
    }


class Followed:
    """Keeps copies of what the innermost modules of a network get and return, until :meth:`end`."""

    def __init__(self, network: nn.Module) -> None:
        self.calls: list[Call] = []
        self._running: list[Call] = []
        self._handles = []
        for name, module in innermost(network).items():
            enter = partial(self._enter, name)
            self._handles.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave, with_kwargs=True))

    def end(self) -> None:
        """Follow no more."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, name: str, module: nn.Module, positional: Any, named: Any) -> Any:
        flat, structure = tree_flatten((positional, named))
        # Its own copies, so that a gradient is of this call alone; a second one, for it may work in place.
        copies = [value.clone() if _floats(value) else value for value in flat]
        kept = [value.detach().clone() if isinstance(value, Tensor) else value for value in copies]
        call = Call(name, structure, kept)
        _keep_gradients(copies, call.given_gradients)
        self.calls.append(call)
        self._running.append(call)
        return tree_unflatten(copies, structure)

    def _leave(self, module: nn.Module, positional: Any, named: Any, returned: Any) -> None:
        call = self._running.pop()
        flat, call.returns = tree_flatten(returned)
        call.returned = [value.detach().clone() if isinstance(value, Tensor) else value for value in flat]
        _keep_gradients(flat, call.returned_gradients)


def _keep_gradients(values: list[Any], into: dict[int, Tensor]) -> None:
    for place, value in enumerate(values):
        if _floats(value) and value.requires_grad:
            value.register_hook(
                lambda gradient, position=place: into.update({position: gradient.detach().clone()})
            )


# -- each operator again, exactly ------------------------------------------------------------------


class Exact:
    """One step in float64 on the CPU, from the weights of ``network``, operator by operator.

    ``network``: on the CPU, as it is before the step. ``loss`` is called with a copy of it. ``biased``: the
    device divides BatchNorm's running variance by the number of values, not by one less, as torch_xla does.
    """

    def __init__(self, network: nn.Module, loss: Loss, batch: Any, biased: bool = False) -> None:
        self._copy = lambda: _double_copy(network)
        self._loss, self._biased = loss, biased
        self._batch = tree_map(lambda value: on_host(value) if isinstance(value, Tensor) else value, batch)
        names = dict(network.named_modules())
        self._labels = {
            name: f"{name or 'network'} ({type(module).__name__})" for name, module in names.items()
        }

    def label(self, tensor: str) -> tuple[str, str]:
        """The operator that has the weight or buffer of this name, and its own name there."""
        module, _, weight = tensor.rpartition(".")
        return self._labels[module], weight

    def of_calls(
        self, calls: list[Call], gradients: dict[str, Tensor], buffers: dict[str, Tensor], loss: Tensor
    ) -> Iterator[TensorDifference]:
        """Yield the differences of a followed step, from what each operator was given.

        ``gradients`` and ``buffers`` are those that the step left behind, by name; ``loss`` is its loss.
        """
        network = self._copy()
        before = {name: value.clone() for name, value in network.named_buffers()}
        exact = dict[str, Tensor]()
        for call in calls:
            module = network.get_submodule(call.module)
            statistics = _statistics(module)
            yield from self._of_call(call, network, exact)
            # After its backward pass, which needs them as its forward pass left them.
            if statistics is not None and self._biased:
                _divide_by_all(module, statistics, call.given[0])
        sums = {call.module: _terms(call, network) for call in calls}
        yield from self._between(calls, network, exact, loss)
        for name, gradient in gradients.items():
            operator, weight = self.label(name)
            difference = tensor_difference(operator, f"gradient of {weight}", exact[name], gradient)
            terms = sums.get(name.rpartition(".")[0], 0) if gradient.dim() == 1 else 0
            # n roundings, of which half cancel by chance
            yield difference._replace(floor=2 * _BF16 * terms**0.5)
        for name, value in network.named_buffers():
            operator, weight = self.label(name)
            if name in buffers and value.is_floating_point():
                yield change(operator, f"change of {weight}", before[name], value, buffers[name])
            elif name in buffers and not torch.equal(value, buffers[name].cpu()):
                yield TensorDifference(operator, weight, float("inf"), float("inf"), tuple(value.shape))

    def _of_call(
        self, call: Call, network: nn.Module, exact: dict[str, Tensor]
    ) -> Iterator[TensorDifference]:
        """Yield the differences of what an innermost module returned, and of the gradient of what it got."""
        module, operator = network.get_submodule(call.module), self._labels[call.module]
        arguments = [on_host(value) if _floats(value) else value for value in call.given]
        for place in call.given_gradients:
            arguments[place].requires_grad_()
        # Clones: a module that works in place must not be given a leaf.
        copies = [value.clone() if _floats(value) else value for value in arguments]
        positional, named = tree_unflatten(copies, call.structure)
        returned = tree_flatten(module(*positional, **named))[0]
        for place, value in enumerate(returned):
            if _floats(value):
                yield tensor_difference(operator, f"output{_number(place)}", value, call.returned[place])
        outputs = [returned[place] for place in call.returned_gradients]
        weights = {
            name: weight for name, weight in module.named_parameters(call.module) if weight.requires_grad
        }
        inputs = [arguments[place] for place in call.given_gradients]
        if not outputs or not (differentiated := [*inputs, *weights.values()]):
            return
        of_outputs = [on_host(gradient) for gradient in call.returned_gradients.values()]
        exact_gradients = torch.autograd.grad(outputs, differentiated, of_outputs, allow_unused=True)
        for (place, gradient), value in zip(call.given_gradients.items(), exact_gradients, strict=False):
            right = torch.zeros_like(arguments[place]) if value is None else value
            yield tensor_difference(operator, f"gradient of its input{_number(place)}", right, gradient)
        for name, value in zip(weights, exact_gradients[len(inputs) :], strict=True):
            if value is not None:
                exact[name] = exact.get(name, 0) + value

    def _between(
        self, calls: list[Call], network: nn.Module, exact: dict[str, Tensor], loss: Tensor
    ) -> Iterator[TensorDifference]:
        """Yield the differences of what lies between the modules, which return what they did there."""
        differences: list[TensorDifference] = []
        waiting = {name: [call for call in calls if call.module == name] for name in innermost(network)}
        for name, module in innermost(network).items():
            module.forward = partial(self._again, waiting[name], differences)  # type: ignore[method-assign]
        right = self._loss(network, self._batch)
        right.backward()
        missed = [call for of_module in waiting.values() for call in of_module]
        yield from differences
        yield tensor_difference(LOSS, "value", right.detach().reshape(1), loss.reshape(1))
        for call in missed:
            yield TensorDifference(self._labels[call.module], "call", float("inf"), float("inf"), ())
        for name, weight in network.named_parameters():
            if weight.grad is not None:
                exact[name] = exact.get(name, 0) + weight.grad

    def _again(
        self, calls: list[Call], differences: list[TensorDifference], *positional: Any, **named: Any
    ) -> Any:
        """The output of the module's next call; any other input is noted."""
        call = calls.pop(0)
        flat = tree_flatten((positional, named))[0]
        before = f"what leads to {self._labels[call.module]}"
        for place, (right, value) in enumerate(zip(flat, call.given, strict=True)):
            if _floats(right):
                differences.append(tensor_difference(before, f"its input{_number(place)}", right, value))
        follows = f"what follows {self._labels[call.module]}"
        tensors = [value if _floats(value) else torch.zeros(()) for value in flat]
        needed = torch.zeros((), requires_grad=True)  # or a first module's output would need no gradient
        returned = _Returned.apply(call, follows, differences, needed, *tensors)
        return tree_unflatten(list(returned), call.returns)

    def whole(self, gradients: dict[str, Tensor]) -> Iterator[TensorDifference]:
        """Yield how far all gradients are from those of a whole step in float64: here errors compound."""
        network = self._copy()
        self._loss(network, self._batch).backward()
        for name, weight in network.named_parameters():
            if name in gradients and weight.grad is not None:
                operator, name_there = self.label(name)
                yield tensor_difference(operator, f"{name_there}, {WHOLE}", weight.grad, gradients[name])


class _Returned(torch.autograd.Function):
    """What a module returned on the device; backward, the gradient that it gave on there."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, follows: str, differences: list[TensorDifference], *tensors: Tensor
    ) -> Any:
        ctx.call, ctx.follows, ctx.found = call, follows, differences
        ctx.shapes = [tensor.shape for tensor in tensors[1:]]
        return tuple(on_host(value) if _floats(value) else value for value in call.returned)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        call = ctx.call
        for place, exact in enumerate(gradients):
            if place in call.returned_gradients:
                computed = call.returned_gradients[place]
                tensor = f"gradient of the output{_number(place)}"
                ctx.found.append(tensor_difference(ctx.follows, tensor, exact, computed))
        passed = [
            on_host(call.given_gradients[place]) if place in call.given_gradients else torch.zeros(shape)
            for place, shape in enumerate(ctx.shapes)
        ]
        return None, None, None, None, *passed


def _double_copy(network: nn.Module) -> nn.Module:
    return copy.deepcopy(network).double().train()


def _terms(call: Call, network: nn.Module) -> int:
    """How many values the gradient of a module's bias is a sum of, where the module returned bf16; else 0."""
    weight = next(network.get_submodule(call.module).parameters(), None)
    values = call.returned[0]
    if weight is None or not isinstance(values, Tensor) or values.dtype != torch.bfloat16:
        return 0
    return values.numel() // weight.shape[0]


def _number(place: int) -> str:
    return f" {place}" if place else ""


def _statistics(module: nn.Module) -> Tensor | None:
    if isinstance(module, _BatchNorm) and module.running_var is not None:
        return module.running_var.clone()
    return None


def _divide_by_all(module: Any, before: Tensor, values: Tensor) -> None:
    count = values.numel() / values.shape[1]
    kept = (1 - module.momentum) * before
    module.running_var.copy_(kept + (module.running_var - kept) * (count - 1) / count)
