"""The graph audit in the paper: its table and its numbers, from recorded rows. Imports no torch."""

from __future__ import annotations

import pandas as pd

from cxrbench.compile.audit import KEY, read_audit
from cxrbench.compile.facts import Setting
from cxrbench.compile.rules import CORE_GIB, INSTRUCTION_CAP, RULES
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results, Table

SETTING = Setting(pixels=224, batch=32, precision="fp32")  # of the paper's table
ROWS = (
    "resnet18",
    "resnet50",
    "convnext_pico",
    "convnext_pico_linear_mlp",
    "convnext_nano",
    "convnext_nano_linear_mlp",
    "convnext_tiny",
    "convnext_tiny_conv_mlp",
    "convnext_tiny_hnf",
    "convnext_small",
    "convnext_small_conv_mlp",
    "convnext_base",
    "convnext_base_conv_mlp",
    "convnextv2_pico",
    "convnextv2_tiny",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "densenet121",
    "regnety_016",
    "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224",
)
# What the preprint's abstract says of a network on Trainium (claims P02 and P10).
REPORTED = {
    "convnext_pico": "runs",
    "convnext_tiny": "fails",
    "convnext_small": "fails",
    "convnext_base": "fails",
}
_NUMBERS = (
    "instructions",
    "convolutions",
    "forward_convolutions",
    "grouped_convolutions",
    "batch_grouped_convolutions",
    "depthwise_convolutions",
    "dots",
    "transposes",
    "permutes",
    "layernorms",
    "batchnorms",
    "large_kernels",
    "large_kernel_input_gradients",
    "linears_on_maps",
    "largest_kernel",
    "largest_batch",
    "tiles",
)


def of_setting(table: pd.DataFrame, setting: Setting = SETTING) -> pd.DataFrame:
    """The captured rows of one setting, by architecture."""
    if table.empty:
        return table.set_index("architecture", drop=False)
    same = (table[KEY[:3]] == (setting.pixels, setting.batch, setting.precision)).all(axis=1)
    return table[same & (table["problem"] == "")].set_index("architecture", drop=False)


def audit_table(read: Results) -> Table:
    """The networks of :data:`ROWS` as texts, with what the preprint's abstract says of them."""
    captured = of_setting(read_audit(read.recorded))
    rows = [
        {
            "Network": one.architecture,
            "Abstract": REPORTED.get(one.architecture, ""),
            "Million weights": f"{one.parameters / 1e6:.1f}",
            "GMAC": f"{one.gmac:.2f}",
            "MiB/image": f"{one.activation_mib_per_image:.0f}",
            "Largest batch": f"{one.largest_batch}",
            "HLO": f"{one.instructions:,}",
            "Conv.": f"{one.convolutions}",
            "Grouped": f"{one.grouped_convolutions} + {one.batch_grouped_convolutions}",
            "Dots": f"{one.dots}",
            "Permutes": f"{one.permutes}",
            "Kernels": one.kernels,
            "LN": f"{one.layernorms}",
            "BN": f"{one.batchnorms}",
            "Tiles/cap": f"{one.tiles / INSTRUCTION_CAP:.2f}",
            "Rules": one.rules_broken,
        }
        for name in ROWS
        if name in captured.index
        for one in captured.loc[[name]].itertuples()
    ]
    return pd.DataFrame(rows), "llrrrrrrrrrlrrrl"


def audit_values(read: Results) -> dict[str, str]:
    """``audit/<architecture>/<what>`` at the paper's setting, and the setting itself."""
    captured = of_setting(read_audit(read.recorded))
    values = {
        "audit/networks": str(len(captured)),
        "audit/pixels": str(SETTING.pixels),
        "audit/batch": str(SETTING.batch),
        "audit/core gib": f"{CORE_GIB:.0f}",
        "audit/instruction cap": f"{INSTRUCTION_CAP:,}",
        "audit/rules": str(len(RULES)),
        "audit/rules said": escape("; ".join(f"{r.name} ({r.ground}): {r.says}" for r in RULES) + ".", 5000),
    }
    for one in captured.to_dict("records"):
        key = f"audit/{one['architecture']}"
        values |= {f"{key}/{name}": f"{one[name]:,}" for name in _NUMBERS}
        values |= {
            f"{key}/gmac": f"{one['gmac']:.2f}",
            f"{key}/million weights": f"{one['parameters'] / 1e6:.1f}",
            f"{key}/activation mib": f"{one['activation_mib_per_image']:.0f}",
            f"{key}/step gib": f"{one['step_gib']:.1f}",
            f"{key}/share of cap": f"{100 * one['tiles'] / INSTRUCTION_CAP:.0f}",
            f"{key}/rules": escape(one["rules_broken"]),
        }
    for name in ("torch", "torch_xla", "timm"):
        if len(captured):
            values[f"audit/{name}"] = escape(", ".join(dict.fromkeys(captured[name].astype(str))))
    return values
