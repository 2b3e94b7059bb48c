"""Positive controls: graphs that a working compiler takes, so that a failure of another means something.

Each is a training step as all graphs here: a linear layer with AdamW, the same with GELU, with LayerNorm. The
networks of AWS's own samples are under ``compilation.controls`` of the study's config. Imports no torch.
"""

from functools import partial
from typing import Any

from cxrbench.compile.rules import Setting

_PIXELS, _WIDTH = 16, 64
LAYERS = {"control_linear": "Identity", "control_gelu": "GELU", "control_layernorm": "LayerNorm"}
ALWAYS: tuple[tuple[str, Setting], ...] = tuple((name, Setting(_PIXELS, 4, "fp32")) for name in LAYERS)


def register_controls() -> None:
    """Register the networks of :data:`LAYERS` with timm; does nothing the second time."""
    import timm
    from timm.models import register_model

    for name, layer in LAYERS.items():
        if not timm.is_model(name):
            entry: Any = partial(_network, layer=layer)
            entry.__name__, entry.__module__ = name, __name__
            register_model(entry)


def _network(
    layer: str, pretrained: bool = False, in_chans: int = 1, num_classes: int = 14, **options: Any
) -> Any:
    """Return a network for images of 16 px: Linear, a layer, Linear."""
    from torch import nn

    between = getattr(nn, layer)(*([_WIDTH] if layer == "LayerNorm" else []))
    linear = nn.Linear(in_chans * _PIXELS**2, _WIDTH)
    network: Any = nn.Sequential(nn.Flatten(), linear, between, nn.Linear(_WIDTH, num_classes))
    network.get_classifier = lambda: network[-1]
    return network
