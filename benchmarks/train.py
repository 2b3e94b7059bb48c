"""Training speed: our loop, timm's as its users run it, and the device's own limit, in paired blocks.

All contenders train the same network in one process and take turns, block by block, so that a machine
that slows down slows all of them; ratios are medians over blocks. A loader's queue is emptied before a
block is timed, and its workers have come to rest before another contender's turn.
"""

from __future__ import annotations

import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode

from cxrbench import platforms
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.packed import Packed, pack, read_packed
from cxrbench.platforms.base import Platform
from cxrbench.study.config import PhantomSource, Recipe
from cxrbench.training import host
from cxrbench.training.network import build_network
from cxrbench.training.steps import Steps

NETWORKS = ("resnet18", "resnet50", "convnext_pico")
PRIORS = np.full(len(FINDINGS), 0.1)
_IMAGES = {"train": 1200, "val": 640, "test": 640}  # the phantoms' rare findings need that many


@dataclass(frozen=True)
class Setting:
    """What is measured, and how long."""

    platform: str
    architecture: str
    pixels: int
    batch: int
    precision: str
    threads: int
    blocks: int
    steps: int = 3  # timed per block and contender


@dataclass(frozen=True)
class Contender:
    """A trainer: ``step`` takes one optimizer step; ``spare`` steps empty its queue."""

    step: Callable[[], object]
    spare: int = 1

    def images_per_second(self, setting: Setting, platform: Platform) -> float:
        """Time one block, after the queue is empty and before the workers rest again."""
        for _ in range(self.spare):
            self.step()
        seconds = _seconds(platform, lambda: [self.step() for _ in range(setting.steps)])
        _wait_for_workers()
        return setting.steps * setting.batch / seconds


@contextmanager
def packed_phantoms(pixels: int, images: dict[str, int]) -> Iterator[Path]:
    """Pack so many phantoms per split in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cxrbench-bench-") as folder:
        name = f"phantom-{pixels}px"
        pack(
            name, PhantomSource(source="phantom", pixels=pixels, recipe="bench", images=images), Path(folder)
        )
        yield Path(folder) / name


def measure(setting: Setting, report: Callable[[str], None]) -> dict[str, Any]:
    """Return a row of train.json: images per second of each contender and their paired ratios."""
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    with packed_phantoms(setting.pixels, _IMAGES) as folder:
        packed = read_packed(folder)
        recipe = Recipe(
            epochs=1000, batch=setting.batch, precision=setting.precision, threads=setting.threads
        )
        trained = Steps(setting.architecture, platform, recipe, packed)
        batches, resident = trained.batches(), itertools.repeat(next(trained.batches()))
        # timm's users choose workers by trying, and so does this: once, before the paired blocks.
        flags = {workers: _timm(setting, packed, platform, workers, channels_last=True) for workers in (2, 4)}
        speed = {workers: timm.images_per_second(setting, platform) for workers, timm in flags.items()}
        best = max(speed, key=lambda workers: speed[workers])
        contenders = {
            "ours": Contender(lambda: trained.take(batches)),
            "timm": _timm(setting, packed, platform, workers=4, channels_last=False),
            "timm_best": flags[best],
            "limit": Contender(lambda: trained.take(resident)),  # the device's speed without input work
        }
        blocks = paired_blocks(contenders, setting, platform, report)
        with FlopCounterMode(display=False) as counter:
            trained.take(resident)
    row = _row(setting, blocks, f"channels_last, {best} workers")
    joules, reason = platform.energy_joules()
    flops, peak = counter.get_total_flops() / setting.batch, _matmul_flops_per_second(platform)
    return row | {
        **host.measured_now(),
        "model_flops_per_image": flops,
        "share_of_matmul_peak": row["ours"] * flops / peak,
        "matmul_flops_per_second": peak,
        "peak_memory_mib": platform.peak_memory_mib(),
        "joules": joules,
        "joules_reason": reason,
    }


def paired_blocks(
    contenders: dict[str, Contender], setting: Setting, platform: Platform, report: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the images per second of each contender in each block, in turns whose order rotates."""
    names = list(contenders)
    blocks: dict[str, list[float]] = {name: [] for name in names}
    for block in range(-1, setting.blocks):  # the first block only warms up
        turn = block % len(names)
        for name in names[turn:] + names[:turn]:
            speed = contenders[name].images_per_second(setting, platform)
            if block >= 0:
                blocks[name].append(speed)
        if block >= 0:
            speeds = ", ".join(f"{name} {values[-1]:.0f}" for name, values in blocks.items())
            report(f"{setting.architecture}, block {block + 1}/{setting.blocks}: {speeds} images/s")
    return blocks


