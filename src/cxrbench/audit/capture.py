"""The training step of a network as an HLO graph, made by torch_xla on the CPU and never compiled.

Weights are made on the CPU, as zeros, and moved: their values are no part of the graph, and drawing them
would take longer than everything else. AdamW's moments exist from the start, as placeholders without memory:
this is the graph of every step but the first, instruction for instruction what a training loop gives.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrbench import platforms
from cxrbench.audit.facts import Facts, Setting
from cxrbench.audit.hlo import Graph
from cxrbench.config import Recipe
from cxrbench.datasets.findings import FINDINGS
from cxrbench.errors import UserError
from cxrbench.platforms.base import Platform
from cxrbench.training.network import build_network, parameter_groups
from cxrbench.training.variants import register_variants

LARGE_KERNEL, NARROW = 7, 128
_ITEM = "aten::_local_scalar_dense"  # what Tensor.item() calls


class NotCaptured(Exception):
    """The network cannot be built or traced at this size; the message says where and why."""


def audit_network(architecture: str, setting: Setting) -> Facts:
    """The facts of a timm network or variant; with ``problem`` set when it cannot be built or traced.

    Raises UserError for an unknown name, or where torch_xla is not installed.
    """
    register_variants()
    platform = platforms.load("xla_cpu", torch.get_num_threads(), setting.precision)
    before = _fallbacks()
    try:
        return capture(_built(architecture, setting.pixels), setting, platform)
    except NotCaptured as error:
        return Facts(problem=str(error), fallbacks=_fallen_back(before))


def capture(
    network: nn.Module, setting: Setting, platform: Platform, channels: int = 1, labels: int = len(FINDINGS)
) -> Facts:
    """The facts of ``network`` (B x channels x P x P images to B x labels logits), moved and used up.

    Raises NotCaptured when its forward or backward fails on images of this size.
    """
    import torch_xla

    torch_xla.manual_seed(0)  # else the random state's history of earlier networks is part of the graph
    before = _fallbacks()
    maps: set[nn.Module] = set()
    modules = _modules(network)
    network = platform.network(network.train())
    optimizer = platform.optimizer(parameter_groups(network, 0.05), 1e-3, 0.05)
    for group in optimizer.param_groups:
        group["lr"] = platform.number(1e-3)
    _as_after_a_step(network, optimizer)
    images = platform.to_device(torch.zeros(setting.batch, channels, setting.pixels, setting.pixels))
    targets = platform.to_device(torch.zeros(setting.batch, labels))
    owned = [*network.parameters(), *network.buffers(), images, targets]
    with _named("trained", setting), _one_graph(before), _watched(network, maps), _kept(owned) as kept:
        with platform.autocast():
            logits = network(images)
            loss = binary_cross_entropy_with_logits(logits, targets)
        activations = kept()
        forward = Graph.parse(_hlo([logits]))
        loss.backward()
        optimizer.step()
    facts = _count(Graph.parse(_hlo(_results(network, optimizer, loss))), forward, images, setting)
    return replace(
        facts,
        **modules,
        linears_on_maps=len(maps),
        activation_mib_per_image=round(activations / setting.batch / 2**20, 4),
        fallbacks=_fallen_back(before),
    )


def _built(architecture: str, pixels: int) -> nn.Module:
    """The cell's network with zeros for weights; NotCaptured when it cannot be built for this size."""
    recipe, priors = Recipe(epochs=1, batch=1), np.full(len(FINDINGS), 0.1)
    with _named("built", Setting(pixels)):
        try:
            with torch.device("meta"):
                network = build_network(architecture, pixels, recipe, priors)
            return _with_zeros(network)
        except UserError:
            raise
        except Exception:  # some networks compute with their weights: build those as training does
            return build_network(architecture, pixels, recipe, priors)


def _with_zeros(network: nn.Module) -> nn.Module:
    """A network without storage, given weights on the CPU that all look at one block of zeros."""
    tensors = [*network.parameters(), *network.buffers()]
    kinds = {tensor.dtype for tensor in tensors}
    zeros = {
        kind: torch.zeros(max(t.numel() for t in tensors if t.dtype == kind), dtype=kind) for kind in kinds
    }
    return network._apply(lambda tensor: zeros[tensor.dtype][: tensor.numel()].view(tensor.shape))


@contextmanager
def _named(what: str, setting: Setting) -> Iterator[None]:
    """Whatever a network raises becomes NotCaptured: its own words, and what we wanted of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (UserError, NotCaptured):
        raise
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise NotCaptured(f"cannot be {what} at {setting.pixels} px: {words[:200]}") from error


def _as_after_a_step(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights written once and AdamW's moments there: what every step but the first finds."""
    from torch_xla.core.xla_builder import create_placeholder_tensor

    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.detach())  # no instruction, but torch_xla makes views of written weights anew
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight] = {
                name: create_placeholder_tensor(shape, torch.float32)
                for name, shape in (("step", ()), ("exp_avg", weight.shape), ("exp_avg_sq", weight.shape))
            }


