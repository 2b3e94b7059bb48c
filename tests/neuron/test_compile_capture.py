"""Counts are those of a training loop's graph, and agree with hand counts and other counters."""

import json
import os
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from timm.models.convnext import ConvNeXtBlock
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conftest import QUICK_XLA, ROOT, ran
from cxrbench.neuron.calls import gelu_as_on_neuron
from cxrbench.neuron.capture import NotCaptured, audit_network, build, capture
from cxrbench.neuron.control_graphs import LAYERS
from cxrbench.neuron.rules import Facts, Setting, flagged
from cxrbench.study.config import Recipe
from cxrbench.training.method import build_network
from cxrbench.training.network import VARIANTS, register_variants

pytestmark = pytest.mark.slow  # each test traces graphs
SMALL = Setting(pixels=64, batch=4)


def built(architecture: str, pixels: int) -> nn.Module:
    """The network as a cell has it, with drawn weights."""
    return build_network(architecture, pixels, Recipe(epochs=1, batch=4), np.full(14, 0.1))


class InColour(nn.Sequential):
    """Has three channels of one."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.expand(-1, 3, -1, -1))


def step_of(network: nn.Module, setting: Setting, platform, **options) -> Facts:
    """The facts of a network's whole step, with the custom calls of an audit."""
    with gelu_as_on_neuron():
        return capture(network, setting, platform, **options)["step"]


def audited(architecture: str, setting: Setting) -> Facts:
    """The facts of a timm network's whole step."""
    return audit_network(architecture, setting)["step"]


def test_resnet18_has_the_known_work(platform) -> None:
    """1.8 GMAC for three channels, 224 px and 1000 classes (He et al. 2016, table 1)."""
    with torch.device("meta"):
        network = timm.create_model("resnet18")
    facts = step_of(InColour(network.to_empty(device="cpu")), Setting(224, 2), platform, labels=1000)
    assert facts.gmac == pytest.approx(1.814, abs=0.001)
    assert facts.parameters == 11_689_512


@pytest.mark.parametrize("architecture", ["convnext_atto", "vit_tiny_patch16_224", "regnety_002"])
def test_work_agrees_with_torchs_counter(architecture: str) -> None:
    network = built(architecture, 64).to("meta")
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 1, 64, 64, device="meta"))
    assert audited(architecture, SMALL).gmac == pytest.approx(counter.get_total_flops() / 2e9, abs=1e-4)


@pytest.mark.parametrize("architecture", ["test_efficientnet", "test_vit"])
def test_weights_need_not_be_drawn_and_earlier_networks_do_not_matter(architecture: str, platform) -> None:
    undrawn = audited(architecture, SMALL)
    torch.manual_seed(1)
    assert step_of(built(architecture, 64), SMALL, platform) == undrawn
    assert audited(architecture, SMALL) == undrawn and not undrawn.problem


def test_counts_do_not_depend_on_the_batch_and_activations_grow_with_it() -> None:
    a, b = (audited("convnext_atto", Setting(64, batch)) for batch in (3, 7))
    growing = {"tiles": 0, "traffic_unfused_mib_per_image": 0.0, "activation_mib_per_image": 0.0}
    growing |= {"largest_layernorm": 0}
    assert a.largest_layernorm * 7 == b.largest_layernorm * 3
    assert replace(a, **growing) == replace(b, **growing)
    assert a.activation_mib_per_image == pytest.approx(b.activation_mib_per_image, rel=0.001)
    assert a.step_gib(14) - a.step_gib(7) == pytest.approx(7 * a.activation_mib_per_image / 1024)
    assert a.largest_batch(a.step_gib(100) + 1e-9) == 100


