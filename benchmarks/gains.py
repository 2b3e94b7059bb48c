"""What each way of running a step gains: kept where the median paired gain exceeds that of no change at all.

The null is the first way once more. Two equal contenders settle in other places of memory and differ for
their whole life, so its largest gain or loss over the blocks is what a gain must exceed.
"""

import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.optim import param_groups_weight_decay

from benchmarks import measured_now, train
from benchmarks.turns import Contender, Report, paired_blocks, paired_ratios, quartile_spread
from cxrbench.common.errors import UserError
from cxrbench.platforms.base import Platform
from cxrbench.study import platforms
from cxrbench.study.config import Recipe
from cxrbench.training.method import build_network

_EAGER = ("plain", "channels_last", "fused AdamW")
WAYS = {  # each is added to the ones before it
    "cpu": (*_EAGER, "torch.compile"),
    "cuda": (*_EAGER, "recorded step", "torch.compile"),
}
_NULL = "null"
_DIES = {("cpu", "bf16", "torch.compile")}  # on some processors (docs/decisions.md)


def measure_gains(setting: train.Setting, report: Report) -> list[dict[str, Any]]:
    """Return a row per way: its median paired gain over the ways before it, and its spread."""
    if setting.platform not in WAYS:
        raise UserError(
            f"--platform {setting.platform}: gains are measured on others; name one of {', '.join(WAYS)}"
        )
    torch.compiler.reset()  # it compiles a network's code only so often, then runs it as it is
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    kind = setting.platform, setting.precision
    ways = tuple(way for way in WAYS[setting.platform] if (*kind, way) not in _DIES)
    contenders = {way: _contender(setting, platform, ways[: n + 1]) for n, way in enumerate(ways)}
    contenders[_NULL] = _contender(setting, platform, ways[:1])
    blocks = paired_blocks(contenders, setting.blocks, lambda text: None)
    null = max(abs(ratio - 1) for ratio in paired_ratios(blocks, _NULL, ways[0]))
    rows = []
    for before, way in itertools.pairwise(ways):
        gains = [ratio - 1 for ratio in paired_ratios(blocks, way, before)]
        gain = statistics.median(gains)
        row: dict[str, Any] = vars(setting) | {"way": way, "added_to": before}
        row |= {"images_per_second": statistics.median(blocks[way]), "gain": gain}
        judged = {"spread": quartile_spread(gains), "null": null, "above_threshold": gain > null}
        rows.append(row | judged | measured_now(platform))
        report(f"{setting.architecture}: {way} {gain:+.1%} over {before} (no change: up to {null:.1%})")
    return rows


def _contender(setting: train.Setting, platform: Platform, ways: tuple[str, ...]) -> Contender:
    """Return a contender whose steps on a resident batch have these ``ways`` switched on."""
    device = platform.device
    layout = torch.channels_last if "channels_last" in ways else torch.contiguous_format
    torch.manual_seed(0)
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, train.PRIORS)
    network = network.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    groups = param_groups_weight_decay(network, recipe.weight_decay)
    recorded = "recorded step" in ways
    optimizer = torch.optim.AdamW(groups, fused="fused AdamW" in ways, capturable=recorded)
    forward: Callable[[torch.Tensor], torch.Tensor] = network
    if "torch.compile" in ways:
        forward = torch.compile(network)
    size = (setting.batch, 1, setting.pixels, setting.pixels)
    images = torch.randn(size, device=device).contiguous(memory_format=layout)
    labels = (torch.rand(setting.batch, len(train.PRIORS), device=device) < 0.1).float()
    step = partial(train.optimizer_step, forward, optimizer, platform.autocast(), images, labels)
    return train.contender(platform.captured(step) if recorded else step, setting, platform.synchronise)
