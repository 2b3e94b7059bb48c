"""The parser, on HLO that torch_xla makes in the test: work, groups, roles and dead code."""

import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from cxrbench.neuron.hlo import Graph, Product

FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def backward_of(layer: nn.Module, shape: tuple[int, ...], platform, hlo, needs_input: bool = True) -> Graph:
    """Forward, sum and backward of a layer as one graph."""
    layer = platform.network(layer)
    images = platform.to_device(torch.zeros(shape)).requires_grad_(needs_input)
    layer(images).square().sum().backward()
    wanted = [*(weight.grad for weight in layer.parameters()), images.grad]
    return Graph.parse(hlo([tensor for tensor in wanted if tensor is not None]))


@FAST
@given(data=st.data())
def test_a_convolutions_work_is_what_its_shapes_say(data, platform, hlo) -> None:
    groups = data.draw(st.sampled_from([1, 2, 6]))
    inputs, outputs = (groups * data.draw(st.integers(1, 4)) for _ in range(2))
    kernel, stride, dilation = (data.draw(st.integers(1, most)) for most in (5, 3, 2))
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, dilation, groups)
    out = layer(torch.zeros(3, inputs, 17, 19))
    moved = platform.network(layer)
    (conv,) = Graph.parse(hlo([moved(platform.to_device(torch.zeros(3, inputs, 17, 19)))])).convolutions
    assert conv.role == "forward" and conv.feature_groups == groups and conv.channels == inputs // groups
    assert conv.kernel == (kernel, kernel) and conv.stride == (stride, stride)
    assert conv.kernel_dilation == (dilation, dilation) and conv.input_dilation == (1, 1)
    assert conv.product.macs == out.numel() * (inputs // groups) * kernel**2
    assert conv.depthwise == (groups > 1 and inputs == groups)


@FAST
@given(shape=st.tuples(*[st.integers(1, 5)] * 4), tiled=st.integers(1, 3000))
def test_a_dots_work_is_what_its_shapes_say(shape, tiled, platform, hlo) -> None:
    b, m, k, n = shape
    left, right = (platform.to_device(torch.zeros(s)) for s in ((b, m, k), (b, k, n)))
    graph = Graph.parse(hlo([left @ right]))
    if graph.counts["dot"]:  # products of one number are written otherwise
        assert sum(product.macs for product in graph.products) == b * m * k * n
    assert Product(b, m, k, tiled).tiles == b * -(-tiled // 512)


def test_a_depthwise_layer_has_a_batch_grouped_weight_gradient(platform, hlo) -> None:
    layer = nn.Conv2d(8, 8, 7, padding=3, groups=8, bias=False)
    by_role = {conv.role: conv for conv in backward_of(layer, (2, 8, 16, 16), platform, hlo).convolutions}
    groups = {role: (conv.feature_groups, conv.batch_groups) for role, conv in by_role.items()}
    assert groups == {"forward": (8, 1), "input gradient": (8, 1), "weight gradient": (1, 8)}
    assert by_role["forward"].kernel == by_role["input gradient"].kernel == (7, 7)
    # A column per group: contraction over 49 taps, or over all pixels of the batch.
    assert by_role["forward"].product == Product(8, 1, 49, 2 * 16 * 16)
    assert by_role["weight gradient"].product == Product(8, 1, 2 * 16 * 16, 49)
    assert by_role["forward"].product.tiles == 8 * 1 and by_role["weight gradient"].product.tiles == 8 * 4


def test_zeros_that_a_stride_inserts_are_no_work(platform, hlo) -> None:
    """A patch embedding's input gradient does as much as its forward."""
    layer = nn.Conv2d(4, 6, 8, stride=8, bias=False)
    graph = backward_of(layer, (2, 4, 32, 32), platform, hlo)
    macs = {conv.role: conv.product.macs for conv in graph.convolutions}
    assert macs["input gradient"] == macs["forward"] == 2 * 6 * 4 * 4 * 4 * 64


@pytest.mark.parametrize(("stride", "dilation", "doubly"), [(1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 1)])
def test_a_strided_and_dilated_layer_dilates_both(stride, dilation, doubly, platform, hlo) -> None:
    layer = nn.Conv2d(4, 4, 3, stride, dilation, dilation)
    graph = backward_of(layer, (2, 4, 16, 16), platform, hlo)
    both = [c for c in graph.convolutions if max(c.input_dilation) > 1 and max(c.kernel_dilation) > 1]
    assert len(both) == doubly
    assert all(conv.role == "input gradient" for conv in both)


@pytest.mark.parametrize("needs_input", [True, False])
def test_an_input_gradient_that_nothing_needs_is_dead_code(needs_input, platform, hlo) -> None:
    graph = backward_of(nn.Conv2d(1, 4, 7), (2, 1, 16, 16), platform, hlo, needs_input)
    (gradient,) = [conv for conv in graph.convolutions if conv.role == "input gradient"]
    assert (gradient.name in graph.needed) == needs_input


def test_bytes_and_shapes_of_tuples_are_read(platform, hlo) -> None:
    graph = backward_of(nn.BatchNorm2d(8), (2, 8, 4, 4), platform, hlo)
    (norm,) = graph.of("batch-norm-training")
    assert [dims for _, dims in norm.shapes] == [(2, 8, 4, 4), (8,), (8,)] and norm.bytes == 4 * (256 + 16)
    (relu,) = Graph.parse(hlo([torch.relu(platform.to_device(torch.zeros(10, 10)))])).of("maximum")
    assert relu.bytes == 400


def test_operands_without_their_types_are_read_alike(platform, hlo) -> None:
    """XLA prints operands with or without types, by version and option."""
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)
    layer = platform.network(nn.Sequential(*layers))
    text = hlo([layer(platform.to_device(torch.zeros(2, 1, 8, 8)))])
    short = re.sub(r"(?<=[(,] )?\b[a-z]+\d*\[[\d,]*\](\{[\d,]*\})? (?=%)", "", text)
    assert short != text
    assert Graph.parse(short).products == Graph.parse(text).products != []
    assert Graph.parse(short).counts == Graph.parse(text).counts


def test_text_that_is_cut_off_or_no_hlo_is_refused(platform, hlo) -> None:
    text = hlo([torch.relu(platform.to_device(torch.zeros(3)))])
    for damaged, message in (
        (text[: text.rindex("}")], "no end"),
        ("{}", "no end"),
        (text.replace("  ROOT", "some words\n  ROOT"), "not a line of HLO: some words"),
    ):
        with pytest.raises(ValueError, match=message):
            Graph.parse(damaged)
