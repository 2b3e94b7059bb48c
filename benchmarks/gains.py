"""What each way of running a step gains on a device: added one after the other, measured in pairs.

The table is evidence: a platform keeps a way when its median gain exceeds 3 %.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from timm.optim import param_groups_weight_decay
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.train import PRIORS, Contender, Setting, paired_blocks, quartile_spread
from cxrbench import platforms
from cxrbench.evidence.tolerances import KEPT_ABOVE
from cxrbench.study.config import Recipe
from cxrbench.study.errors import UserError
from cxrbench.training import host
from cxrbench.training.network import build_network

_EAGER = ("plain", "channels_last", "fused AdamW")
WAYS = {  # each is added to the ones before it
    "cpu": (*_EAGER, "torch.compile"),  # bf16 is left out: some processors die of it (docs/decisions.md)
    "cuda": (*_EAGER, "bf16 autocast", "torch.compile", "CUDA graphs"),
}
_NAMED = ("platform", "architecture", "pixels", "batch", "threads")  # of the setting, in each row


def measure_gains(setting: Setting, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row per way: its median paired gain over the ways before it, and its spread."""
    if setting.platform not in WAYS:
        raise UserError(f"gains are measured on {', '.join(WAYS)}; not on '{setting.platform}'")
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    ways = WAYS[setting.platform]
    contenders = {way: _contender(setting, platform.device, ways[: n + 1]) for n, way in enumerate(ways)}
    blocks = paired_blocks(contenders, setting, platform, lambda text: None)
    rows = []
    for before, way in itertools.pairwise(ways):
        gains = [b / a - 1 for a, b in zip(blocks[before], blocks[way], strict=True)]
        row = {name: getattr(setting, name) for name in _NAMED} | {
            "way": way,
            "added_to": before,
            "images_per_second": statistics.median(blocks[way]),
            "gain": statistics.median(gains),
            "spread": quartile_spread(gains),
            "above_threshold": statistics.median(gains) > KEPT_ABOVE,
            "blocks": setting.blocks,
            **host.measured_now(),
        }
        rows.append(row)
        report(f"{setting.architecture}: {way} {row['gain']:+.1%} over {before}")
    return rows


def _contender(setting: Setting, device: torch.device, ways: tuple[str, ...]) -> Contender:
    """A step on a resident batch with ``ways`` switched on."""
    layout = torch.channels_last if "channels_last" in ways else torch.contiguous_format
    torch.manual_seed(0)
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, PRIORS)
    network = network.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        param_groups_weight_decay(network, recipe.weight_decay), fused="fused AdamW" in ways
    )
    forward: Callable[[torch.Tensor], torch.Tensor] = network
    if "torch.compile" in ways:
        forward = torch.compile(network, mode="reduce-overhead" if "CUDA graphs" in ways else "default")
    size = (setting.batch, 1, setting.pixels, setting.pixels)
    images = torch.randn(size, device=device).contiguous(memory_format=layout)
    labels = (torch.rand(setting.batch, len(PRIORS), device=device) < 0.1).float()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled="bf16 autocast" in ways):
            loss = binary_cross_entropy_with_logits(forward(images), labels)
        loss.backward()
        optimizer.step()

    return Contender(step)
