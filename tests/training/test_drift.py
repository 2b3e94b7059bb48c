"""The operator that drifts is named: on platforms that are the CPU but for one operator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, relu

from benchmarks.drift import drift
from conftest import TINY
from cxrbench.platforms.cpu import CpuPlatform
from cxrbench.study import platforms
from cxrbench.study.config import Recipe

RECIPE = Recipe(epochs=100, batch=64, threads=2)


class Unlike(CpuPlatform):
    """The CPU, with a network that computes one thing otherwise."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        super().__init__(RECIPE.threads, "fp32")
        self.change = change

    def network(self, network: nn.Module) -> nn.Module:
        network = super().network(network)
        self.change(network)
        return network


class OtherUpdate(CpuPlatform):
    """The CPU with another epsilon in AdamW."""

    def optimizer(self, groups: Any, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay, fused=True, eps=1.0)


class OtherImages(CpuPlatform):
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


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[[CpuPlatform], None]:
    """A function that makes a platform the one called 'there'."""
    load = platforms.load

    def serve(platform: CpuPlatform) -> None:
        monkeypatch.setattr(
            platforms, "load", lambda name, *how: platform if name == "there" else load(name, *how)
        )

    return serve


@pytest.mark.parametrize(
    ("change", "number", "operator", "stage"),
    [
        (other_epsilon, 1, "layer2.0.bn1 (BatchNorm2d)", "forward"),
        (other_epsilon, 3, "layer2.0.bn1 (BatchNorm2d)", "forward"),
        (in_bf16, 1, "layer3.0.conv2 (Conv2d)", "forward"),
        (wrong_gradient, 2, "layer2.0.act1 (ReLU)", "backward"),
        (wrong_sum, 1, "what is between layer4", "forward"),
    ],
)
def test_the_one_operator_that_computes_otherwise_is_named(
    there, packed: Path, change: Any, number: int, operator: str, stage: str
) -> None:
    there(Unlike(change))
    said = drift(TINY, "there", RECIPE, packed, number)
    assert said.startswith(operator) and f"of step {number} that differs, in the {stage} pass" in said


def test_images_and_update_are_operators_too(there, packed: Path) -> None:
    there(OtherImages(2, "fp32"))
    assert drift(TINY, "there", RECIPE, packed, 1).startswith("the augmentation of images is the first")
    there(OtherUpdate(2, "fp32"))
    assert drift(TINY, "there", RECIPE, packed, 1).startswith("torch.optim.adam._fused_adam is the first")


def test_where_every_operator_agrees_none_is_named(there, packed: Path) -> None:
    there(CpuPlatform(1, "fp32"))
    assert drift(TINY, "there", RECIPE, packed, 2).startswith("no operator of step 2 differs by itself")
