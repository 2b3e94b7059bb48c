"""What each way of running a step gains on a device: added one after the other, measured in pairs.

A way is kept by the platforms when its median gain exceeds 3 %. The table is evidence for that choice; the
platforms' code is where it is made.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.train import Contender, Setting, paired_blocks
from cxrbench import platforms
from cxrbench.datasets.findings import FINDINGS
from cxrbench.evidence.tolerances import KEPT_ABOVE
from cxrbench.platforms.base import Platform
from cxrbench.study.config import Recipe
from cxrbench.study.errors import UserError
from cxrbench.training import host
from cxrbench.training.network import build_network, parameter_groups

_EAGER = ("plain", "channels_last", "fused AdamW")
WAYS = {  # each is added to the ones before it
    "cpu": (*_EAGER, "torch.compile"),  # bf16 is left out: some processors die of it (docs/decisions.md)
    "cuda": (*_EAGER, "bf16 autocast", "torch.compile", "CUDA graphs"),
}


def measure_gains(setting: Setting, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row per way: its median paired gain over the ways before it, and its spread."""
    if setting.platform not in WAYS:
        raise UserError(f"gains are measured on {', '.join(WAYS)}; not on '{setting.platform}'")
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    ways = WAYS[setting.platform]
    contenders = {way: _contender(setting, platform, ways[: n + 1]) for n, way in enumerate(ways)}
    blocks = paired_blocks(contenders, setting, platform, lambda text: None)
    rows = []
    for before, way in itertools.pairwise(ways):
        gains = sorted(b / a - 1 for a, b in zip(blocks[before], blocks[way], strict=True))
        quarter = len(gains) // 4
        names = ("platform", "architecture", "pixels", "batch", "threads")
        row = {name: getattr(setting, name) for name in names} | {
            "way": way,
            "added_to": before,
            "images_per_second": statistics.median(blocks[way]),
            "gain": statistics.median(gains),
            "spread": gains[-1 - quarter] - gains[quarter],
            "above_threshold": statistics.median(gains) > KEPT_ABOVE,
            "blocks": setting.blocks,
            **host.measured_now(),
        }
        rows.append(row)
        report(f"{setting.architecture}: {way} {row['gain']:+.1%} over {before}")
    return rows


def _contender(setting: Setting, platform: Platform, ways: tuple[str, ...]) -> Contender:
    """A step on a resident batch with ``ways`` switched on."""
    device = platform.device
    layout = torch.channels_last if "channels_last" in ways else torch.contiguous_format
    torch.manual_seed(0)
    recipe = Recipe(epochs=1, batch=setting.batch)
    priors = np.full(len(FINDINGS), 0.1)
    network = build_network(setting.architecture, setting.pixels, recipe, priors).to(device)
    network = network.to(memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(parameter_groups(network, recipe.weight_decay), fused="fused AdamW" in ways)
    forward: Callable[[torch.Tensor], torch.Tensor] = network
    if "torch.compile" in ways:
        forward = torch.compile(network, mode="reduce-overhead" if "CUDA graphs" in ways else "default")
    size = (setting.batch, 1, setting.pixels, setting.pixels)
    images = torch.randn(size, device=device).contiguous(memory_format=layout)
    labels = (torch.rand(setting.batch, len(FINDINGS), device=device) < 0.1).float()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled="bf16 autocast" in ways):
            loss = binary_cross_entropy_with_logits(forward(images), labels)
        loss.backward()
        optimizer.step()

    return Contender(step)
