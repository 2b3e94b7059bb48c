"""Training speed: our loop, timm's as its users run it, and the device's own limit, in paired blocks.

Each contender trains the same network in a process of its own, with its own global settings, and they take
turns, block by block, so that a machine that slows down slows all of them; ratios are medians over blocks.
On an accelerator one contender at a time holds memory: it is started for a few blocks, and ends.
"""

from __future__ import annotations

import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from PIL import Image
from timm.data import ImageDataset, create_loader
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import measured_now
from benchmarks.roofline import matmul_flops_per_second, matrix_share, seconds_of
from benchmarks.turns import (
    Contender,
    InProcess,
    Made,
    NoMemory,
    Report,
    in_own_process,
    in_turns,
    one_turn,
    paired_blocks,
    paired_ratios,
    quartile_spread,
)
from cxrbench.cli.words import RECORDED
from cxrbench.common.files import cores, read_csv
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.datasets.packed import Packed, pack, read_packed
from cxrbench.evidence.store import UNFIT
from cxrbench.neuron.audit import FILE
from cxrbench.platforms.base import Platform
from cxrbench.platforms.cpu import keep_memory
from cxrbench.study import platforms
from cxrbench.study.config import PhantomSource, Recipe
from cxrbench.study.platforms import ACCELERATED
from cxrbench.training.method import build_network
from cxrbench.training.steps import Steps

NETWORKS = ("resnet18", "resnet50", "convnext_pico")
_PROFILED_STEPS = 3
PRIORS = np.full(len(FINDINGS), 0.1)
_PASS = 20  # batches of a pass over the images, at least: a loader reads ahead within a pass
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
    fastest: bool = False  # our loop with kernels that may not repeat to the bit, as timm has them


def contender(
    step: Callable[[], object], setting: Setting, wait: Callable[[], object], spare: int = 1
) -> Contender:
    """Return a function that times a block of steps (images per second) after ``spare`` untimed ones."""

    def block() -> float:
        for _ in range(spare):
            step()
        seconds = seconds_of(wait, lambda: [step() for _ in range(setting.steps)])
        _wait_for_workers()  # before another's turn
        return setting.steps * setting.batch / seconds

    return block


def images_for(batch: int) -> dict[str, int]:
    """How many phantoms each part has."""
    return _IMAGES | {"train": max(_IMAGES["train"], _PASS * batch)}


@contextmanager
def packed_phantoms(pixels: int, batch: int = 1) -> Iterator[Path]:
    """Pack phantoms in a temporary folder, enough for passes over many batches of ``batch`` images."""
    with tempfile.TemporaryDirectory(prefix="cxrbench-bench-") as folder:
        source = PhantomSource(source="phantom", pixels=pixels, recipe="bench", images=images_for(batch))
        pack("phantom", source, Path(folder))
        yield Path(folder) / "phantom"


def measure(setting: Setting, folder: Path, report: Report) -> dict[str, Any]:
    """Return a row of train.json: images per second of each contender on the packed images in ``folder``,
    and their paired ratios; or, with the key UNFIT, why the device cannot hold such a batch."""
    if setting.platform not in ACCELERATED:
        return _row(setting, *_side_by_side(setting, folder, report))
    description = in_own_process(_described, setting)
    known = read_csv(RECORDED / FILE) if (RECORDED / FILE).is_file() else pd.DataFrame()
    if reason := too_large(setting, description["device_memory_gib"], known):
        report(f"{setting.architecture}, batch {setting.batch}: {reason}")
        return {**vars(setting), UNFIT: reason, **description}
    try:
        return _row(setting, *_one_at_a_time(setting, folder, report))
    except NoMemory as error:
        return {**vars(setting), UNFIT: str(error), **description}


