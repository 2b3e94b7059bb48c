"""Emulated arithmetic: each rounding against its definition, no product missed, nothing else touched."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, conv2d, linear
from torch.utils._python_dispatch import TorchDispatchMode

from cxrbench.common.errors import UserError
from cxrbench.platforms.emulated import (
    EmulatedCpu,
    RoundedProducts,
    draws,
    stochastic_bf16_,
    to_bf16,
    to_tf32,
)
from cxrbench.study import platforms

aten = torch.ops.aten
BITS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=64)


def floats(bits: list[int]) -> Tensor:
    return torch.from_numpy(np.array(bits, np.int32).view(np.float32).copy())


def exact_tf32(value: float) -> float:
    """Ten bits after the leading one, ties away from zero, from the definition and in float64."""
    exponent = np.frexp(np.float64(value))[1]
    unit = 2.0 ** max(exponent - 11, -126 - 10)
    return float(np.copysign(np.floor(abs(np.float64(value)) / unit + 0.5) * unit, value))


@given(BITS)
def test_tf32_is_ten_bits_with_ties_away_and_keeps_nan_and_infinity(bits: list[int]) -> None:
    values = floats(bits)
    rounded = to_tf32(values)
    for value, got in zip(values.tolist(), rounded.tolist(), strict=True):
        if not np.isfinite(value):
            assert np.isnan(got) if np.isnan(value) else got == value
        else:
            expected = exact_tf32(value)
            assert got == (expected if abs(expected) < 2.0**128 else np.copysign(np.inf, value))
    again = to_tf32(rounded)
    assert torch.equal(again.view(torch.int32)[~again.isnan()], rounded.view(torch.int32)[~again.isnan()])


def test_a_nan_of_all_ones_and_a_tie_are_seen() -> None:
    """Cutting half a unit on would turn that NaN into -0; ties to even would leave 1 + 2**-11 at 1."""
    ones, tie = floats([0x7FFFFFFF]), torch.tensor([1 + 2.0**-11, -1 - 2.0**-11])
    assert to_tf32(ones).isnan().all()
    assert to_tf32(tie).tolist() == [1 + 2.0**-10, -1 - 2.0**-10]
    assert to_bf16(torch.tensor([1 + 2.0**-8])).tolist() == [1.0]  # ties to even


@given(BITS, st.integers(0, 2**32 - 1), st.integers(1, 3000))
def test_stochastic_rounding_goes_to_a_neighbour_and_repeats(bits: list[int], seed: int, step: int) -> None:
    values = floats(bits)
    rounded, again = values.clone(), values.clone()
    stochastic_bf16_(rounded, draws(seed, step, 5, len(values)))
    stochastic_bf16_(again, draws(seed, step, 5, len(values)))
    assert torch.equal(rounded.view(torch.int32), again.view(torch.int32))
    finite = values.isfinite()
    assert torch.equal(rounded[~finite].view(torch.int32), values[~finite].view(torch.int32))
    before, after = (kind[finite].view(torch.int32) for kind in (values, rounded))
    assert (after & 0xFFFF == 0).all() and ((after - (before & -(1 << 16))) // (1 << 16) <= 1).all()


def test_stochastic_rounding_is_right_on_average_and_its_draws_differ() -> None:
    count = 4_000_000
    values = torch.full((count,), 1.001)
    words = draws(3, 7, 11, count)
    stochastic_bf16_(values, words)
    assert abs(values.double().mean() - 1.001) < 4 * 2**-7 / 2 / count**0.5  # four standard errors at most
    others = [draws(4, 7, 11, count), draws(3, 8, 11, count), draws(3, 7, 12, count)]
    assert all(abs(np.corrcoef(words[:100_000], other[:100_000])[0, 1]) < 0.02 for other in others)


# -- products: against float64 of the rounded factors ----------------------------------------------

LAYERS = {
    "dense": (nn.Conv2d(8, 16, 3, padding=1), (4, 8, 12, 12)),
    "strided": (nn.Conv2d(8, 16, 3, 2, padding=1, bias=False), (4, 8, 12, 12)),
    "stem": (nn.Conv2d(1, 16, 7, 2, padding=3), (4, 1, 24, 24)),
    "depthwise": (nn.Conv2d(16, 16, 7, padding=3, groups=16), (4, 16, 12, 12)),
    "grouped": (nn.Conv2d(16, 32, 3, padding=1, groups=4), (4, 16, 12, 12)),
    "pointwise": (nn.Conv2d(16, 32, 1), (4, 16, 12, 12)),
    "patches": (nn.Conv2d(4, 16, 4, 4), (4, 4, 16, 16)),
    "linear": (nn.Linear(32, 16), (8, 32)),
    "linear of four": (nn.Linear(32, 16), (4, 3, 3, 32)),
}
ROUNDINGS = {"tf32": (to_tf32, 1.1e-6, 1e-4), "bf16": (to_bf16, 1.1e-6, 8e-4)}


def product(layer: nn.Module, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        return conv2d(x, w, b, layer.stride, layer.padding, 1, layer.groups)  # type: ignore[arg-type]
    return linear(x, w, b)


def passed(layer: Any, x: Tensor, g: Tensor) -> list[Tensor]:
    """Output, input gradient, weight gradient, bias gradient."""
    x, w = x.clone().requires_grad_(), layer.weight.detach().clone().to(x.dtype).requires_grad_()
    b = None if layer.bias is None else layer.bias.detach().clone().to(x.dtype).requires_grad_()
    y = product(layer, x, w, b)
    y.backward(g)
    return [y.detach(), x.grad, w.grad, *([] if b is None else [b.grad])]  # type: ignore[list-item]


def far(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("kind", ROUNDINGS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_product_is_that_of_rounded_factors_and_its_bias_is_not_rounded(name: str, kind: str) -> None:
    torch.manual_seed(0)
    (layer, shape), (rounding, exact, changed) = LAYERS[name], ROUNDINGS[kind]
    x = torch.randn(shape)
    g = torch.randn_like(product(layer, x, layer.weight, layer.bias))
    with RoundedProducts(rounding):
        got = passed(layer, x, g)
    wide_w, wide_b = rounding(layer.weight.detach()).double(), layer.bias
    forward = product(layer, rounding(x).double(), wide_w, None if wide_b is None else wide_b.double())
    assert far(got[0], forward) < exact
    wide_x = rounding(x).double().requires_grad_()
    wide_w = wide_w.clone().requires_grad_()
    product(layer, wide_x, wide_w, None).backward(rounding(g).double())
    assert far(got[1], wide_x.grad) < exact and far(got[2], wide_w.grad) < exact  # type: ignore[arg-type]
    plain = passed(layer, x, g)
    assert all(far(mine, theirs) > changed for mine, theirs in zip(got[:3], plain[:3], strict=True))
    if layer.bias is not None:
        assert far(got[3], plain[3]) < 1e-6


class Factors(TorchDispatchMode):
    """Counts products and those with a factor that is not in ``rounding``'s values; sees backward too."""

    def __init__(self, rounding: Any) -> None:
        super().__init__()
        self.rounding, self.products, self.unrounded = rounding, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind, factors = func.overloadpacket, []
        if kind in (aten.convolution, aten.mm, aten.bmm):
            factors = args[:2]
        elif kind is aten.convolution_backward:
            factors = args[:3]
        elif kind is aten.addmm:
            factors = args[1:3]
        self.products += bool(factors)
        self.unrounded += any(not torch.equal(self.rounding(each), each) for each in factors)
        return func(*args, **(kwargs or {}))


