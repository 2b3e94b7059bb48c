"""The training step of a network as an HLO graph, traced by torch_xla on the CPU and never compiled.

Its input comes through training's own batches. Weights are zeros made on the CPU and moved: their values are
not part of the graph, and drawing them would take longer than everything else. AdamW's moments and averaged
weights exist from the start, as placeholders without memory: the graph is that of every step but the first,
instruction for instruction what the training loop gives.
"""

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from timm.optim import param_groups_weight_decay
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.modules.module import register_module_forward_pre_hook

from cxrbench.common.errors import UserError
from cxrbench.common.files import written_aside
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.evidence.compiled import GraphPart, TracedGraph
from cxrbench.evidence.record import UsedWeights
from cxrbench.neuron.calls import gelu_as_on_neuron
from cxrbench.neuron.control_graphs import LAYERS, control_network
from cxrbench.neuron.hlo import Convolution, Graph, is_bad_window
from cxrbench.neuron.module import read_module
from cxrbench.neuron.operators import REFUSED_TYPES
from cxrbench.neuron.rules import AUDITED_PARTS, Facts, Setting
from cxrbench.platforms.base import Platform
from cxrbench.study import platforms
from cxrbench.study.config import Augmentation, Recipe
from cxrbench.training.method import Averaged, Batch, Batches, build_network, draw_parameters
from cxrbench.training.network import register_variants

os.environ.setdefault("PJRT_DEVICE", "CPU")  # before torch_xla is imported, as in platforms/xla.py

import torch_xla
import torch_xla.debug.metrics as xla_metrics
from torch_xla.core import xla_builder

LARGE_KERNEL, NARROW_CHANNELS = 7, 128
LARGEST_FILE = 2**31 - 1  # bytes of a protobuf message
_ITEM = "aten::_local_scalar_dense"  # what Tensor.item() calls


class NotCaptured(Exception):
    """The network cannot be built or traced at this size; the message says where and why."""


def audit_network(architecture: str, setting: Setting) -> dict[str, Facts]:
    """The facts of a timm network by part, with its ``problem`` if any; UserError for no such name."""
    register_variants()
    platform = platforms.load("xla_cpu", torch.get_num_threads(), setting.precision)
    xla_metrics.clear_counters()
    try:
        with gelu_as_on_neuron():
            return capture(build(architecture, setting.pixels), setting, platform)
    except NotCaptured as error:
        return {part: Facts(part, problem=str(error), fallbacks=_fallbacks()) for part in AUDITED_PARTS}


def dump_network(
    architecture: str, setting: Setting, folder: Path, versions: dict[str, str]
) -> dict[str, TracedGraph]:
    """Write the step's parts of a timm network into ``folder``; return them by file name.

    The files are HloModuleProtos, which ``neuronx-cc compile --framework XLA`` takes;
    ``differences.toml`` lists how the graphs that torch_neuronx would trace differ.
    ``versions``: of the libraries that trace it. Raises NotCaptured for a network that cannot be traced at
    this size, or whose graph is too large.
    """
    platform = platforms.load("xla_cpu", torch.get_num_threads(), setting.precision)
    dumped: dict[str, TracedGraph] = {}

    def keep(part: GraphPart, tensors: list[torch.Tensor]) -> None:
        try:
            content: bytes = torch_xla._XLAC._get_xla_tensors_hlo_proto(tensors)
        except RuntimeError as error:
            raise NotCaptured(f"its {part} graph cannot be written: {error}") from error
        if len(content) > LARGEST_FILE:
            raise NotCaptured(
                f"its {part} graph has {len(content):,} bytes, above protobuf's {LARGEST_FILE:,}"
            )
        contents = read_module(content)
        if refused := contents.wide_types & REFUSED_TYPES:
            raise NotCaptured(f"its {part} graph has {', '.join(refused)}, which no Neuron device is sent")
        graph = TracedGraph(
            network=architecture,
            **vars(setting),
            part=part,
            sha256=hashlib.sha256(content).hexdigest(),
            instructions=contents.instructions,
            versions=versions,
        )
        file = folder / f"{graph.name}.hlo.pb"
        with written_aside(file) as aside:
            aside.write_bytes(content)
        dumped[file.name] = graph

    with gelu_as_on_neuron():
        capture(build(architecture, setting.pixels), setting, platform, keep=keep)
    return dumped


