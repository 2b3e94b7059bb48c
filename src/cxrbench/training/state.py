"""The state of a run: the weights that it begins with, its clocks and counters, checkpoints, weights kept.

Variants of timm's networks stand here too, as each shares the weights of its base.
"""

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import timm
import torch
from huggingface_hub import hf_hub_download
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from timm.models import get_arch_pretrained_cfgs, load_state_dict, register_model
from torch import nn

from cxrbench.evidence.record import EpochStats, Timing, UsedWeights
from cxrbench.platforms.base import Platform
from cxrbench.study.files import sha256_file, synced, written_aside
from cxrbench.study.names import UserError, nearest, suggestion
from cxrbench.study.readers import shortened
from cxrbench.study.recipe import FileWeights, Recipe, TimmWeights, weights_missing
from cxrbench.training.job import checkpoints

_METADATA = "cxrbench"  # the one key of a kept file's metadata: safetensors writes several in any order
_DAMAGED = (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError)
_KEEP = 2  # checkpoints
WARMUP_STEPS = 5  # not counted in images per second: caches, allocators, compilers


# -- the network that a run begins with ------------------------------------------------------------

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


def initial_network(architecture: str, pixels: int, findings: int, recipe: Recipe) -> Any:
    """Return a timm network with the recipe's initial weights; its classifier is new.

    UserError for a name that timm does not know, a dropout that it does not have, weights that do not fit.
    """
    register_variants()
    if not timm.is_model(architecture):
        raise UserError(
            f"unknown architecture '{architecture}'{nearest(architecture, timm.list_models())}; "
            f"timm {timm.__version__} knows {len(timm.list_models())} names"
        )
    options: dict[str, Any] = {"pretrained": False, "in_chans": 1, "num_classes": findings}
    pretrained = timm.get_pretrained_cfg(architecture)
    if pretrained is not None and pretrained.fixed_input_size:
        options["img_size"] = pixels  # networks that fix their input size can be built for another
    dropped = {"drop_path_rate": recipe.drop_path, "drop_rate": recipe.drop_rate}
    options |= {name: rate for name, rate in dropped.items() if rate}
    try:
        network: Any = timm.create_model(architecture, **options)
    except TypeError as error:
        for name, field in (("drop_path_rate", "drop_path"), ("drop_rate", "drop_rate")):
            if name in options and f"'{name}'" in str(error):
                raise UserError(f"{architecture} has no {name}; set {field} to 0 in its recipe") from None
        raise
    return _with_initial_weights(network, architecture, recipe, options)


def set_prior_bias(network: Any, priors: np.ndarray) -> None:
    """Start the last linear layer at the log-odds of each label, so that no step has to learn them."""
    linear = (nn.Linear, nn.Conv2d)
    classifier = network.get_classifier()
    if not isinstance(classifier, nn.Module):
        return  # two heads, as in LeViT: neither is the last layer alone
    biases = [layer.bias for layer in classifier.modules() if isinstance(layer, linear)]
    if biases and biases[-1] is not None and biases[-1].shape == (len(priors),):
        clipped = np.clip(priors, 1e-4, 1 - 1e-4)
        with torch.no_grad():
            biases[-1].copy_(torch.from_numpy(np.log(clipped / (1 - clipped))))


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


def _with_initial_weights(
    network: Any, architecture: str, recipe: Recipe, options: dict[str, Any]
) -> nn.Module:
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


# -- how far it is ---------------------------------------------------------------------------------


class Progress(BaseModel):
    """The position and counters of a run. Saved with every checkpoint, so they survive interruptions."""

    epoch: int = 0
    step: int = 0  # optimizer steps, over all epochs
    timing: Timing = Timing()
    history: list[EpochStats] = []
    loss_before: float = 0.0  # the sum of losses when the epoch under way began
    epoch_seconds: float = 0.0  # training time of the epoch under way, earlier attempts included
    steady_images: int = 0
    steady_seconds: float = 0.0
    core_seconds: float = 0.0  # of the machine, while epochs were trained to their end
    others_seconds: float = 0.0  # used by other processes

    @property
    def images_per_second(self) -> float | None:
        """Training speed after the first steps of each attempt; None during these."""
        return self.steady_images / self.steady_seconds if self.steady_seconds else None