def a_step(name: str, context: Any) -> nn.Module:
    torch.manual_seed(0)
    network = timm.create_model(name, in_chans=1, num_classes=14)
    images, labels = torch.randn(8, 1, 32, 32), (torch.rand(8, 14) < 0.2).float()
    with context:
        binary_cross_entropy_with_logits(network(images), labels).backward()
    return network


@pytest.mark.parametrize(
    ("name", "all_products", "one_group"), [("resnet18", 21, 20), ("convnext_pico", 41, 28)]
)
def test_no_product_of_the_networks_is_missed(name: str, all_products: int, one_group: int) -> None:
    """The counts that the declaration names; the check below is shown to see a product that escapes."""
    mode = RoundedProducts(to_bf16)
    with Factors(to_bf16) as seen:
        a_step(name, mode)
    assert mode.products == all_products and seen.unrounded == 0
    assert seen.products >= 2 * all_products  # forward, and backward of inputs and weights
    tf32 = RoundedProducts(to_tf32, linear=False, grouped=False)
    with Factors(to_tf32) as seen:
        a_step(name, tf32)
    assert tf32.products == one_group
    # Each depthwise convolution and the classifier escape: forward once, backward once or (linear) twice.
    depthwise = all_products - one_group - 1
    assert seen.unrounded == 2 * depthwise + 3


def test_products_of_another_kind_are_refused() -> None:
    with pytest.raises(UserError, match="not scaled_dot_product_attention"):
        a_step_of_attention(RoundedProducts(to_bf16))
    with pytest.raises(UserError, match="not matmul"), RoundedProducts(to_bf16):
        torch.randn(2, 2) @ torch.randn(2, 2)
    a_step_of_attention(RoundedProducts(to_tf32, linear=False, grouped=False))  # fp32


