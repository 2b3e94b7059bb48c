"""What each XLA change is worth: the same few steps with one of them left out, counted by torch_xla.

Called as: python -m benchmarks.xla [NETWORK] [--steps N] [--out JSON].
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.nn.functional import affine_grid, grid_sample

from benchmarks import measured_now
from benchmarks.commands import BENCH, Out
from benchmarks.turns import Report, in_own_process
from cxrbench.cli import run_script
from cxrbench.cli.words import say
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_json
from cxrbench.datasets.packed import read_packed
from cxrbench.study.config import Recipe
from cxrbench.training.method import Batch
from cxrbench.training.steps import Steps

WAYS = {
    "as it is": "all changes of platforms/xla.py",
    "no step barrier": "the graph is not cut after a step and grows until something is read",
    "numbers as scalars": "learning rate and the average's weight are no tensors, and one meets AdamW's 0.1",
    "host read in the step": "the gradient norm is read with .item() before the optimizer steps",
    "ragged last batch": "the last batch of an epoch keeps the images that are left",
    "changing shapes": "every batch has another image size",
    "grid_sample": "augmentation with an operator that XLA does not have",
}
_FIRST_STEP = 79  # of the schedule: in step 80 the average's weight is 0.1, as is one minus AdamW's beta1


def measure_ways(architecture: str, packed: Path, steps: int, report: Report) -> list[dict[str, Any]]:
    """Return a row per way: compiles, compile_seconds, seconds of all steps, fallback operators."""
    rows = []
    for way, meaning in WAYS.items():
        try:
            counted = in_own_process(_run, way, architecture, packed, steps)
        except Exception as error:
            raise UserError(f"'{way}' failed: {error}") from error
        named = {"way": way, "meaning": meaning, "architecture": architecture, "steps": steps}
        rows.append(named | counted | measured_now())
        report("{way}: {compiles} compiles, {seconds:.1f} s, fallbacks: {fallbacks}".format_map(rows[-1]))
    return rows


def _run(way: str, architecture: str, packed: Path, steps: int) -> dict[str, Any]:
    """Take ``steps`` training steps one way, in this process."""
    from cxrbench.platforms.xla import XlaPlatform

    platform = XlaPlatform(2, "fp32")
    for name, answer in _ANSWERS.get(way, {}).items():
        setattr(platform, name, answer)
    trained = Steps(architecture, platform, Recipe(epochs=100, batch=32), read_packed(packed), _FIRST_STEP)
    change = _BATCHES.get(way, lambda number, batch: batch)
    batches = map(change, itertools.count(), trained.all_batches())
    started = time.monotonic()
    trained.take(batches, steps)
    platform.synchronise()
    loss = trained.loss()
    compiles, compile_seconds = platform.compiles()
    return {
        "compiles": compiles,
        "compile_seconds": compile_seconds,
        "seconds": time.monotonic() - started,
        "fallbacks": platform.report()["fallback_operators"],
        "loss": loss / steps,
    }


def _plain_adamw(groups: list[dict[str, Any]], lr: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay, foreach=False)


def _read_norm(tensors: list[torch.Tensor]) -> None:
    """Stand in for the mean over processes, which comes between backward and the optimizer's step."""
    torch.stack([tensor.norm() for tensor in tensors]).norm().item()


def _ragged(number: int, batch: Batch) -> Batch:
    keep = len(batch.labels) // (2 if number % 4 == 3 else 1)  # every fourth: the last of a short epoch
    return replace(batch, images=batch.images[:keep], labels=batch.labels[:keep])


def _resized(number: int, batch: Batch) -> Batch:
    side = batch.images.shape[-1] - number
    return replace(batch, images=batch.images[..., :side, :side].contiguous())


def _grid_sampled(number: int, batch: Batch) -> Batch:
    turn = torch.tensor([[1.0, 0.05, 0.0], [-0.05, 1.0, 0.0]], device=batch.images.device)
    size = list(batch.images.shape)
    grid = affine_grid(turn.expand(size[0], 2, 3), size, align_corners=False)
    return replace(batch, images=grid_sample(batch.images, grid, align_corners=False))


_ANSWERS: dict[str, dict[str, Callable[..., Any]]] = {  # of the platform, in place of its own
    "no step barrier": {"end_step": lambda: None},
    "numbers as scalars": {"number": float, "optimizer": _plain_adamw},
    "host read in the step": {"mean": _read_norm},
}
_BATCHES = {"ragged last batch": _ragged, "changing shapes": _resized, "grid_sample": _grid_sampled}


def main(
    architecture: Annotated[str, typer.Argument(help="A timm name.")] = "test_resnet",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 8,
    out: Out = BENCH / "xla_ways.json",
) -> None:
    """Measure what each change for XLA gains, by leaving it out."""
    from benchmarks.train import packed_phantoms  # of no use to the processes that are timed

    with packed_phantoms(32) as packed:
        write_json(out, measure_ways(architecture, packed, steps, say))


if __name__ == "__main__":
    run_script(main)
