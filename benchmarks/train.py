"""Training speed: our loop, timm's as its users run it, and the device's own limit, in paired blocks.

Each contender trains the same network in a process of its own, with its own global settings, and they take
turns, block by block, so that a machine that slows down slows all of them; ratios are medians over blocks.
"""

from __future__ import annotations

import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.datasets.packed import Packed, pack, read_packed
from cxrbench.platforms.base import Platform
from cxrbench.platforms.cpu import keep_memory
from cxrbench.study import platforms
from cxrbench.study.config import PhantomSource, Recipe
from cxrbench.study.files import cores
from cxrbench.study.names import UserError
from cxrbench.training.method import build_network
from cxrbench.training.steps import Steps

Contender = Callable[[], float]  # runs a block; returns its images per second
Report = Callable[[str], None]
NETWORKS = ("resnet18", "resnet50", "convnext_pico")
_PROFILED_STEPS = 3
PRIORS = np.full(len(FINDINGS), 0.1)
_made: Made  # the contender of this process, where it is one's own
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


@contextmanager
def packed_phantoms(pixels: int) -> Iterator[Path]:
    """Pack phantoms in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cxrbench-bench-") as folder:
        source = PhantomSource(source="phantom", pixels=pixels, recipe="bench", images=_IMAGES)
        pack("phantom", source, Path(folder))
        yield Path(folder) / "phantom"


def measure(setting: Setting, folder: Path, report: Report) -> dict[str, Any]:
    """Return a row of train.json: images per second of each contender on the packed images in ``folder``,
    and their paired ratios."""
    with ExitStack() as running:

        def start(make: Callable[..., Made], *arguments: Any) -> InProcess:
            return running.enter_context(closing(InProcess(make, setting, folder, *arguments)))

        # timm's users choose workers by trying, and so does this: once, before the paired blocks.
        counts = sorted({2, 4, *(count for count in (cores() // 2, cores()) if count > 4)})
        tried = {workers: start(_timm_best, workers) for workers in counts}
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
        facts, flags, peak = (contenders[name].facts() for name in ("ours", "timm_best", "limit"))
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
        "timm_best_flags": f"{flags['flags']}, {best} workers",
        "own_processes": True,
        "blocks_of_each": blocks,
        **facts,
        "share_of_matmul_peak": speeds["ours"] * facts["model_flops_per_image"] / peak_flops,
        "matmul_flops_per_second": peak_flops,
    }


class Made(NamedTuple):
    """A contender, and what else is known of it after its blocks."""

    block: Contender
    facts: Callable[[], dict[str, Any]]


class InProcess:
    """A contender that is made and runs in a process of its own; calling it runs a block."""

    def __init__(self, make: Callable[..., Made], *arguments: Any) -> None:
        self._process = ProcessPoolExecutor(1, get_context("spawn"), _make, (make, arguments))

    def __call__(self) -> float:
        return float(self._ask("block"))

    def facts(self) -> dict[str, Any]:
        return dict(self._ask("facts"))

    def close(self) -> None:
        """End the process, with the workers of its loader."""
        self._process.shutdown()

    def _ask(self, question: str) -> Any:
        try:
            return self._process.submit(_answer, question).result()
        except Exception as error:
            raise UserError(f"a contender of the benchmark died: {error}; its messages are above") from error


def _make(make: Callable[..., Made], arguments: tuple[Any, ...]) -> None:
    global _made  # of this process
    _made = make(*arguments)


def _answer(question: str) -> Any:
    return getattr(_made, question)()


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
    return Made(block, lambda: {"flags": ", ".join(flags)})


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
