"""Counts are those of a training loop's graph, and agree with hand counts and other counters."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from timm.models.convnext import ConvNeXtBlock
from timm.optim import param_groups_weight_decay
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode

from cxrbench.compile import capture as module
from cxrbench.compile.capture import NotCaptured, audit_network, capture
from cxrbench.compile.hlo import Graph
from cxrbench.compile.rules import Facts, Setting
from cxrbench.study.config import Recipe
from cxrbench.training.network import VARIANTS, build_network, register_variants

SMALL = Setting(pixels=64, batch=4)


def built(architecture: str, pixels: int) -> nn.Module:
    """The network as a cell has it, with drawn weights."""
    return build_network(architecture, pixels, Recipe(epochs=1, batch=4), np.full(14, 0.1))


def test_resnet18_has_the_known_work(platform) -> None:
    """1.8 GMAC for three channels, 224 px and 1000 classes (He et al. 2016, table 1)."""
    with torch.device("meta"):
        network = timm.create_model("resnet18")
    facts = capture(network.to_empty(device="cpu"), Setting(224, 2), platform, channels=3, labels=1000)
    assert facts.gmac == pytest.approx(1.814, abs=0.001)
    assert facts.parameters == 11_689_512


@pytest.mark.parametrize("architecture", ["convnext_atto", "vit_tiny_patch16_224", "regnety_002"])
def test_work_agrees_with_torchs_counter(architecture: str) -> None:
    network = built(architecture, 64).to("meta")
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 1, 64, 64, device="meta"))
    assert audit_network(architecture, SMALL).gmac == pytest.approx(counter.get_total_flops() / 2e9, abs=1e-4)


@pytest.mark.parametrize("architecture", ["efficientnet_b0", "swin_tiny_patch4_window7_224"])
def test_weights_need_not_be_drawn_and_earlier_networks_do_not_matter(architecture: str, platform) -> None:
    undrawn = audit_network(architecture, SMALL)
    torch.manual_seed(1)
    assert capture(built(architecture, 64), SMALL, platform) == undrawn
    assert audit_network(architecture, SMALL) == undrawn and not undrawn.problem


def test_counts_do_not_depend_on_the_batch_and_activations_grow_with_it() -> None:
    a, b = (audit_network("convnext_atto", Setting(64, batch)) for batch in (3, 7))
    growing = {"tiles": 0, "traffic_unfused_mib_per_image": 0.0, "activation_mib_per_image": 0.0}
    assert replace(a, **growing) == replace(b, **growing)
    assert a.activation_mib_per_image == pytest.approx(b.activation_mib_per_image, rel=0.001)
    assert a.step_gib(14) - a.step_gib(7) == pytest.approx(7 * a.activation_mib_per_image / 1024)
    assert a.largest_batch(a.step_gib(100) + 1e-9) == 100


def hand() -> nn.Sequential:
    """A network small enough to count by hand: B x 1 x 32 x 32 to B x 14."""
    head = nn.Linear(8 * 32 * 32, 14)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), head)


def block(conv_mlp: bool) -> nn.Sequential:
    """A stem, a block of ConvNeXt with its NHWC layers, a head."""
    stem, pool = nn.Conv2d(1, 8, 4, stride=4), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(stem, ConvNeXtBlock(8, conv_mlp=conv_mlp), pool, nn.Flatten(), nn.Linear(8, 14))


def second_step(network: nn.Module, platform) -> Graph:
    """The graph of a loop's second step, after the first was compiled and run."""
    network = platform.network(network.train())
    optimizer = platform.optimizer(param_groups_weight_decay(network, 0.05), 1e-3, 0.05)
    for step in (1, 2):
        images, labels = platform.to_device(torch.rand(4, 1, 32, 32)), platform.to_device(torch.ones(4, 14))
        for group in optimizer.param_groups:
            group["lr"] = platform.number(1e-3 * step)
        optimizer.zero_grad(set_to_none=True)
        loss = binary_cross_entropy_with_logits(network(images), labels)
        loss.backward()
        optimizer.step()
        if step == 1:
            platform.end_step()  # compiles and runs
    return module._graph(module._results(network, optimizer, loss))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(hand, id="BatchNorm"),
        pytest.param(lambda: block(conv_mlp=False), id="Linear MLP"),
        pytest.param(lambda: block(conv_mlp=True), id="conv MLP", marks=pytest.mark.slow),
        pytest.param(lambda: built("test_convnext", 32), id="test_convnext", marks=pytest.mark.slow),
        pytest.param(lambda: built("test_resnet", 32), id="test_resnet", marks=pytest.mark.slow),
    ],
)
def test_counts_are_those_of_a_loops_second_step(make, platform) -> None:
    real, facts = second_step(make(), platform), capture(make(), Setting(32, 4), platform)
    assert facts.instructions == len(real.instructions)
    assert facts.transposes == real.counts["transpose"]
    assert facts.dots == real.counts["dot"]
    assert facts.convolutions == len(real.convolutions)
    assert facts.tiles == sum(product.tiles for product in real.products)