def capture(
    network: nn.Module,
    setting: Setting,
    platform: Platform,
    labels: int = len(FINDINGS),
    keep: Callable[[GraphPart, list[torch.Tensor]], None] | None = None,
) -> dict[str, Facts]:
    """The facts of ``network`` by part (B x 1 x P x P images to B x labels logits), which is used up.

    ``keep`` is called with the pending tensors of each part of the step. Raises NotCaptured when its forward
    or backward fails on images of this size.
    """
    keep = keep or (lambda part, tensors: None)
    torch_xla.manual_seed(0)  # else the random state's history of earlier networks is part of the graph
    xla_metrics.clear_counters()
    network = platform.network(network.train())
    optimizer, averaged = _as_after_a_step(network, platform)
    batch = _batch(setting, platform, labels)
    loss_sum = platform.to_device(torch.zeros(1))
    owned = [*network.parameters(), *network.buffers(), batch.images, batch.labels]
    maps: set[nn.Module] = set()
    kept: dict[int, int] = {}
    with _named("trained", setting), _one_graph():
        with _linears_on_maps(maps), _saved_for_backward(kept, owned), platform.autocast():
            logits = network(batch.images)
            loss = binary_cross_entropy_with_logits(logits, batch.labels) / 1  # as one of its micro-batches
        input_path, forward = _graph([batch.images]), _graph([logits])
        keep("forward", [logits])
        loss.backward()
        keep("backward", [loss, *(w.grad for w in network.parameters() if w.grad is not None)])
        loss_sum += loss.detach()
        optimizer.step()
        averaged.update(network, platform.number(averaged.weight(1)))
    results = [loss_sum, *_results(network, optimizer, averaged, loss)]
    keep("step", results)
    work = sum(product.macs for product in forward.products) - sum(p.macs for p in input_path.products)
    return {
        part: Facts(
            part,
            gmac=round(work / setting.batch / 1e9, 4),
            **_graph_counts(graph, setting),
            **_forward_counts(forward, work, setting),
            **_layer_counts(network),
            linears_on_maps=len(maps),
            activation_mib_per_image=round(sum(kept.values()) / setting.batch / 2**20, 4),
            fallbacks=_fallbacks(),
        )
        for part, graph in zip(AUDITED_PARTS, (forward, _graph(results)), strict=True)
    }


def _batch(setting: Setting, platform: Platform, labels: int) -> Batch:
    """A pending batch of training as its input path makes it, of black images without findings."""
    images = np.zeros((setting.batch, setting.pixels, setting.pixels), np.uint8)
    packed: Any = SimpleNamespace(images=images, labels=lambda: np.zeros((setting.batch, labels), np.float32))
    # Mean and deviation are parameters of the graph, unlike 0 and 1.
    scratch = UsedWeights(source="scratch", sha256=None, mean=0.5, std=0.25)
    batches = Batches(packed, platform, -1, scratch)  # streamed, as on platform neuron
    drawn = draw_parameters(Augmentation(), setting.batch, seed=0, epoch=0)
    return next(batches.over(np.arange(setting.batch), setting.batch, drawn))


def build(architecture: str, pixels: int) -> nn.Module:
    """Build a cell's network with zeros for weights; NotCaptured when it cannot be built for this size."""
    recipe, priors = Recipe(epochs=1, batch=1), np.full(len(FINDINGS), 0.1)

    def drawn() -> nn.Module:
        if architecture in LAYERS:
            return control_network(architecture, len(FINDINGS))  # type: ignore[no-any-return]
        return build_network(architecture, pixels, recipe, priors)

    with _named("built", Setting(pixels)):
        try:
            with torch.device("meta"):
                network = drawn()
            # All elements of a weight are one zero in memory until it is moved.
            return network._apply(lambda weight: torch.zeros((), dtype=weight.dtype).expand(weight.shape))
        except UserError:
            raise
        except Exception:  # some networks compute with their weights: build those as training does
            return drawn()


