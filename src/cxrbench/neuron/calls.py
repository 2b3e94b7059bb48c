"""GELU in a graph as torch_neuronx sends it: a custom call, which only Neuron's compiler can compile.

Targets: Neuron SDK docs, compiler/error-codes/EVRF015. Forward is a call on the input; backward multiplies
the gradient by another one (torch_neuronx/xla_impl/ops.py, a public copy; forward also in public HLO dumps).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

_GELU_TARGET, _GELU_BACKWARD_TARGET = "AwsNeuronGelu", "AwsNeuronGeluBackward"
_UNSPECIFIED = 0  # the version of the call's interface, as in these dumps


@contextmanager
def gelu_as_on_neuron() -> Iterator[None]:
    """Trace exact GELU as custom calls; the approximation by tanh stays what it is."""
    plain = functional.gelu

    def gelu(values: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        if approximate != "none" or values.device.type != "xla":
            return plain(values, approximate=approximate)
        called: torch.Tensor = _Gelu.apply(values)  # type: ignore[no-untyped-call]
        return called

    with mock.patch.object(functional, "gelu", gelu), mock.patch.object(torch._C._nn, "gelu", gelu):
        yield


class _Gelu(torch.autograd.Function):
    """Exact GELU by Neuron's custom calls; what they compute is not known here."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return _call(_GELU_TARGET, values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (values,) = ctx.saved_tensors
        return gradient * _call(_GELU_BACKWARD_TARGET, values)


def _call(target: str, values: torch.Tensor) -> torch.Tensor:
    """A custom call on ``values`` with a result like them (the function is private: pinned)."""
    import torch_xla  # after its device was chosen (platforms/xla.py)

    made = torch_xla._XLAC._xla_custom_call(
        [values], target, [list(values.shape)], [values.dtype], False, "", _UNSPECIFIED, {}
    )
    result: torch.Tensor = made[0]
    return result
