"""What each way of running a step gains on a device: added one after the other, measured in pairs.

A way is kept by the platforms when its median gain exceeds 3 % (issue: the training engine). The table is
evidence for that choice; the platforms' code is where it is made.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrbench import platforms
from cxrbench.config import Recipe
from cxrbench.datasets.findings import FINDINGS
from cxrbench.platforms.base import Platform
from cxrbench.training.bench import Contender, Setting
from cxrbench.training.network import build_network, parameter_groups

KEPT_ABOVE = 0.03
WAYS = ("plain", "channels_last", "fused AdamW", "torch.compile")  # each is added to the ones before it


def measure_gains(setting: Setting, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row per way: its median paired gain over the ways before it, and its spread."""
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    contenders = {way: _contender(setting, platform, number) for number, way in enumerate(WAYS)}
    blocks: dict[str, list[float]] = {way: [] for way in WAYS}
    for block in range(-1, setting.blocks):
        for number in range(len(WAYS)):
            way = WAYS[(number + block) % len(WAYS)]
            speed = contenders[way].images_per_second(setting, platform)
            if block >= 0:
                blocks[way].append(speed)
    rows = []
    for before, way in itertools.pairwise(WAYS):
        gains = sorted(b / a - 1 for a, b in zip(blocks[before], blocks[way], strict=True))
        quarter = len(gains) // 4
        row = {
            **{
                key: getattr(setting, key)
                for key in ("platform", "architecture", "pixels", "batch", "threads")
            },
            "way": way,
            "added_to": before,
            "images_per_second": statistics.median(blocks[way]),
            "gain": statistics.median(gains),
            "spread": gains[-1 - quarter] - gains[quarter],
            "above_threshold": statistics.median(gains) > KEPT_ABOVE,
            "blocks": setting.blocks,
        }
        rows.append(row)
        say(f"{setting.architecture}: {way} {row['gain']:+.1%} over {before}")
    return rows


def _contender(setting: Setting, platform: Platform, ways: int) -> Contender:
    """A step on one resident batch with the first ``ways`` ways switched on."""
    channels_last, fused, compiled = (ways >= number for number in (1, 2, 3))
    device = platform.device
    layout = torch.channels_last if channels_last else torch.contiguous_format
    torch.manual_seed(0)
    recipe = Recipe(epochs=1, batch=setting.batch)
    priors = np.full(len(FINDINGS), 0.1)
    network = build_network(setting.architecture, setting.pixels, recipe, priors).to(device)
    network = network.to(memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(parameter_groups(network, recipe.weight_decay), fused=fused)
    forward = torch.compile(network) if compiled else network
    size = (setting.batch, 1, setting.pixels, setting.pixels)
    images = torch.randn(size, device=device).contiguous(memory_format=layout)
    labels = (torch.rand(setting.batch, len(FINDINGS), device=device) < 0.1).float()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = binary_cross_entropy_with_logits(forward(images), labels)
        loss.backward()
        optimizer.step()

    return Contender(step)
