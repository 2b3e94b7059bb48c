"""Weights: the file that a network begins with, and that in which those of a run are kept."""

import json
import pickle
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import timm
import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from timm.models import get_arch_pretrained_cfgs, load_state_dict
from torch import nn

from cxrbench.common.errors import UserError, shortened, suggestion
from cxrbench.common.files import sha256_file, written_aside
from cxrbench.evidence.record import UsedWeights
from cxrbench.study.recipe import FileWeights, Recipe, TimmWeights, weights_missing

_METADATA = "cxrbench"  # the one key of a kept file's metadata: safetensors writes several in any order
_DAMAGED = (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError)


@dataclass(frozen=True)
class _Initial:
    """A file with weights, what to call it in the record, and its own normalisation, if it states one."""

    path: Path
    source: str
    sha256: str
    mean: float | None
    std: float | None


def used_weights(network: nn.Module, recipe: Recipe, manifest: dict[str, Any]) -> UsedWeights:
    """The source of the network's initial weights, and the normalisation that goes with them.

    From scratch that is mean and deviation of the training images. Else they are the recipe's, the file's
    own or those of timm's network, the first of these that is stated; of three channels, their mean.
    """
    if recipe.weights == "scratch":
        mean, std = manifest["pixel_mean"], manifest["pixel_std"]
        return UsedWeights(source="scratch", sha256=None, mean=mean, std=std)
    initial = _initial(_base(network), recipe.weights)
    mean, std = recipe.weights.mean, recipe.weights.std
    if mean is None or std is None:
        mean, std = initial.mean, initial.std
    if mean is None or std is None:
        raise UserError(f"{initial.source}: timm states no normalisation of its pixels; give mean and std")
    return UsedWeights(source=initial.source, sha256=initial.sha256, mean=mean, std=std)


def with_initial_weights(
    network: Any, architecture: str, recipe: Recipe, options: dict[str, Any]
) -> nn.Module:
    """``network``, built with ``options``, or another such with the recipe's initial weights.

    timm fits them: it sums the first convolution over its input channels. The classifier is that of
    ``network``. UserError when the weights are damaged, or not those of this network.
    """
    if recipe.weights == "scratch":
        return network
    initial = _initial(_base(network), recipe.weights)
    heads = network.pretrained_cfg.get("classifier") or ()
    names = tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))
    state = {name: value for name, value in _state(initial.path).items() if not name.startswith(names)}
    state |= {name: value for name, value in network.state_dict().items() if name.startswith(names)}
    # With the new classifier among the weights timm loads strictly: no layer keeps its random weights.
    overlay = {"state_dict": state, "num_classes": options["num_classes"], "label_offset": 0}
    try:
        loading = options | {"pretrained": True, "pretrained_cfg_overlay": overlay}
        loaded: Any = timm.create_model(architecture, **loading)
    except (RuntimeError, ValueError, KeyError, IndexError, AttributeError) as error:
        why = shortened(" ".join(str(error).split("state_dict for")[-1].split()))
        raise UserError(
            f"{initial.source}: not weights of {architecture} ({why}); name those of this network, or train "
            "each architecture with a recipe of its own"
        ) from None
    del loaded.pretrained_cfg["state_dict"]
    return loaded


def _base(network: Any) -> str:
    """The name under which timm has weights of a network: our variants share those of their base."""
    return str(network.pretrained_cfg["architecture"])


@cache
def _initial(architecture: str, weights: FileWeights | TimmWeights) -> _Initial:
    """The path of ``weights`` for ``architecture`` on this machine; download timm's."""
    config: Any = timm.get_pretrained_cfg(architecture)
    if isinstance(weights, FileWeights):
        if missing := weights_missing(weights):
            raise UserError(missing)
        path, source, digest = weights.file, weights.file.name, weights.sha256
    else:
        if weights.timm != "default":
            config = _tagged(architecture, weights.timm)
        source = f"{config.architecture}.{config.tag}" if config else architecture
        path = _downloaded(source, config)
        digest = sha256_file(path)
    own = read_metadata(path)
    mean, std = (fmean(getattr(config, key)) if config else None for key in ("mean", "std"))
    return _Initial(path, source, digest, own.get("mean", mean), own.get("std", std))


def _tagged(architecture: str, tag: str) -> Any:
    """timm's entry of the weights of ``architecture`` with ``tag``."""
    configs = get_arch_pretrained_cfgs(architecture)
    tags = {name.partition(".")[2]: config for name, config in configs.items()}
    if tag not in tags:
        hint = suggestion(tag, tags) if tags else "; it has none: train from scratch or name a file"
        raise UserError(f"timm has no weights '{tag}' for {architecture}{hint}")
    return tags[tag]


def _downloaded(source: str, config: Any) -> Path:
    """The file of timm's weights in the cache of huggingface_hub, downloaded when it is not there."""
    if config is None or not config.hf_hub_id:
        raise UserError(f"timm has no weights of {source} to download; train from scratch or name a file")
    place, _, revision = config.hf_hub_id.partition("@")
    try:
        name = config.hf_hub_filename or "model.safetensors"
        return Path(hf_hub_download(place, name, revision=revision or None))
    except OSError as error:
        why = shortened(" ".join(str(error).split()))
        raise UserError(
            f"the weights {source} are not in the cache and cannot be downloaded from {place} ({why}); "
            "connect to the network, or get the file elsewhere and name it as file with its sha256"
        ) from None


def _state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file or of a state dict that torch saved; run no code in it."""
    try:
        state = load_state_dict(str(path), weights_only=True)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise ValueError("it holds other things than tensors")
    except (*_DAMAGED, AttributeError, TypeError) as error:
        why = shortened(" ".join(str(error).split()))
        raise UserError(
            f"{path}: damaged, or no weights that can be read without running code ({why}); get it again, or "
            "save the network's state_dict() as safetensors"
        ) from None
    return state


def write_tensors(path: Path, state: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
    """Write tensors as safetensors, with ``about`` for :func:`read_metadata`."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with written_aside(path) as aside:
        save_file(tensors, aside, {_METADATA: json.dumps(about)})


def read_metadata(path: Path) -> dict[str, Any]:
    """The facts that :func:`write_tensors` wrote into a file; empty for any other file."""
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads((file.metadata() or {}).get(_METADATA, "{}")))
    except _DAMAGED:
        return {}  # reading its tensors reports that