def quartile_spread(values: list[float]) -> float:
    """Return the distance between the quartiles."""
    ordered, quarter = sorted(values), len(values) // 4
    return ordered[-1 - quarter] - ordered[quarter]


def _row(setting: Setting, blocks: dict[str, list[float]], best_flags: str) -> dict[str, Any]:
    def ratio(other: str) -> list[float]:
        return [a / b for a, b in zip(blocks["ours"], blocks[other], strict=True)]

    return {
        **vars(setting),
        **{name: statistics.median(values) for name, values in blocks.items()},
        "ratio_to_timm": statistics.median(ratio("timm")),
        "ratio_to_timm_best": statistics.median(ratio("timm_best")),
        "share_of_limit": statistics.median(ratio("limit")),
        "spread": quartile_spread(ratio("limit")),
        "timm_best_flags": best_flags,
        "blocks_of_each": blocks,
    }


class _PngImages(torch.utils.data.Dataset[tuple[Any, torch.Tensor]]):
    """PNG files in memory, decoded as timm's datasets decode them: no disk, which favours timm."""

    def __init__(self, packed: Packed) -> None:
        rows = packed.rows("train")
        self.labels = torch.from_numpy(packed.labels()[rows])
        self.files = [io.BytesIO() for _ in rows]
        for file, row in zip(self.files, rows, strict=True):
            Image.fromarray(packed.images[row]).save(file, "PNG")
        self.transform: Callable[[Image.Image], Any] | None = None  # set by create_loader

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, torch.Tensor]:
        image = Image.open(self.files[index]).convert("L")
        return (self.transform(image) if self.transform else image), self.labels[index]


def _timm(
    setting: Setting, packed: Packed, platform: Platform, workers: int, channels_last: bool
) -> Contender:
    """timm's loader and training step, as its train.py has them with --model-ema, at equal precision."""
    layout = torch.channels_last if channels_last else torch.preserve_format
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, PRIORS)
    network = network.to(platform.device, memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = create_optimizer_v2(
        network, "adamw", lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    average = ModelEmaV3(network, decay=recipe.averaging)
    loader = create_loader(
        _PngImages(packed),  # type: ignore[arg-type]
        input_size=(1, setting.pixels, setting.pixels),
        batch_size=setting.batch,
        is_training=True,
        num_workers=workers,
        mean=(packed.manifest["pixel_mean"],),
        std=(packed.manifest["pixel_std"],),
        device=platform.device,
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    done = itertools.count()

    def step() -> None:
        images, targets = next(batches)
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with platform.autocast():
            loss = binary_cross_entropy_with_logits(network(images), targets.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(network, step=next(done))

    return Contender(step, spare=2 * workers + 1)  # PyTorch's loader keeps two batches a worker ready


def _wait_for_workers(limit: float = 10.0) -> None:
    """Wait until this process's children use no processor time; at most ``limit`` seconds."""
    children = psutil.Process().children(recursive=True)
    deadline, busy = time.monotonic() + limit, 100.0
    while children and busy > 10 and time.monotonic() < deadline:
        busy = 0.0
        for child in children:
            with suppress(psutil.Error):
                busy += child.cpu_percent(interval=0.1 / len(children))


def _seconds(platform: Platform, work: Callable[[], object]) -> float:
    """Return the wall seconds of ``work``, with the device's own."""
    platform.synchronise()
    started = time.perf_counter()
    work()
    platform.synchronise()
    return time.perf_counter() - started


def _matmul_flops_per_second(platform: Platform, side: int = 2048) -> float:
    """Return what a square matrix product reaches here at this precision: a peak measured, not quoted."""
    kind = torch.bfloat16 if platform.precision == "bf16" else torch.float32
    a = torch.ones(side, side, dtype=kind, device=platform.device)
    return 2 * side**3 / min(_seconds(platform, lambda: a @ a) for _ in range(8))