def hand() -> nn.Sequential:
    """A network small enough to count by hand: B x 1 x 32 x 32 to B x 14."""
    head = nn.Linear(8 * 32 * 32, 14)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), head)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "precision", "off"),
    [
        ("test_convnext", "fp32", "1"),
        ("test_resnet", "fp32", "1"),
        ("test_vit", "bf16", "1"),
        ("test_convnext", "fp32", "0"),
    ],
)
def test_what_is_audited_is_what_is_trained(architecture, precision, off, packed) -> None:
    """The trainer's second step, compiled and run with streamed images, has the same graph."""
    environment = os.environ | {"XLA_DISABLE_FUNCTIONALIZATION": off, "XLA_FLAGS": QUICK_XLA}
    words = (ROOT / "tests/neuron/trained_graph.py", packed, architecture, precision)
    done = ran(sys.executable, *words, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    trained, counted = json.loads(done.stdout.splitlines()[-1])
    assert counted == trained and trained["instructions"] > 1000


def test_a_small_network_is_as_counted_by_hand(platform) -> None:
    facts = step_of(hand(), Setting(32, 16), platform)
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
    pico = audited("convnext_pico", SMALL)
    assert (pico.depthwise_convolutions, pico.layernorms, pico.batchnorms, pico.gelus) == (12, 17, 0, 12)
    assert (pico.grouped_convolutions, pico.batch_grouped_convolutions) == (24, 12)
    assert (pico.largest_kernel, pico.large_kernels, pico.large_kernel_input_gradients) == (7, 12, 12)
    resnet = audited("resnet18", SMALL)
    assert (resnet.largest_kernel, resnet.large_kernels, resnet.large_kernel_input_gradients) == (7, 1, 0)


def test_the_kind_of_mlp_changes_dots_and_convolutions_but_no_permutes() -> None:
    linear, convolved = (audited(name, SMALL) for name in ("convnext_pico_linear_mlp", "convnext_pico"))
    assert (linear.linears_on_maps, convolved.linears_on_maps) == (24, 0)
    # Each of 24 layers: forward, input gradient and weight gradient.
    assert linear.dots - convolved.dots == convolved.convolutions - linear.convolutions == 3 * 24
    assert linear.permutes == convolved.permutes > 0
    assert linear.parameters == convolved.parameters and linear.gmac == convolved.gmac
    assert linear.grouped_convolutions == convolved.grouped_convolutions


def block(conv_mlp: bool) -> nn.Sequential:
    """A stem, a block of ConvNeXt with its NHWC layers, a head."""
    stem, pool = nn.Conv2d(1, 8, 4, stride=4), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(stem, ConvNeXtBlock(8, conv_mlp=conv_mlp), pool, nn.Flatten(), nn.Linear(8, 14))


def failures(network: nn.Module, batch: int, platform) -> tuple[Facts, Facts, set[str]]:
    """The facts of forward and step of a network, and the rules that predict that its step fails."""
    setting = Setting(32, batch, "bf16")
    facts = capture(network, setting, platform)
    assert facts["forward"].part == "forward" and facts["step"].part == "step"
    return facts["forward"], facts["step"], set(flagged(facts["step"], setting)[0].split())


def test_layernorm_is_counted_where_torch_xla_writes_it_as_batch_norm_training(platform) -> None:
    forward, step, rules = failures(block(conv_mlp=True), 4, platform)
    assert forward.layernorm_batchnorms == step.layernorm_batchnorms == step.layernorms == 1
    assert forward.largest_layernorm == step.largest_layernorm == 4 * 8 * 8  # a feature for every pixel
    assert "R12" in rules and "R12" not in failures(block(conv_mlp=True), 1, platform)[2]
    _, step, rules = failures(hand(), 4, platform)
    assert (step.batchnorms, step.layernorm_batchnorms, rules) == (1, 0, set())


def test_the_backward_of_max_pooling_is_counted_in_the_step_alone(platform) -> None:
    head = nn.Flatten(), nn.Linear(8 * 15 * 15, 14)
    pooled = nn.Sequential(nn.Conv2d(1, 8, 3), nn.MaxPool2d(3, 2, 1), *head)
    forward, step, rules = failures(pooled, 2, platform)
    assert (forward.select_and_scatters, step.select_and_scatters, step.bad_reduce_windows) == (0, 1, 0)
    assert rules == set() and flagged(step, Setting(32, 2, "bf16"))[1] == "R2 R5 R13"


@pytest.mark.parametrize("groups", [1, 8])
def test_a_large_kernel_predicts_failure_where_its_input_gradient_is_needed(groups, platform) -> None:
    """As in issue 1295, a stem of 7x7 with stride 2; training needs no gradient of its images."""

    def ending(*layers: nn.Module) -> nn.Sequential:
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 14))

    stem = nn.Conv2d(1, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU()
    later = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 7, 2, 3, groups=groups)
    _, step, rules = failures(ending(*stem), 2, platform)
    assert (step.large_kernels, step.large_kernel_input_gradients, rules) == (1, 0, set())
    forward, step, rules = failures(ending(*later), 2, platform)
    assert (step.large_kernels, step.large_kernel_input_gradients, rules) == (1, 1, {"R3"})
    assert forward.large_kernel_input_gradients == 0


def test_dropout_draws_by_the_default_algorithm(platform) -> None:
    _, step, _ = failures(nn.Sequential(*hand()[:3], nn.Dropout(0.5), *hand()[3:]), 4, platform)
    assert step.special_rngs == 0


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
    assert not audited("test_resnet", Setting(32, 4)).problem  # nothing of it is left behind


def test_a_size_that_a_network_cannot_take_is_a_sentence() -> None:
    facts = audited("inception_v4", Setting(64, 4))
    assert facts == Facts(problem=facts.problem)
    assert audit_network("inception_v4", Setting(64, 4))["forward"] == replace(facts, part="forward")
    assert facts.problem.startswith("cannot be ") and "\n" not in facts.problem
    assert re.search("trained at 64 px: .*[Kk]ernel size", facts.problem)


def test_networks_of_a_fixed_size_are_built_for_another() -> None:
    for architecture in ("vit_base_patch14_dinov2", "swinv2_cr_tiny_ns_224"):
        assert not audited(architecture, Setting(56, 4)).problem


@pytest.mark.parametrize("name", LAYERS)
def test_a_control_is_no_network_of_timm(name: str) -> None:
    """A study cannot name one, and the list of architectures is the same after it was built."""
    assert len([*build(name, 16).parameters()]) == (6 if name == "control_layernorm" else 4)
    assert not timm.is_model(name)


def test_bf16_is_another_graph() -> None:
    full = audited("test_convnext", Setting(64, 64, "fp32"))
    half = audited("test_convnext", Setting(64, 64, "bf16"))
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
