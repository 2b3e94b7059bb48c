"""The gate of steps finds every seeded defect, names its operator, and lets correct arithmetic pass."""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, relu

from benchmarks.gate import CALIBRATION_SEEDS, FLOOR, RIGHT, OfStudy, Spread, ratio, spread_of, worst_first
from benchmarks.gate_table import BATCH, CORRECT, correct, defects
from conftest import TINY, must_fail, must_work
from cxrbench.platforms.cpu import CpuPlatform
from cxrbench.platforms.defects import DEFECT_KINDS, OPERATORS
from cxrbench.platforms.gate import TensorDifference, tensor_difference
from cxrbench.platforms.judged import judge
from cxrbench.study.config import Recipe

SMALL = {
    TINY: ("dense", "batchnorm", "pooling", "adamw"),
    "test_convnext": ("depthwise", "linear", "layernorm", "gelu", "averaging"),
}
SMALL_STEP = ("--batch", BATCH, "--pixels", "32")


@pytest.fixture(scope="session")
def made(packed: Path) -> Callable[[str], OfStudy]:
    """A function that names what is judged of a network."""
    return lambda network: OfStudy(network, Recipe(epochs=100, batch=BATCH, threads=2), packed)


@pytest.fixture(scope="session")
def spread(made) -> Callable[[str, str], Spread]:
    """A function that measures the tolerances of a network in a precision, once, with one seed."""
    return cache(lambda network, precision: spread_of(made(network), precision, CALIBRATION_SEEDS[:1]))


def all_found(made: OfStudy, precision: str, spread: Spread, operators: dict[str, Sequence[str]]) -> set[str]:
    """The operators in which defects were planted; fails where one of a kind's was not found."""
    rows = [row for kind, of in operators.items() for row in defects(made, precision, kind, "", spread, of)]
    assert [row for row in rows if not row["ratio"] > 1] == []
    return {row["case"].split(":")[0] for row in rows}


@pytest.mark.parametrize(
    ("network", "precision"), [(TINY, "fp32"), pytest.param("test_convnext", "bf16", marks=pytest.mark.slow)]
)
def test_defects_are_found_and_correct_arithmetic_passes(made, spread, network: str, precision: str) -> None:
    """Every operator with a factor, which is the smallest defect; the other kinds in one of them each."""
    of, tolerances = made(network), spread(network, precision)
    one = "dense" if network == TINY else "depthwise"
    tried = {"factor": OPERATORS, "sign": [one], "rolled": ["linear"], "border": [one], "stale": ["adamw"]}
    assert all_found(of, precision, tolerances, tried) >= {one, "linear", "pooling", "adamw", "averaging"}
    row = correct(of, precision, [*CORRECT[precision]][-1], 0, tolerances)
    assert row["ratio"] <= 1, row


@pytest.mark.slow
@pytest.mark.parametrize("precision", RIGHT)
def test_every_defect_is_found_and_every_correct_variant_passes(made, spread, precision: str) -> None:
    """`python -m benchmarks.gate_table` takes more places, six seeds, and the networks of the study."""
    seen = set()
    for first, (network, operators) in enumerate(SMALL.items()):
        of, tolerances = made(network), spread(network, precision)
        seen |= all_found(of, precision, tolerances, dict.fromkeys(DEFECT_KINDS, operators))
        for seed, case in enumerate([*CORRECT[precision]][first :: len(SMALL)]):
            row = correct(of, precision, case, seed, tolerances)
            assert row["ratio"] <= 1, row
    assert seen == {*OPERATORS} - {"pointwise"}  # of convnext_atto, in the recorded table


# -- defects that are in a device, not planted -------------------------------------------------------


class Unlike(CpuPlatform):
    """The CPU, with a network that computes one thing otherwise."""

    def __init__(self, change: Callable[[Any], object] = lambda network: None) -> None:
        super().__init__(2, "fp32")
        self.change = change

    def network(self, network: nn.Module) -> nn.Module:
        network = super().network(network)
        self.change(network)
        return network