@contextmanager
def _named(deed: str, setting: Setting) -> Iterator[None]:
    """Turn whatever a network raises into NotCaptured: what failed at which size, and the error's text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (UserError, NotCaptured):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise NotCaptured(f"cannot be {deed} at {setting.pixels} px: {text[:200]}") from error


def _as_after_a_step(network: nn.Module, platform: Platform) -> tuple[torch.optim.Optimizer, Averaged]:
    """AdamW and the average as every step but the first finds them; write the weights once."""
    optimizer = platform.optimizer(param_groups_weight_decay(network, 0.05), 1e-3, 0.05)
    averaged, rate = Averaged(network, 0.9), platform.number(1e-3)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.detach())  # no instruction, but torch_xla makes views of written weights anew
    for group in optimizer.param_groups:
        group["lr"] = rate
        for weight in group["params"]:
            optimizer.state[weight] = {
                name: xla_builder.create_placeholder_tensor(weight.shape, torch.float32)
                for name in ("exp_avg", "exp_avg_sq")
            }
    averaged.state = {
        name: xla_builder.create_placeholder_tensor(value.shape, value.dtype)
        for name, value in averaged.state.items()
    }
    return optimizer, averaged


def _results(
    network: nn.Module, optimizer: torch.optim.Optimizer, averaged: Averaged, loss: torch.Tensor
) -> list[torch.Tensor]:
    """All tensors that live on after a step, in a fixed order."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
    tensors = [loss, *network.parameters(), *network.buffers(), *gradients, *moments]
    tensors += averaged.state.values()
    return [tensor.detach() for tensor in tensors if tensor.device == loss.device]


def _graph(tensors: list[torch.Tensor]) -> Graph:
    """The graph of pending ``tensors`` (the function is private: torch_xla is pinned)."""
    return Graph.parse(torch_xla._XLAC._get_xla_tensors_hlo(tensors))


def _fallbacks() -> str:
    """The operators that were sent to the CPU since the counters were cleared."""
    return " ".join(sorted(name for name in xla_metrics.counter_names() if name.startswith("aten::")))


@contextmanager
def _one_graph() -> Iterator[None]:
    """Raise NotCaptured where a step reads a value before its end, instead of compiling what is there."""
    allowed = torch_xla._XLAC._get_allow_execution()
    torch_xla._XLAC._set_allow_execution(False)
    try:
        # torch_xla refuses for one thread only, so backward stays on this one.
        with torch.autograd.set_multithreading_enabled(False), _no_standard_error():
            yield
    except RuntimeError as error:
        if "Unexpected execution" not in str(error):
            raise
        operators = _fallbacks()
        read = operators in ("", _ITEM)
        reason = "its code reads a value" if read else f"{operators} falls back to the CPU"
        raise NotCaptured(f"a step is not one graph: {reason} before the step ends") from None
    finally:
        torch_xla._XLAC._set_allow_execution(allowed)


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Drop what C++ code writes to the standard error stream: torch_xla prints a trace when it refuses."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _saved_for_backward(sizes: dict[int, int], owned: list[torch.Tensor]) -> AbstractContextManager[None]:
    """Note the bytes that autograd keeps for backward, by storage, without those of ``owned`` tensors."""
    own_storages = {tensor.untyped_storage()._cdata for tensor in owned}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in own_storages:
            sizes[storage] = max(sizes.get(storage, 0), tensor.numel() * tensor.element_size())
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def _linears_on_maps(linears: set[nn.Module]) -> AbstractContextManager[Any]:
    """Collect the Linear modules that are given feature maps (four dimensions, channels last)."""

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, nn.Linear) and inputs[0].ndim == 4:
            linears.add(module)

    return register_module_forward_pre_hook(look)


