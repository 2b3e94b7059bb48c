"""The networks that ``cxrbench audit`` captures when none is named, by family. Imports no torch."""

import re

_SIZES = ("atto", "femto", "pico", "nano", "tiny", "small", "base", "large")
# timm names, and variants of ours (training/state.py). ConvNeXt in every size, with conv_mlp as timm
# sets it, and the other way round for the sizes around Pico and Tiny.
FAMILIES: dict[str, tuple[str, ...]] = {
    "ResNet": ("resnet18", "resnet50", "resnet101", "resnet152"),
    "ConvNeXt": (
        "convnext_zepto_rms",
        *(f"convnext_{size}" for size in _SIZES),
        "convnext_xlarge",
        "convnext_xxlarge",
    ),
    "ConvNeXt, MLP swapped": (
        "convnext_atto_linear_mlp",
        "convnext_femto_linear_mlp",
        "convnext_pico_linear_mlp",
        "convnext_nano_linear_mlp",
        "convnext_tiny_conv_mlp",
        "convnext_tiny_hnf",
        "convnext_small_conv_mlp",
        "convnext_base_conv_mlp",
    ),
    "ConvNeXt V2": (*(f"convnextv2_{size}" for size in _SIZES), "convnextv2_huge"),
    "EfficientNet": ("efficientnet_b0", "efficientnetv2_s"),
    "MobileNet": ("mobilenetv2_100", "mobilenetv3_large_100"),
    "DenseNet": ("densenet121",),
    "RegNet": ("regnetx_016", "regnety_016"),
    "ViT": ("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224"),
    "MaxViT": ("maxvit_rmlp_pico_rw_256",),
    "Swin": ("swin_tiny_patch4_window7_224", "swin_base_patch4_window7_224"),
}
NETWORKS: tuple[str, ...] = tuple(name for names in FAMILIES.values() for name in names)


def family_of(architecture: str) -> str:
    """Return the family of a listed network; for any other, the letters that its name starts with."""
    for family, names in FAMILIES.items():
        if architecture in names:
            return family
    start = re.match(r"[a-z]+", architecture)
    return start[0] if start else architecture
