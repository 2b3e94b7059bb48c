"""The timm network that a run begins with, and variants of timm's networks.

Variants share the weights of their base.
"""

from functools import partial
from typing import Any

import numpy as np
import timm
import torch
from timm.models import register_model
from torch import nn

from cxrbench.common.errors import UserError, nearest
from cxrbench.study.recipe import Recipe
from cxrbench.training.weights import with_initial_weights

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
    """A timm network with the recipe's initial weights; its classifier is new.

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
    return with_initial_weights(network, architecture, recipe, options)


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