def a_step_of_attention(context: Any) -> None:
    q = torch.randn(1, 2, 4, 8)
    with context:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)


# -- results of operators, weights and moments -----------------------------------------------------


class Results(TorchDispatchMode):
    """Counts the operators, views aside, with an fp32 result outside of bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.wide: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if torch.is_tensor(one) and one.dtype == torch.float32 and not torch.equal(to_bf16(one), one):
                self.wide.append(str(func))
        return result


def parts(network: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    yield from network.parameters()
    yield from (buffer for buffer in network.buffers() if buffer.is_floating_point())
    for state in optimizer.state.values():
        yield from (state["exp_avg"], state["exp_avg_sq"])


def trained(arithmetic: str, steps: int, name: str = "test_resnet") -> tuple[nn.Module, Any, EmulatedCpu]:
    platform = platforms.load("cpu", 2, "fp32", None, arithmetic)  # type: ignore[arg-type]
    platform.seed(0)
    network = platform.network(timm.create_model(name, in_chans=1, num_classes=14))
    optimizer = platform.optimizer([{"params": list(network.parameters())}], 1e-3, 0.05)
    platform.settle(network, optimizer)
    images, labels = torch.randn(8, 1, 32, 32), (torch.rand(8, 14) < 0.2).float()
    for _ in range(steps):
        optimizer.zero_grad()
        with platform.arithmetic():
            loss = binary_cross_entropy_with_logits(network(platform.layout(images)), labels)
            loss.backward()
        optimizer.step()
        platform.settle(network, optimizer)
    return network, optimizer, platform


@pytest.mark.parametrize("arithmetic", ["bf16_nearest", "bf16_stochastic"])
def test_every_result_weight_and_moment_is_in_bf16(arithmetic: str) -> None:
    network, optimizer, platform = trained(arithmetic, 3)
    assert all(torch.equal(to_bf16(part), part) for part in parts(network, optimizer))
    images, labels = to_bf16(torch.randn(8, 1, 32, 32)), (torch.rand(8, 14) < 0.2).float()
    optimizer.zero_grad()
    with platform.arithmetic():
        binary_cross_entropy_with_logits(network(images), labels).backward()
    gradients = [weights.grad for weights in network.parameters()]
    assert all(torch.equal(to_bf16(gradient), gradient) for gradient in gradients)  # type: ignore[arg-type]
    with Results() as outside:  # the same without the emulation: the check sees it
        binary_cross_entropy_with_logits(network(images), labels).backward()
    assert len(outside.wide) > 20


def test_the_second_moment_can_fall_under_stochastic_rounding_alone() -> None:
    """0.999 v rounds back to v for every bf16 value; stochastically the mean of v falls as it must."""
    moments = {}
    for kind in ("nearest", "stochastic"):
        platform = platforms.load("cpu", 2, "fp32", None, f"bf16_{kind}")  # type: ignore[arg-type]
        platform.seed(0)
        network = nn.Linear(200, 100)
        optimizer = platform.optimizer([{"params": list(network.parameters())}], 1e-3, 0.0)
        for step in range(150):
            for weights in network.parameters():
                weights.grad = torch.full_like(weights, 1.0 if step == 0 else 0.0)
            optimizer.step()
            platform.settle(network, optimizer)
        moments[kind] = float(optimizer.state[network.weight]["exp_avg_sq"].double().mean())
    expected = 0.001 * 0.999**149
    assert moments["nearest"] > 0.99 * float(to_bf16(torch.tensor(0.001)))
    assert abs(moments["stochastic"] / expected - 1) < 0.01


def test_emulation_takes_nothing_from_the_generator_that_dropout_uses() -> None:
    states = []
    for arithmetic in ("own", "bf16_stochastic"):
        platform = platforms.load("cpu", 2, "fp32", None, arithmetic)  # type: ignore[arg-type]
        platform.seed(0)
        network = nn.Linear(50, 20)
        optimizer = platform.optimizer([{"params": list(network.parameters())}], 1e-3, 0.0)
        for weights in network.parameters():
            weights.grad = torch.ones_like(weights)
        optimizer.step()
        platform.settle(network, optimizer)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_another_order_of_summation_changes_bits_and_little_else() -> None:
    plain, reordered = (trained(kind, 1, "resnet18")[0] for kind in ("own", "fp32_reordered"))
    gradients = [torch.cat([w.grad.reshape(-1) for w in each.parameters()]) for each in (plain, reordered)]  # type: ignore[union-attr]
    assert 0 < far(gradients[1], gradients[0]) < 1e-4


def test_no_other_platform_emulates(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="'tf32_conv' is emulated on cpu alone, not on xla_cpu"):
        platforms.load("xla_cpu", 1, "fp32", None, "tf32_conv")