class OtherUpdate(Unlike):
    """The CPU with AdamW's rate two hundredths too large."""

    def optimizer(self, groups: Any, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        optimizer = super().optimizer(groups, learning_rate, weight_decay)
        step = optimizer.step

        def faster(*given: Any) -> None:
            for group in optimizer.param_groups:
                group["lr"] *= 1.02
            step(*given)
            for group in optimizer.param_groups:
                group["lr"] /= 1.02

        optimizer.step = faster  # type: ignore[method-assign]
        return optimizer


class OtherImages(Unlike):
    """The CPU with images that are a hundredth brighter."""

    def layout(self, images: torch.Tensor) -> torch.Tensor:
        return images * 1.01


class WrongGradient(torch.autograd.Function):
    """ReLU whose gradient is five hundredths too large."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(result := relu(values))
        return result

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (context.saved_tensors[0] > 0) * 1.05


def other_epsilon(network: Any) -> None:
    network.layer2[0].bn1.eps = 0.1


def in_bf16(network: Any) -> None:
    """A convolution that multiplies in bf16, as a GPU's does in TF32 unless told otherwise."""
    one = network.layer3[0].conv2

    def forward(images: torch.Tensor) -> torch.Tensor:
        return conv2d(images.bfloat16(), one.weight.bfloat16(), None, one.stride, one.padding).float()

    one.forward = forward


def wrong_gradient(network: Any) -> None:
    network.layer2[0].act1.forward = WrongGradient.apply


def wrong_sum(network: Any) -> None:
    """What no module computes: the features, multiplied before they are pooled."""
    network.forward_features = lambda images, whole=network.forward_features: whole(images) * 1.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "operator", "tensor"),
    [
        (partial(Unlike, other_epsilon), "layer2.0.bn1 (BatchNorm2d)", "output"),
        (partial(Unlike, in_bf16), "layer3.0.conv2 (Conv2d)", ""),
        (partial(Unlike, wrong_gradient), "layer2.0.act1 (ReLU)", "gradient of its input"),
        (partial(Unlike, wrong_sum), "what ", "its input"),
        (OtherUpdate, "AdamW on ", "update of "),
        (OtherImages, "the augmentation of images", "tensor 0 of the batch"),
    ],
)
def test_the_one_operator_that_computes_otherwise_is_named_first(
    made, spread, device: Callable[[], CpuPlatform], operator: str, tensor: str
) -> None:
    tolerances = spread(TINY, "fp32")
    start, stepped, batches = made(TINY)(device(), 0)
    wrong = worst_first(judge(stepped, start, batches)[0], "fp32", tolerances)
    assert wrong[0]["operator"].startswith(operator), wrong[0]
    assert any(tensor in row["tensor"] for row in wrong if row["operator"].startswith(operator))
    others = {row["operator"] for row in wrong if "whole step" not in row["tensor"]}
    assert all(name.startswith((operator, "what ")) for name in others), others


def test_a_variance_divided_by_one_less_differs_where_the_device_is_to_divide_by_all(made, spread) -> None:
    """As torch_xla does; BatchNorm's backward pass needs its statistics as the forward pass left them."""

    class DividesByAll(CpuPlatform):
        biased_variance = True

    start, stepped, batches = made(TINY)(DividesByAll(2, "fp32"), 0)
    wrong = worst_first(judge(stepped, start, batches)[0], "fp32", spread(TINY, "fp32"))
    assert {row["tensor"] for row in wrong} == {"change of running_var"} and len(wrong) > 3


def test_a_difference_has_a_direction_and_a_norm() -> None:
    exact = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).double()
    for value, direction, norm in (
        (exact, 0, 0),
        (-exact, 0, 2),
        (1.02 * exact, 0, 0.02),
        (torch.zeros_like(exact), 0, 1),
    ):
        found = tensor_difference("one", "output", exact, value.float())
        assert (found.direction, found.norm) == pytest.approx((direction, norm), abs=1e-6)
    rolled = tensor_difference("one", "output", exact, exact.roll(1, 0))
    assert rolled.direction > 0.5
    for value in (exact * float("nan"), exact[:2]):
        assert tensor_difference("one", "output", exact, value).direction == float("inf")
    nothing = torch.zeros(3).double()
    assert tensor_difference("one", "output", nothing, nothing)[2:4] == (0, 0)
    assert tensor_difference("one", "output", nothing, nothing + 1).norm == float("inf")


def test_no_factor_of_the_list_hides_below_a_floor() -> None:
    one = TensorDifference("one", "output", 0.0, 0.02, (1,))
    assert all(ratio(one, precision, {}) > 2 for precision in FLOOR)


# -- the command -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_ends_with_0_for_correct_arithmetic_and_keeps_its_row(tmp_path: Path) -> None:
    words = ("--platforms", "cpu", *SMALL_STEP, "--out", tmp_path / "gate.json")
    must_work("bench", "steps", TINY, *words)
    (row,) = json.loads((tmp_path / "gate.json").read_text())
    assert (row["differences"], row["repeats"], row["worst"]) == (0, True, []) and row["tensors"] > 300


@pytest.mark.slow
def test_the_command_ends_with_1_for_a_defect_and_names_its_module() -> None:
    words = ("--platforms", "cpu", *SMALL_STEP, "--seed-defect", "depthwise:sign")
    said = must_fail("bench", "steps", "test_convnext", *words)
    assert "stages.0.blocks.0.conv_dw (Conv2d): gradient of weight" in said.splitlines()[-1]


@pytest.mark.slow
def test_a_wrong_call_ends_with_2() -> None:
    for words, reason in (
        (("--seed-defect", "dense:loud"), "there is no defect 'dense:loud'"),
        (("--precision", "fp8"), "there is no precision fp8"),
    ):
        assert reason in " ".join(must_fail("bench", "steps", TINY, *words, code=2).split())


OWN = """
import torch
from torch import nn


def small():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    return network, lambda network, batch: network(batch).square().mean()
"""


@pytest.mark.slow
def test_anybodys_model_is_judged_on_a_device_of_torchs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    words = ("--model", "mine:small", "--platforms", "cpu", "--batch")
    assert "0 of" in must_work("bench", "steps", *words, "random:4x3x8x8", cwd=tmp_path).stderr
    torch.save(torch.randn(4, 3, 8, 8), tmp_path / "batch.pt")
    wrong = ("--seed-defect", "gelu:factor")
    said = must_fail("bench", "steps", *words, "batch.pt", *wrong, cwd=tmp_path)
    assert "1 (GELU): gradient of its input" in said.splitlines()[-1]