def too_large(setting: Setting, device_gib: float | None, audit: pd.DataFrame) -> str | None:
    """Why a step's activations and weights exceed a device's memory by the recorded audit, or None.

    One contender's: activations of each image, and weights, gradients, both moments and the average in fp32.
    None where nothing is recorded of the network at that size.
    """
    kind = "bf16" if setting.precision == "bf16" else "fp32"
    asked = {
        "architecture": setting.architecture,
        "pixels": setting.pixels,
        "precision": kind,
        "part": "step",
    }
    if audit.empty or device_gib is None:
        return None
    rows = audit[(audit[list(asked)] == pd.Series(asked)).all(axis=1)].sort_values("batch")
    if rows.empty:
        return None
    per_image, weights = rows[["activation_mib_per_image", "parameters"]].iloc[-1]
    needed = (per_image * setting.batch + 5 * 4 * weights / 2**20) / 1024
    if needed <= device_gib:
        return None
    return f"a step needs about {needed:.1f} GiB, the device has {device_gib:.1f}; give a smaller --batch"


def _described(setting: Setting) -> dict[str, Any]:
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    return measured_now(platform) | {"device_memory_gib": platform.describe()["device_memory_gib"]}


Measured = tuple[dict[str, list[float]], dict[str, dict[str, Any]]]  # speeds and facts of each contender


def _one_at_a_time(setting: Setting, folder: Path, report: Report) -> Measured:
    """Measure contenders in turns of a few blocks, of which each is a process that holds the device alone."""
    made = partial(partial, setting=setting, folder=folder)
    tried = {workers: one_turn(made(_timm_best, workers=workers), 1)[0] for workers in _worker_counts()}
    best = max(tried, key=lambda workers: tried[workers])
    makers: dict[str, Callable[..., Made]] = {
        "ours": _ours,
        "null": _ours,
        "timm": _timm,
        "timm_best": partial(_timm_best, workers=best),
    }
    makers["limit"] = _limit
    return in_turns({name: made(make) for name, make in makers.items()}, setting.blocks, report)


