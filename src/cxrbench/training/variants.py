"""ConvNeXts of timm's sizes with the other kind of MLP, which tells kind and size apart.

timm chooses ``conv_mlp`` by size: atto to nano have 1x1 convolutions, tiny and larger Linear layers.
"""

from functools import partial
from typing import Any

import timm
from timm.models import register_model

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
