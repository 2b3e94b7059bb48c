"""timm networks with one setting changed, under names of their own: ConvNeXt with the other kind of MLP.

timm chooses ``conv_mlp`` by size: atto to nano have 1x1 convolutions, tiny and larger have Linear layers. The
same size with the other kind tells the two apart. Once registered with timm, everything that builds a network
by name can build these.
"""

from __future__ import annotations

from typing import Any

from timm.models import is_model, model_entrypoint, register_model
from torch import nn

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "convnext_pico_linear_mlp": ("convnext_pico", {"conv_mlp": False}),
    "convnext_nano_linear_mlp": ("convnext_nano", {"conv_mlp": False}),
    "convnext_tiny_conv_mlp": ("convnext_tiny", {"conv_mlp": True}),
    "convnext_small_conv_mlp": ("convnext_small", {"conv_mlp": True}),
    "convnext_base_conv_mlp": ("convnext_base", {"conv_mlp": True}),
}


def _register(name: str, base: str, options: dict[str, Any]) -> None:
    def entry(pretrained: bool = False, **settings: Any) -> nn.Module:
        network: nn.Module = model_entrypoint(base)(pretrained=pretrained, **(options | settings))
        return network

    entry.__name__ = name
    register_model(entry)


def register_variants() -> None:
    """Make timm know the names of :data:`VARIANTS`; does nothing the second time."""
    for name, (base, options) in VARIANTS.items():
        if not is_model(name):
            _register(name, base, options)