def _layer_counts(network: nn.Module) -> dict[str, Any]:
    """The counts that the module tree has and the graph lacks."""
    modules = list(network.modules())
    layernorm, batchnorm = nn.LayerNorm, nn.modules.batchnorm._BatchNorm
    others = [m for m in modules if not isinstance(m, (layernorm, batchnorm)) and not list(m.children())]
    names = [type(module).__name__.lower() for module in others]
    return {
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "layernorms": sum(isinstance(module, layernorm) for module in modules),
        "batchnorms": sum(isinstance(module, batchnorm) for module in modules),
        "other_norms": sum("norm" in name for name in names),
        "gelus": sum("gelu" in name for name in names),
        "poolings": sum("pool" in name for name in names),
    }


def _graph_counts(graph: Graph, setting: Setting) -> dict[str, Any]:
    """The counts of the graph of a part."""
    convolutions = graph.convolutions
    large = [c for c in convolutions if c.role == "input gradient" and max(c.kernel) >= LARGE_KERNEL]
    dilated = [conv for conv in convolutions if max(conv.input_dilation) > 1]
    rows = graph.row_norms
    return {
        "instructions": len(graph.instructions),
        "convolutions": len(convolutions),
        "grouped_convolutions": sum(conv.feature_groups > 1 for conv in convolutions),
        "batch_grouped_convolutions": sum(conv.batch_groups > 1 for conv in convolutions),
        "dots": graph.counts["dot"],
        "transposes": graph.counts["transpose"],
        "large_kernel_input_gradients": sum(conv.name in graph.needed for conv in large),
        "doubly_dilated": sum(max(conv.kernel_dilation) > 1 for conv in dilated),
        "strided_on_dilated": sum(max(conv.stride) > 1 for conv in dilated),
        "layernorm_batchnorms": len(rows),
        "largest_layernorm": max((node.dims[1] for node in rows), default=0),
        "select_and_scatters": graph.counts["select-and-scatter"],
        "bad_reduce_windows": sum(map(is_bad_window, graph.of("reduce-window"))),
        "special_rngs": sum("rng_default" not in node.attributes for node in graph.of("rng-bit-generator")),
        "tiles": sum(product.tiles for product in graph.products),
        "traffic_unfused_mib_per_image": round(graph.unfused_bytes / setting.batch / 2**20, 1),
    }


def _forward_counts(forward: Graph, macs: int, setting: Setting) -> dict[str, Any]:
    """The counts of forward, which does so many ``macs``."""
    ahead = forward.convolutions

    def share(convolutions: list[Convolution]) -> float:
        return round(sum(conv.product.macs for conv in convolutions) / macs, 4) if macs else 0.0

    narrow = [conv for conv in ahead if conv.feature_groups == 1 and conv.channels < NARROW_CHANNELS]
    depthwise = [conv for conv in ahead if conv.depthwise]
    sides = sorted(max(conv.kernel) for conv in ahead)
    return {
        "permutes": _permutes(forward, setting),
        "forward_convolutions": len(ahead),
        "depthwise_convolutions": len(depthwise),
        "narrow_convolutions": len(narrow),
        "depthwise_mac_share": share(depthwise),
        "narrow_mac_share": share(narrow),
        "kernels": " ".join(map(str, dict.fromkeys(sides))),
        "largest_kernel": max(sides, default=0),
        "large_kernels": sum(side >= LARGE_KERNEL for side in sides),
    }


def _permutes(forward: Graph, setting: Setting) -> int:
    """Count the transposes of what comes from the images (feature maps, tokens); those of weights are not."""
    images = (setting.batch, setting.pixels, setting.pixels)
    inputs = {node.name for node in forward.of("parameter") if (node.kind, node.dims) == ("u8", images)}
    from_images = forward.depending_on(inputs)
    return sum(node.name in from_images and len(node.dims) > 2 for node in forward.of("transpose"))
