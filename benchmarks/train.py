"""Training speed: our loop, timm's as its users run it, and the device's own limit, in paired blocks.

All contenders train the same network in one process and take turns, block by block, so that a machine
that slows down slows all of them; ratios are medians over blocks.
"""

from __future__ import annotations

import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image
from timm.data import ImageDataset, create_loader
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

Contender = Callable[[], float]  # runs a block; returns its images per second
Report = Callable[[str], None]
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


def contender(step: Callable[[], object], setting: Setting, platform: Platform, spare: int = 1) -> Contender:
    """Return what times a block of optimizer steps: images per second, after ``spare`` emptied the queue."""

    def block() -> float:
        for _ in range(spare):
            step()
        seconds = _seconds(platform, lambda: [step() for _ in range(setting.steps)])
        _wait_for_workers()  # before another's turn
        return setting.steps * setting.batch / seconds

    return block


@contextmanager
def packed_phantoms(pixels: int) -> Iterator[Path]:
    """Pack phantoms in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cxrbench-bench-") as folder:
        source = PhantomSource(source="phantom", pixels=pixels, recipe="bench", images=_IMAGES)
        pack("phantom", source, Path(folder))
        yield Path(folder) / "phantom"


def measure(setting: Setting, report: Report) -> dict[str, Any]:
    """Return a row of train.json: images per second of each contender and their paired ratios."""
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    with packed_phantoms(setting.pixels) as folder:
        packed = read_packed(folder)
        recipe = Recipe(epochs=999, batch=setting.batch, precision=setting.precision, threads=setting.threads)
        trained = Steps(setting.architecture, platform, recipe, packed)
        batches, resident = trained.batches(), itertools.repeat(next(trained.batches()))
        # timm's users choose workers by trying, and so does this: once, before the paired blocks.
        flags = {workers: _timm(setting, packed, platform, workers, last=True) for workers in (2, 4)}
        best = max(flags, key=lambda workers: flags[workers]())
        contenders = {
            "ours": contender(lambda: trained.take(batches), setting, platform),
            "timm": _timm(setting, packed, platform, workers=4, last=False),
            "timm_best": flags[best],
            "limit": contender(lambda: trained.take(resident), setting, platform),  # no input work
        }
        blocks = paired_blocks(contenders, setting.blocks, report)
        with FlopCounterMode(display=False) as counter:
            trained.take(resident)
    ratios = {name: paired_ratios(blocks, "ours", name) for name in ("timm", "timm_best", "limit")}
    ours, (joules, reason) = statistics.median(blocks["ours"]), platform.energy_joules()
    flops, peak = counter.get_total_flops() / setting.batch, _matmul_flops_per_second(platform)
    return {
        **vars(setting),
        **{name: statistics.median(values) for name, values in blocks.items()},
        "ratio_to_timm": statistics.median(ratios["timm"]),
        "ratio_to_timm_best": statistics.median(ratios["timm_best"]),
        "share_of_limit": statistics.median(ratios["limit"]),
        "spread": quartile_spread(ratios["limit"]),
        "timm_best_flags": f"channels_last, {best} workers",
        "blocks_of_each": blocks,
        **host.measured_now(),
        "model_flops_per_image": flops,
        "share_of_matmul_peak": ours * flops / peak,
        "matmul_flops_per_second": peak,
        "peak_memory_mib": platform.peak_memory_mib(),
        "joules": joules,
        "joules_reason": reason,
    }


def paired_blocks(contenders: Mapping[str, Contender], blocks: int, report: Report) -> dict[str, list[float]]:
    """Return the speed of each contender in each block, in turns whose order rotates."""
    names = list(contenders)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(-1, blocks):
        turn = block % len(names)
        for name in names[turn:] + names[:turn]:
            speeds[name].append(contenders[name]())
        latest = ", ".join(f"{name} {values[-1]:.0f}" for name, values in speeds.items())
        report(f"block {block + 1} of {blocks}: {latest} images/s")
    return {name: values[1:] for name, values in speeds.items()}  # the first block only warms up


def paired_ratios(blocks: dict[str, list[float]], ours: str, theirs: str) -> list[float]:
    """Return the ratio of two contenders' speeds in each block."""
    return [a / b for a, b in zip(blocks[ours], blocks[theirs], strict=True)]


def quartile_spread(values: list[float]) -> float:
    """Return the distance between the quartiles."""
    ordered, quarter = sorted(values), len(values) // 4
    return ordered[-1 - quarter] - ordered[quarter]


def _png_images(packed: Packed) -> ImageDataset:
    """Return a dataset of timm's with PNG files in memory: no disk, which favours timm."""
    rows = packed.rows("train")
    files = [io.BytesIO() for _ in rows]
    for file, row in zip(files, rows, strict=True):
        Image.fromarray(packed.images[row]).save(file, "PNG")
    labels = torch.from_numpy(packed.labels()[rows])
    return ImageDataset("", reader=list(zip(files, labels, strict=True)), input_img_mode="L")


def _timm(setting: Setting, packed: Packed, platform: Platform, workers: int, last: bool) -> Contender:
    """timm's loader and training step, as its train.py has them with --model-ema, at equal precision."""
    layout = torch.channels_last if last else torch.preserve_format
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, PRIORS)
    network = network.to(platform.device, memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = create_optimizer_v2(network, "adamw", recipe.learning_rate, recipe.weight_decay)
    average = ModelEmaV3(network, decay=recipe.averaging)
    loader = create_loader(
        _png_images(packed),
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
        images = images.to(memory_format=layout)
        optimizer_step(network, optimizer, platform.autocast(), images, targets.float())
        average.update(network, step=next(done))

    # PyTorch's loader keeps two batches a worker ready.
    return contender(step, setting, platform, spare=2 * workers + 1)


def optimizer_step(forward: Any, optimizer: Any, precision: Any, images: Any, labels: torch.Tensor) -> None:
    with precision:
        loss = binary_cross_entropy_with_logits(forward(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _wait_for_workers(limit: float = 10.0) -> None:
    """Wait until this process's children use no processor time; at most ``limit`` seconds."""
    children = psutil.Process().children(recursive=True)
    deadline, busy = time.monotonic() + limit, 100.0
    with suppress(psutil.Error):  # ended meanwhile
        while children and busy > 10 and time.monotonic() < deadline:
            busy = sum(child.cpu_percent(interval=0.1 / len(children)) for child in children)


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