def _results(network: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> list[torch.Tensor]:
    """All tensors that live on after a step, in a fixed order."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
    tensors = [loss, *network.parameters(), *network.buffers(), *gradients, *moments]
    return [tensor.detach() for tensor in tensors if tensor.device == loss.device]


def _hlo(tensors: list[torch.Tensor]) -> str:
    """HLO text of what ``tensors`` wait for (a private function of torch_xla: its version is pinned)."""
    import torch_xla

    text: str = torch_xla._XLAC._get_xla_tensors_hlo(tensors)
    return text


def _fallbacks() -> dict[str, int]:
    """How often each operator was sent to the CPU in this process so far."""
    from torch_xla.debug import metrics

    return {
        name: metrics.counter_value(name) for name in metrics.counter_names() if name.startswith("aten::")
    }


def _fallen_back(before: dict[str, int]) -> str:
    """The operators that were sent to the CPU since ``before``."""
    return " ".join(sorted(name for name, count in _fallbacks().items() if count > before.get(name, 0)))


@contextmanager
def _one_graph(before: dict[str, int]) -> Iterator[None]:
    """Raises NotCaptured where a step reads a value before its end, instead of compiling what is there.

    torch_xla's refusal holds for one thread, so backward stays on this one; and it explains itself on the
    standard error stream, which is closed meanwhile.
    """
    import torch_xla

    allowed = torch_xla._XLAC._get_allow_execution()
    torch_xla._XLAC._set_allow_execution(False)
    try:
        with torch.autograd.set_multithreading_enabled(False), _no_standard_error():
            yield
    except RuntimeError as error:
        if "Unexpected execution" not in str(error):
            raise
        operators = _fallen_back(before)
        read = not operators or operators == _ITEM
        reason = "its code reads a value" if read else f"{operators} falls back to the CPU"
        raise NotCaptured(f"a step is not one graph: {reason} before the step ends") from None
    finally:
        torch_xla._XLAC._set_allow_execution(allowed)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Drops what C++ code writes to the standard error stream."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _kept(owned: list[torch.Tensor]) -> Iterator[Callable[[], int]]:
    """Yields a function, to be called once, that gives the bytes autograd keeps for backward.

    Each storage counts once; those of the ``owned`` tensors (weights, buffers, the batch) do not.
    """
    ours = {tensor.untyped_storage()._cdata for tensor in owned}
    saved: list[torch.Tensor] = []  # held, so that no storage's address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    def total() -> int:
        sizes: dict[int, int] = {}
        for tensor in saved:
            where = tensor.untyped_storage()._cdata
            sizes[where] = max(sizes.get(where, 0), tensor.numel() * tensor.element_size())
        saved.clear()  # they hold the graph that holds them
        return sum(size for where, size in sizes.items() if where not in ours)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield total
    finally:
        saved.clear()


@contextmanager
def _watched(network: nn.Module, maps: set[nn.Module]) -> Iterator[None]:
    """Collects the Linear modules that are given feature maps (four dimensions, channels last)."""

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs[0].ndim == 4:
            maps.add(module)

    hooks = [one.register_forward_pre_hook(look) for one in network.modules() if isinstance(one, nn.Linear)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _modules(network: nn.Module) -> dict[str, Any]:
    """Counts that the module tree knows and the graph does not."""
    modules = list(network.modules())
    layernorms = [one for one in modules if isinstance(one, nn.LayerNorm)]
    batchnorms = [one for one in modules if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    counted = {*layernorms, *batchnorms}
    leaves = [
        type(one).__name__.lower() for one in modules if not list(one.children()) and one not in counted
    ]
    return {
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "layernorms": len(layernorms),
        "batchnorms": len(batchnorms),
        "other_norms": sum("norm" in name for name in leaves),
        "gelus": sum("gelu" in name for name in leaves),
        "poolings": sum("pool" in name for name in leaves),
    }


def _count(step: Graph, forward: Graph, images: torch.Tensor, setting: Setting) -> Facts:
    """What the two graphs say."""
    ahead = forward.convolutions
    macs = sum(product.macs for product in forward.products)
    plain = [one for one in ahead if one.feature_groups == 1 and one.channels < NARROW]
    deep = [one for one in ahead if one.depthwise]
    all_of_step = step.convolutions
    large = [one for one in all_of_step if one.role == "input gradient" and max(one.kernel) >= LARGE_KERNEL]
    return Facts(
        gmac=round(macs / setting.batch / 1e9, 4),
        instructions=len(step.instructions),
        convolutions=len(all_of_step),
        grouped_convolutions=sum(one.feature_groups > 1 for one in all_of_step),
        batch_grouped_convolutions=sum(one.batch_groups > 1 for one in all_of_step),
        dots=step.counts["dot"],
        transposes=step.counts["transpose"],
        permutes=_permutes(forward, tuple(images.shape)),
        forward_convolutions=len(ahead),
        depthwise_convolutions=len(deep),
        narrow_convolutions=len(plain),
        depthwise_mac_share=_share([one.product.macs for one in deep], macs),
        narrow_mac_share=_share([one.product.macs for one in plain], macs),
        kernels=" ".join(map(str, sorted({max(one.kernel) for one in ahead}))),
        largest_kernel=max((max(one.kernel) for one in ahead), default=0),
        large_kernels=sum(max(one.kernel) >= LARGE_KERNEL for one in ahead),
        large_kernel_input_gradients=sum(one.name in step.needed for one in large),
        doubly_dilated=sum(
            max(one.input_dilation) > 1 and max(one.kernel_dilation) > 1 for one in all_of_step
        ),
        strided_on_dilated=sum(max(one.stride) > 1 and max(one.input_dilation) > 1 for one in all_of_step),
        tiles=sum(product.tiles for product in step.products),
        traffic_unfused_mib_per_image=round(step.unfused_bytes / setting.batch / 2**20, 1),
    )


def _share(parts: list[int], whole: int) -> float:
    return round(sum(parts) / whole, 4) if whole else 0.0


def _permutes(forward: Graph, shape: tuple[int, ...]) -> int:
    """Transposes of what comes from the images, feature maps and tokens; those of weights are left out."""
    inputs = {one.name for one in forward.of("parameter") if one.dims == shape}
    from_images = forward.depending_on(inputs)
    return sum(one.name in from_images and len(one.dims) > 2 for one in forward.of("transpose"))
