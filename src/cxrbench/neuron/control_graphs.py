"""Positive controls: graphs that a working compiler takes, so that a failure of another means something.

Each is a training step as all graphs here: a linear layer with AdamW, the same with GELU, with LayerNorm. The
networks of AWS's own samples are under ``compilation.controls`` of the study's config. timm knows none of
these. Imports torch only to build one.
"""

from typing import Any

from cxrbench.neuron.rules import Setting

_PIXELS, _WIDTH = 16, 64
LAYERS = {"control_linear": "Identity", "control_gelu": "GELU", "control_layernorm": "LayerNorm"}
ALWAYS: tuple[tuple[str, Setting], ...] = tuple((name, Setting(_PIXELS, 4, "fp32")) for name in LAYERS)


def control_network(name: str, labels: int) -> Any:
    """A network of :data:`LAYERS` for images of 16 px: Linear, its layer, Linear."""
    from torch import nn

    layer = LAYERS[name]
    between = getattr(nn, layer)(*([_WIDTH] if layer == "LayerNorm" else []))
    return nn.Sequential(nn.Flatten(), nn.Linear(_PIXELS**2, _WIDTH), between, nn.Linear(_WIDTH, labels))
