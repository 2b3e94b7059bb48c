"""The documented arithmetic of other devices, emulated on the CPU: what is rounded, where, and how.

Definitions, sources and what stays unknown: docs/arithmetic.md. No result here is one of an accelerator.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from cxrbench.common.errors import UserError
from cxrbench.platforms.base import Platform
from cxrbench.platforms.cpu import CpuPlatform
from cxrbench.study.recipe import Arithmetic

Rounding = Callable[[Tensor], Tensor]


def to_tf32(values: Tensor) -> Tensor:
    """fp32 values rounded to TF32's ten mantissa bits, ties away from zero, as sm_80's cvt.rna does.

    Source: PTX ISA, cvt.rna.tf32.f32. NaN and infinity pass; denormals are kept.
    """
    bits = values.view(torch.int32).add(0x1000).bitwise_and_(~0x1FFF)
    # Half a unit would turn a NaN whose mantissa is all ones into -0.
    return torch.where(values.isnan(), values, bits.view(torch.float32))


def to_bf16(values: Tensor) -> Tensor:
    """fp32 values rounded to bf16's seven mantissa bits, ties to even, as fp32."""
    return values.bfloat16().float()


def stochastic_bf16_(values: Tensor, words: np.ndarray) -> None:
    """Round fp32 ``values`` (n in all) in place to one of their two bf16 neighbours, right on average.

    ``words``: n random uint16. Of the lower half of each value's bits, the carry into the upper half decides.
    """
    drawn = torch.from_numpy(words.astype(np.int32)).view(values.shape)
    bits = values.view(torch.int32).add(drawn).bitwise_and_(-(1 << 16))
    values.copy_(torch.where(values.isfinite(), bits.view(torch.float32), values))


def draws(seed: int, step: int, tensor: int, count: int) -> np.ndarray:
    """``count`` random uint16 of the tensor with this number at this step (Philox: no state to save)."""
    # Keys of shuffling and augmentation are below 2**33 (training/method.py).
    generator = np.random.Philox(key=[seed, 2**33 + step], counter=[0, tensor, 0, 0])
    return generator.random_raw(-(-count // 4)).view(np.uint16)[:count]


# -- factors of products ---------------------------------------------------------------------------


class _Rounded(torch.autograd.Function):
    """A factor, rounded; its gradient passes."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rounding: Rounding) -> Tensor:
        return rounding(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient, None


class _RoundedGradient(torch.autograd.Function):
    """A product, as it is; its gradient, a factor of both products of the backward pass, is rounded."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rounding: Rounding) -> Tensor:
        ctx.rounding = rounding
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.rounding(gradient), None


_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}  # dimensions of the image
_UNKNOWN = {  # products that are neither: none of them may pass unrounded
    torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum, torch.bilinear,
    torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.mm, torch.Tensor.bmm, F.bilinear,
    torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d, F.scaled_dot_product_attention,
}  # fmt: skip


class RoundedProducts(TorchFunctionMode):
    """Convolutions and linear layers with rounded factors: input, weights, and in backward the gradient.

    The products are those of fp32 kernels: one of two rounded factors has at most 22 bits, so fp32 holds it.
    Sums, results and the gradient of a bias are fp32. ``linear`` and ``grouped``: whether linear layers and
    convolutions of several groups are rounded too. ``products`` counts what was rounded. UserError for a
    product of another kind, which would escape.
    """

    def __init__(self, rounding: Rounding, *, linear: bool = True, grouped: bool = True) -> None:
        super().__init__()
        self._rounding, self._linear, self._grouped = rounding, linear, grouped
        self.products = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _UNKNOWN and self._linear:
            rounds = "the emulated arithmetic rounds convolutions and linear layers"
            raise UserError(f"{rounds}, not {func.__name__}; choose a network without it")
        if func in _CONVOLUTIONS:
            groups = args[6] if len(args) > 6 else kwargs.get("groups", 1)
            rounded = self._grouped or groups == 1
        else:
            rounded = func is F.linear and self._linear
        return self._product(func, *args, **kwargs) if rounded else func(*args, **kwargs)

    def _product(
        self, func: Any, values: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any
    ) -> Tensor:
        self.products += 1
        factors = (_Rounded.apply(factor, self._rounding) for factor in (values, weight))
        product: Tensor = _RoundedGradient.apply(func(*factors, None, *rest, **named), self._rounding)
        return product if bias is None else product + bias.view(-1, *[1] * _CONVOLUTIONS.get(func, 0))


# -- results of operators --------------------------------------------------------------------------

_ATEN = torch.ops.aten
_PRODUCTS = {
    _ATEN.convolution, _ATEN.convolution_backward, _ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm,
}  # fmt: skip


class RoundedResults(TorchDispatchMode):
    """Every operator's fp32 results rounded to bf16, forward and backward, and the factors of products.

    Sums inside an operator stay fp32. What an operator changes in place besides its results (BatchNorm's
    statistics) is left to :meth:`EmulatedCpu.settle`.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in _PRODUCTS:
            args = tree_map_only(Tensor, _in_bf16, args)
        result = func(*args, **(kwargs or {}))
        if func.is_view:  # of values that are rounded already
            return result
        return tree_map_only(Tensor, lambda values: values.copy_(_in_bf16(values)), result)


def _in_bf16(values: Tensor) -> Tensor:
    return to_bf16(values) if values.dtype == torch.float32 else values


# -- the platform ----------------------------------------------------------------------------------


class EmulatedCpu(CpuPlatform):
    """The CPU with the documented roundings of another device; ``arithmetic`` is a recipe's."""

    def __init__(self, threads: int, precision: str, arithmetic: Arithmetic) -> None:
        super().__init__(threads, precision)
        self.arithmetic_name = arithmetic
        self._rounds_all = arithmetic in ("bf16_nearest", "bf16_stochastic")

    @property
    def _channels_last(self) -> bool:
        return self.arithmetic_name == "fp32_reordered"

    def arithmetic(self) -> AbstractContextManager[Any]:
        if self.arithmetic_name == "matmult_bf16":
            return RoundedProducts(to_bf16)
        if self.arithmetic_name == "tf32_conv":
            return RoundedProducts(to_tf32, linear=False, grouped=False)
        return RoundedResults() if self._rounds_all else nullcontext()

    def seed(self, value: int) -> None:
        super().seed(value)
        self._seed = value

    @torch.no_grad()
    def settle(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Round weights and both moments of AdamW once, after fp32 has added decay and step; and buffers.

        Before the first step, when there are no moments, to the nearest in both arms.
        """
        if not self._rounds_all:
            return
        for values in network.buffers():
            if values.is_floating_point():
                values.copy_(to_bf16(values))
        for number, weights in enumerate(network.parameters()):
            state = optimizer.state.get(weights, {})
            moments = [state[name] for name in ("exp_avg", "exp_avg_sq") if state]
            for part, values in enumerate([weights, *moments]):
                if state and self.arithmetic_name == "bf16_stochastic":
                    words = draws(self._seed, int(state["step"]), 3 * number + part, values.numel())
                    stochastic_bf16_(values, words)
                else:
                    values.copy_(to_bf16(values))

    def report(self) -> dict[str, Any]:
        return super().report() | {"arithmetic": self.arithmetic_name}


def emulated(platform: type[Platform], threads: int, precision: str, arithmetic: Arithmetic) -> Platform:
    """The CPU that emulates ``arithmetic``; UserError for another platform."""
    if platform is not CpuPlatform:
        raise UserError(f"arithmetic '{arithmetic}' is emulated on cpu alone, not on {platform.name}")
    return EmulatedCpu(threads, precision, arithmetic)