def test_a_small_network_is_as_counted_by_hand(platform) -> None:
    facts = capture(hand(), Setting(32, 16), platform)
    maps, logits = 8 * 32 * 32, 14
    assert facts.parameters == 8 * 9 + 8 + 16 + maps * 14 + 14
    assert facts.gmac == round((maps * 9 + maps * 14) / 1e9, 4)
    # Kept for backward: BatchNorm's input, ReLU's output (which is Linear's input, one storage), the logits;
    # and per batch BatchNorm's two statistics.
    kept = 4 * (2 * maps + logits) + 2 * 4 * 8 / 16
    assert facts.activation_mib_per_image == pytest.approx(kept / 2**20, abs=0.0001)
    assert (facts.forward_convolutions, facts.convolutions, facts.narrow_convolutions) == (1, 3, 1)
    assert (facts.batchnorms, facts.layernorms) == (1, 0)
    assert (facts.kernels, facts.permutes, facts.linears_on_maps) == ("3", 0, 0)


def test_layers_and_kernels_are_found() -> None:
    pico = audit_network("convnext_pico", SMALL)
    assert (pico.depthwise_convolutions, pico.layernorms, pico.batchnorms, pico.gelus) == (12, 17, 0, 12)
    assert (pico.grouped_convolutions, pico.batch_grouped_convolutions) == (24, 12)
    assert (pico.largest_kernel, pico.large_kernels, pico.large_kernel_input_gradients) == (7, 12, 12)
    resnet = audit_network("resnet18", SMALL)
    assert (resnet.largest_kernel, resnet.large_kernels, resnet.large_kernel_input_gradients) == (7, 1, 0)


def test_the_kind_of_mlp_changes_dots_and_convolutions_but_no_permutes() -> None:
    linear, convolved = (audit_network(name, SMALL) for name in ("convnext_tiny", "convnext_tiny_conv_mlp"))
    assert (linear.linears_on_maps, convolved.linears_on_maps) == (36, 0)
    # Each of 36 layers: forward, input gradient and weight gradient.
    assert linear.dots - convolved.dots == convolved.convolutions - linear.convolutions == 3 * 36
    assert linear.permutes == convolved.permutes > 0
    assert linear.parameters == convolved.parameters and linear.gmac == convolved.gmac
    assert linear.grouped_convolutions == convolved.grouped_convolutions


class Reads(nn.Sequential):
    """Looks at a value in the middle of the step."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images * 2 if images.sum().item() > 0 else images)


def test_a_step_that_is_not_one_graph_is_named_and_not_compiled(platform, capfd) -> None:
    before, ends = platform.compiles()[0], (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    falls = nn.Sequential(nn.Conv2d(1, 14, 3, stride=2), nn.Upsample(scale_factor=2), *ends)
    with pytest.raises(NotCaptured, match="aten::upsample_nearest2d_backward falls back to the CPU"):
        capture(falls, SMALL, platform)
    with pytest.raises(NotCaptured, match="not one graph: its code reads a value"):
        capture(Reads(*hand()), Setting(32, 4), platform)
    assert platform.compiles()[0] == before
    assert capfd.readouterr().err == ""
    assert not audit_network("test_resnet", Setting(32, 4)).problem  # nothing of it is left behind


def test_a_size_that_a_network_cannot_take_is_a_sentence() -> None:
    facts = audit_network("inception_v4", Setting(64, 4))
    assert facts == Facts(problem=facts.problem)
    assert facts.problem.startswith("cannot be ") and "\n" not in facts.problem
    assert re.search("trained at 64 px: .*[Kk]ernel size", facts.problem)


def test_networks_of_a_fixed_size_are_built_for_another() -> None:
    for architecture in ("vit_base_patch14_dinov2", "swinv2_cr_tiny_ns_224"):
        assert not audit_network(architecture, Setting(56, 4)).problem


def test_bf16_is_another_graph() -> None:
    full = audit_network("test_convnext", Setting(64, 64, "fp32"))
    half = audit_network("test_convnext", Setting(64, 64, "bf16"))
    assert half.instructions > full.instructions  # casts
    assert half.activation_mib_per_image < full.activation_mib_per_image
    assert half.gmac == full.gmac


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_its_base_in_the_mlp_only(name: str) -> None:
    register_variants()
    base, options = VARIANTS[name]
    with torch.device("meta"):
        variant, plain = timm.create_model(name), timm.create_model(base)
        same = timm.create_model(name, conv_mlp=not options["conv_mlp"])
    sizes = [sum(p.numel() for p in network.parameters()) for network in (variant, plain, same)]
    assert len(set(sizes)) == 1
    assert variant.stages[0].blocks[0].use_conv_mlp == options["conv_mlp"]
    assert str(same) == str(plain) != str(variant)