def _worker_counts() -> list[int]:
    """How many workers timm's users try."""
    return sorted({2, 4, *(count for count in (cores() // 2, cores()) if count > 4)})


def _side_by_side(setting: Setting, folder: Path, report: Report) -> Measured:
    """Measure contenders block by block, all of them alive."""
    with ExitStack() as running:

        def start(make: Callable[..., Made], *arguments: Any) -> InProcess:
            return running.enter_context(closing(InProcess(make, setting, folder, *arguments)))

        # timm's users choose workers by trying, and so does this: once, before the paired blocks.
        tried = {workers: start(_timm_best, workers) for workers in _worker_counts()}
        best = max(tried, key=lambda workers: tried[workers]())
        for workers in tried.keys() - {best}:
            tried.pop(workers).close()
        contenders = {
            "ours": start(_ours),
            "null": start(_ours),  # the same once more: two equal processes differ too
            "timm": start(_timm),
            "timm_best": tried[best],
            "limit": start(_limit),
        }
        if setting.platform == "cpu":  # where our loop asks glibc to keep memory, and timm's users do not
            contenders["timm_kept"] = start(_timm, True)
            contenders["timm_best_kept"] = start(_timm_best, best, True)
        blocks = paired_blocks(contenders, setting.blocks, report)
        return blocks, {name: contenders[name].facts() for name in ("ours", "timm_best", "limit")}


def _row(setting: Setting, blocks: dict[str, list[float]], told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    facts, flags, peak = (told[name] for name in ("ours", "timm_best", "limit"))
    ratios = {name: paired_ratios(blocks, "ours", name) for name in blocks if name != "ours"}
    middle = {name: statistics.median(of_blocks) for name, of_blocks in ratios.items()}
    speeds = {name: statistics.median(of_blocks) for name, of_blocks in blocks.items()}
    peak_flops = peak["matmul_flops_per_second"]
    return {
        **vars(setting),
        **speeds,
        **{f"ratio_to_{name}": ratio for name, ratio in middle.items() if name != "limit"},
        "null_spread": quartile_spread(ratios["null"]),
        "share_of_limit": middle["limit"],
        "spread": quartile_spread(ratios["limit"]),
        "timm_best_flags": flags["flags"],
        "own_processes": True,
        "blocks_of_each": blocks,
        **facts,
        "share_of_matmul_peak": speeds["ours"] * facts["model_flops_per_image"] / peak_flops,
        "matmul_flops_per_second": peak_flops,
    }


def _trained(setting: Setting, folder: Path, fastest: bool) -> tuple[Platform, Steps]:
    recipe = Recipe(epochs=999, batch=setting.batch, precision=setting.precision, threads=setting.threads)
    platform = platforms.load(setting.platform, setting.threads, setting.precision)
    if fastest:
        platform.allow_fastest_kernels()
    return platform, Steps(setting.architecture, platform, recipe, read_packed(folder))


def _ours(setting: Setting, folder: Path) -> Made:
    """This project's loop, with its input."""
    platform, trained = _trained(setting, folder, setting.fastest)
    batches = trained.all_batches()
    with FlopCounterMode(display=False) as counter:  # the first step: a recorded one dispatches no operator
        trained.take(batches)

    def facts() -> dict[str, Any]:
        share = matrix_share(platform, lambda: trained.take(batches, _PROFILED_STEPS))
        return {
            **measured_now(platform),
            "model_flops_per_image": counter.get_total_flops() / setting.batch,
            "peak_memory_mib": platform.peak_memory_mib(),
            "matrix_share": share,
        }

    return Made(contender(lambda: trained.take(batches), setting, platform.synchronise), facts)


def _limit(setting: Setting, folder: Path) -> Made:
    """The same step over and over on one batch, with the fastest kernels: no input is prepared."""
    platform, trained = _trained(setting, folder, fastest=True)
    resident = itertools.repeat(next(trained.all_batches()))
    peak = {"matmul_flops_per_second": matmul_flops_per_second(platform)}
    return Made(contender(lambda: trained.take(resident), setting, platform.synchronise), lambda: peak)


def _png_images(packed: Packed) -> ImageDataset:
    """Return a dataset of timm's with PNG files in memory: no disk, which favours timm."""
    rows = packed.rows("train")
    files = [io.BytesIO() for _ in rows]
    for file, row in zip(files, rows, strict=True):
        Image.fromarray(packed.images[row]).save(file, "PNG")
    labels = torch.from_numpy(packed.labels()[rows])
    return ImageDataset("", reader=list(zip(files, labels, strict=True)), input_img_mode="L")


def _timm(setting: Setting, folder: Path, kept: bool = False) -> Made:
    """timm with the defaults of its train.py; with ``kept`` memory as our loop has it."""
    if kept:
        keep_memory()
    return _timm_step(setting, folder, workers=4, layout=torch.preserve_format, flags=())


def _timm_best(setting: Setting, folder: Path, workers: int, kept: bool = False) -> Made:
    """timm with the flags that its users set for speed; compiled on GPUs, where its compiler always is."""
    if kept:
        keep_memory()
    if setting.platform == "cuda":
        made = _timm_step(setting, folder, workers, torch.channels_last, ("channels_last", "torch.compile"))
        try:
            made.block()
            return made
        except Exception as error:  # its compiler needs tools that a machine may lack
            print(f"timm without torch.compile: {error}", file=sys.stderr)
    return _timm_step(setting, folder, workers, torch.channels_last, ("channels_last",))


def _timm_step(
    setting: Setting, folder: Path, workers: int, layout: torch.memory_format, flags: tuple[str, ...]
) -> Made:
    """timm's loader and training step, as its train.py has them with --model-ema, at equal precision."""
    packed, device = read_packed(folder), torch.device("cuda" if setting.platform == "cuda" else "cpu")
    torch.set_num_threads(setting.threads)
    # As timm's train.py; fp32 stays fp32, for all contenders have one precision.
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = setting.precision != "fp32"
    recipe = Recipe(epochs=1, batch=setting.batch)
    network = build_network(setting.architecture, setting.pixels, recipe, PRIORS)
    network = network.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = create_optimizer_v2(network, "adamw", recipe.learning_rate, recipe.weight_decay)
    average = ModelEmaV3(network, decay=recipe.averaging)
    forward = torch.compile(network) if "torch.compile" in flags else network
    loader = create_loader(
        _png_images(packed),
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
        images = images.to(memory_format=layout)
        precision = torch.autocast(device.type, torch.bfloat16, enabled=setting.precision == "bf16")
        optimizer_step(forward, optimizer, precision, images, targets.float())
        average.update(network, step=next(done))

    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    # PyTorch's loader keeps two batches a worker ready.
    block = contender(step, setting, wait, spare=2 * workers + 1)
    return Made(block, lambda: {"flags": ", ".join((*flags, f"{workers} workers"))})


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
