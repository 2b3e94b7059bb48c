"""The timm network of a cell, its schedule and its average, as the recipe says."""

import math
from functools import partial
from typing import Any

import numpy as np
import timm
import torch
from timm.models import register_model
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import nn

from cxrbench.study.config import Recipe
from cxrbench.study.errors import UserError, nearest
from cxrbench.training.weights import load_initial

# timm chooses ConvNeXt's ``conv_mlp`` by size: atto to nano have 1x1 convolutions, tiny and larger Linear
# layers. These are the same size with the other kind, which tells the two apart.
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


def build_network(architecture: str, pixels: int, recipe: Recipe, priors: np.ndarray) -> nn.Module:
    """A timm network with the recipe's initial weights: one input channel, one logit per finding, on the CPU.

    ``priors`` are the label frequencies of the training part. The caller seeds torch before.
    Raises UserError for a name that timm does not know, and for weights that do not fit.
    """
    register_variants()
    if not timm.is_model(architecture):
        raise UserError(
            f"unknown architecture '{architecture}'{nearest(architecture, timm.list_models())}; "
            f"timm {timm.__version__} knows {len(timm.list_models())} names"
        )
    options: dict[str, Any] = {"pretrained": False, "in_chans": 1, "num_classes": len(priors)}
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
                what = f"{architecture} has no {name}; set {field} to 0 in its recipe"
                raise UserError(what) from None
        raise
    network = load_initial(network, architecture, recipe, options)
    if recipe.activation_checkpointing:
        network.set_grad_checkpointing(True)
    if recipe.prior_bias:
        _set_prior_bias(network, priors)
    return network  # type: ignore[no-any-return]


def parameter_groups(network: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Return AdamW's groups, each with ``lr_scale``, its part of the learning rate; no decay of vectors."""
    if recipe.layer_decay == 1:
        groups = param_groups_weight_decay(network, recipe.weight_decay)
        return [group | {"lr_scale": 1.0} for group in groups]
    return list(param_groups_layer_decay(network, recipe.weight_decay, layer_decay=recipe.layer_decay))


def _set_prior_bias(network: Any, priors: np.ndarray) -> None:
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


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Linear warm-up, then a half cosine to zero; a function of the step, so resuming needs no state."""
    warm = max(1, round(recipe.warmup * steps))
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Averaged:
    """Exponential moving average of weights and buffers; without a host read, unlike torch's swa_utils."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        self.state = {name: value.detach().clone() for name, value in network.state_dict().items()}

    def weight(self, step: int) -> float:
        """Return the share that the weights after ``step`` (from 0) get; larger while the decay warms up."""
        return 1 - min(self._decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, network: nn.Module, weight: float | torch.Tensor) -> None:
        """Average in the network's weights; ``weight``: :meth:`weight` as ``Platform.number`` returns it."""
        mine, theirs = [], []
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                mine.append(self.state[name])
                theirs.append(value)
            else:
                self.state[name].copy_(value)
        if not torch.is_tensor(weight):
            torch._foreach_lerp_(mine, theirs, weight)
        elif weight.dim():  # one update per tensor, as XLA fuses them
            torch._foreach_lerp_(mine, theirs, [weight] * len(mine))
        else:
            steps = torch._foreach_sub(theirs, mine)
            torch._foreach_mul_(steps, weight)
            torch._foreach_add_(mine, steps)