class Clock:
    """Training time, read only after the device is synchronised; saving and evaluating are not in it."""

    def __init__(self, platform: Platform, progress: Progress, batch: int) -> None:
        self.platform, self.progress, self.batch = platform, progress, batch
        self.steps = self.steps_read = 0  # of this attempt
        self.restart()

    def restart(self) -> None:
        """Leave out the time since the last reading."""
        self.last = self.platform.clock()

    def read(self) -> None:
        """Add the time since the last reading to the epoch's and the cell's."""
        self.platform.synchronise()
        now = self.platform.clock()
        seconds, self.last = now - self.last, now
        self.progress.epoch_seconds += seconds
        self.progress.timing.train_seconds += seconds
        if self.steps_read >= WARMUP_STEPS:
            self.progress.steady_images += (self.steps - self.steps_read) * self.batch
            self.progress.steady_seconds += seconds
        self.steps_read = self.steps


class CoreUse:
    """The machine's core-seconds since this object was made, and the part that other processes used."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def others(self, gather: Callable[[float], list[float]]) -> tuple[float, float]:
        """Return (core-seconds there were, those used by other processes than the trainer's).

        ``gather`` collects a value from all processes of the trainer.
        """
        there = (time.monotonic() - self._wall) * (psutil.cpu_count() or 1)
        busy = _busy_seconds() - self._busy
        return there, max(0.0, busy - sum(gather(_own_seconds() - self._own)))


def _busy_seconds() -> float:
    """Return the core-seconds used on the machine, with those that a hypervisor took away."""
    times = psutil.cpu_times()
    named = ("user", "nice", "system", "irq", "softirq", "steal")  # guest time is part of user
    return float(sum(getattr(times, name, 0.0) for name in named))


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


# -- what it saves: checkpoints, written aside, named by their content; the weights that are scored ---


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as the checkpoint after ``step`` optimizer steps and drop all but the last two."""
    with written_aside(folder / "new.pt") as aside:
        try:
            with open(aside, "wb") as file:
                torch.save(state, file)
        except RuntimeError as error:  # torch's "unexpected pos", raised while it handles the OSError
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        digest = sha256_file(aside)[:16]
    final = folder / f"step{step:09d}-{digest}.pt"
    (folder / "new.pt").rename(final)
    synced(folder)  # the name must survive a power cut before the older ones go
    for _, old in checkpoints(folder)[_KEEP:]:
        old.unlink()
    return final


def load_checkpoint(
    folder: Path, identity: dict[str, str], report: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the newest intact checkpoint, or None; UserError when it is of another ``identity``."""
    for _, path in checkpoints(folder):
        try:
            if not path.stem.endswith(sha256_file(path)[:16]):
                raise ValueError("its content does not match its name")
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            report(f"checkpoint {path.name} is damaged ({error}); falling back to the one before")
            continue
        if state["identity"] != identity:
            changed = [key for key in identity if state["identity"].get(key) != identity[key]]
            raise UserError(
                f"{path}: this checkpoint was made with another {' and '.join(changed)}; "
                f"remove {folder} to start over"
            )
        return state
    return None


def keep(path: Path, state: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
    """Write tensors as safetensors, with ``about`` for :func:`read_metadata`."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with written_aside(path) as aside:
        save_file(tensors, aside, {_METADATA: json.dumps(about)})


def read_metadata(path: Path) -> dict[str, Any]:
    """The facts that :func:`keep` wrote into a file; empty for any other file."""
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads((file.metadata() or {}).get(_METADATA, "{}")))
    except _DAMAGED:
        return {}  # reading its tensors reports that
