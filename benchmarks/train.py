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
from cxrbench.training.batches import Batch
from cxrbench.training.job import Job
from cxrbench.training.loop import Trainer
from cxrbench.training.network import build_network

NETWORKS = ("resnet18", "resnet50", "convnext_pico")
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
    steps: int  # timed per block and contender


class Contender:
    """Something that trains: ``step`` does one optimizer step; ``spare`` steps empty its queue."""

    def __init__(self, step: Callable[[], None], spare: int = 1) -> None:
        self.step, self.spare = step, spare

    def images_per_second(self, setting: Setting, platform: Platform) -> float:
        """One timed block, after the queue is empty and before the workers rest again."""
        for _ in range(self.spare):
            self.step()
        platform.synchronise()
        started = time.perf_counter()
        for _ in range(setting.steps):
            self.step()
        platform.synchronise()
        seconds = time.perf_counter() - started
        _wait_for_workers()
        return setting.steps * setting.batch / seconds


def measure(setting: Setting, report: Callable[[str], None]) -> dict[str, Any]:
    """One row of train.json: images per second of each contender and their paired ratios."""
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    with tempfile.TemporaryDirectory(prefix="cxrbench-bench-") as name:
        source = PhantomSource(source="phantom", pixels=setting.pixels, recipe="bench", images=_IMAGES)
        pack("bench", source, Path(name))
        packed = read_packed(Path(name) / "bench")
        recipe = Recipe(
            epochs=1000, batch=setting.batch, precision=setting.precision, threads=setting.threads
        )
        job = Job.to_measure(setting.architecture, setting.platform, recipe, packed.folder)
        trainer = Trainer(job, packed, platform, stop=lambda: False)
        trainer.network.train()
        ours, limit = _ours(trainer), _limit(trainer)
        # timm's users choose workers by trying: so do we, once, before the paired blocks.
        flags = {workers: _timm(setting, packed, platform, workers, channels_last=True) for workers in (2, 4)}
        speed = {workers: timm.images_per_second(setting, platform) for workers, timm in flags.items()}
        best = max(speed, key=lambda workers: speed[workers])
        defaults = _timm(setting, packed, platform, workers=4, channels_last=False)
        contenders = {"ours": ours, "timm": defaults, "timm_best": flags[best], "limit": limit}
        blocks = paired_blocks(contenders, setting, platform, report)
        flops = _flops(trainer)
    row = _row(setting, blocks, f"channels_last, {best} workers")
    joules, reason = platform.energy_joules()
    peak = _matmul_flops_per_second(platform)
    return row | {
        **host.measured_now(),
        "model_flops_per_image": flops / setting.batch,
        "share_of_matmul_peak": row["ours"] * flops / setting.batch / peak,
        "matmul_flops_per_second": peak,
        "peak_memory_mib": platform.peak_memory_mib(),
        "joules": joules,
        "joules_reason": reason,
    }


def paired_blocks(
    contenders: dict[str, Contender], setting: Setting, platform: Platform, report: Callable[[str], None]
) -> dict[str, list[float]]:
    """Images per second of each contender in each block, in turns whose order rotates."""
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


def _row(setting: Setting, blocks: dict[str, list[float]], best_flags: str) -> dict[str, Any]:
    def ratio(other: str) -> list[float]:
        return [a / b for a, b in zip(blocks["ours"], blocks[other], strict=True)]

    shares = sorted(ratio("limit"))
    quarter = len(shares) // 4
    return {
        **vars(setting),
        **{name: statistics.median(values) for name, values in blocks.items()},
        "ratio_to_timm": statistics.median(ratio("timm")),
        "ratio_to_timm_best": statistics.median(ratio("timm_best")),
        "share_of_limit": statistics.median(shares),
        "spread": shares[-1 - quarter] - shares[quarter],
        "timm_best_flags": best_flags,
        "blocks_of_each": blocks,
    }


# -- contenders ------------------------------------------------------------------------------------


def _ours(trainer: Trainer) -> Contender:
    """Our loop with its input: gather, augment, normalise, step."""
    batches = itertools.chain.from_iterable(trainer.epoch_batches(epoch) for epoch in itertools.count())
    return Contender(lambda: trainer.step(batches))


def _limit(trainer: Trainer) -> Contender:
    """The same step on one resident batch: the device's speed without input work."""
    again: Iterator[Batch] = itertools.repeat(next(trainer.epoch_batches(0)))
    return Contender(lambda: trainer.step(again))


class _PngImages(torch.utils.data.Dataset[tuple[Any, torch.Tensor]]):
    """PNG files in memory, decoded as timm's datasets decode them: no disk, which favours timm."""

    def __init__(self, packed: Packed) -> None:
        rows = packed.rows("train")
        self.labels = torch.from_numpy(packed.labels()[rows])
        self.files = [self._png(packed.images[row]) for row in rows]
        self.transform: Callable[[Image.Image], Any] | None = None  # set by create_loader

    @staticmethod
    def _png(pixels: np.ndarray) -> bytes:
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "PNG")
        return data.getvalue()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, torch.Tensor]:
        image = Image.open(io.BytesIO(self.files[index])).convert("L")
        return (self.transform(image) if self.transform else image), self.labels[index]


def _timm(
    setting: Setting, packed: Packed, platform: Platform, workers: int, channels_last: bool
) -> Contender:
    """timm's loader and training step, as its train.py does them with --model-ema, at equal precision."""
    device = platform.device
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, np.full(len(FINDINGS), 0.1)).to(
        device
    )
    if channels_last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
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
        device=device,
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
    """Until this process's children use no processor time any more."""
    children = psutil.Process().children(recursive=True)
    deadline = time.monotonic() + limit
    before = _cpu_seconds(children)
    while children and time.monotonic() < deadline:
        time.sleep(0.1)
        now = _cpu_seconds(children)
        if now - before < 0.01:
            return
        before = now


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


# -- the device ------------------------------------------------------------------------------------


def _flops(trainer: Trainer) -> float:
    """Floating-point operations of one training step, forward and backward, counted by PyTorch."""
    with FlopCounterMode(display=False) as counter:
        trainer.step(itertools.repeat(next(trainer.epoch_batches(0))))
    return float(counter.get_total_flops())


def _matmul_flops_per_second(platform: Platform, side: int = 2048) -> float:
    """What a square matrix product reaches here at this precision: a peak that was measured, not quoted."""
    kind = torch.bfloat16 if platform.precision == "bf16" else torch.float32
    a = torch.ones(side, side, dtype=kind, device=platform.device)
    seconds = []
    for _ in range(8):
        platform.synchronise()
        started = time.perf_counter()
        a @ a
        platform.synchronise()
        seconds.append(time.perf_counter() - started)
    return 2 * side**3 / min(seconds)
