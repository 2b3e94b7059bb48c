"""What each XLA change is worth: the same few steps with one of them left out, counted by torch_xla.

Each way runs in a process of its own, because compiled graphs are kept for the life of a process:
``python benchmarks/xla.py WAY ARCHITECTURE PACKED STEPS`` prints one row as JSON.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cxrbench.study.config import Recipe
from cxrbench.study.errors import UserError
from cxrbench.training import host
from cxrbench.training.batches import Batch
from cxrbench.training.job import Job

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
_STEPS_PER_EPOCH = 4  # of the study, so that epochs end within a few steps


def measure_ways(
    architecture: str, packed: Path, steps: int, report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row per way: compiles, compile_seconds, seconds of all steps, fallback operators."""
    rows = []
    for way, meaning in WAYS.items():
        words = [way, architecture, str(packed), str(steps)]
        command = [sys.executable, __file__, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise UserError(f"'{way}' failed: {done.stderr.strip().splitlines()[-1:]}")
        row: dict[str, Any] = {"way": way, "meaning": meaning, "architecture": architecture, "steps": steps}
        row |= json.loads(done.stdout.splitlines()[-1]) | host.measured_now()
        report(
            f"{way}: {row['compiles']} compiles, {row['seconds']:.1f} s, {len(row['fallbacks'])} fallbacks"
        )
        rows.append(row)
    return rows


def _run(way: str, architecture: str, packed: Path, steps: int) -> dict[str, Any]:
    """``steps`` training steps one way, in this process."""
    from cxrbench.datasets.packed import read_packed
    from cxrbench.platforms.base import Platform
    from cxrbench.platforms.xla import XlaPlatform
    from cxrbench.training.loop import Trainer

    class NoBarrier(XlaPlatform):
        def end_step(self) -> None:
            pass

    class HostRead(XlaPlatform):
        def mean(self, tensors: list[torch.Tensor]) -> None:  # called between backward and optimizer step
            torch.stack([tensor.norm() for tensor in tensors]).norm().item()

    class Scalars(XlaPlatform):
        number, optimizer = Platform.number, _adamw

    platforms = {
        "no step barrier": NoBarrier,
        "numbers as scalars": Scalars,
        "host read in the step": HostRead,
    }
    platform = platforms.get(way, XlaPlatform)(2, "fp32")
    recipe = Recipe(epochs=100, batch=32)
    job = Job.to_measure(architecture, "xla_cpu", recipe, packed)
    trainer = Trainer(job, read_packed(packed), platform, stop=lambda: False)
    trainer.network.train()
    trainer.progress.step = _FIRST_STEP
    batches = map(_CHANGES.get(way, _same), itertools.count(), trainer.epoch_batches(0))
    started = time.monotonic()
    for _ in range(steps):
        trainer.step(batches)
        trainer.progress.step += 1
    platform.synchronise()
    loss = float(trainer.loss_sum.cpu())
    compiles, compile_seconds = platform.compiles()
    fallbacks = platform.report()["fallback_operators"]
    return {
        "compiles": compiles,
        "compile_seconds": compile_seconds,
        "seconds": time.monotonic() - started,
        "fallbacks": fallbacks,
        "loss": loss / steps,
    }


def _adamw(
    platform: object, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """AdamW as platforms/xla.py has it, but for its numbers."""
    return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay, foreach=False)


def _same(number: int, batch: Batch) -> Batch:
    return batch


def _ragged(number: int, batch: Batch) -> Batch:
    """Every fourth batch, the last of a short epoch, is smaller."""
    keep = (
        len(batch.labels) // 2 + 1 if number % _STEPS_PER_EPOCH == _STEPS_PER_EPOCH - 1 else len(batch.labels)
    )
    return replace(batch, images=batch.images[:keep], labels=batch.labels[:keep])


def _resized(number: int, batch: Batch) -> Batch:
    side = batch.images.shape[-1] - number
    return replace(batch, images=batch.images[..., :side, :side].contiguous())


def _grid_sampled(number: int, batch: Batch) -> Batch:
    turn = torch.tensor([[1.0, 0.05, 0.0], [-0.05, 1.0, 0.0]], device=batch.images.device)
    size = list(batch.images.shape)
    grid = torch.nn.functional.affine_grid(turn.expand(size[0], 2, 3), size, align_corners=False)
    return replace(batch, images=torch.nn.functional.grid_sample(batch.images, grid, align_corners=False))


_CHANGES = {"ragged last batch": _ragged, "changing shapes": _resized, "grid_sample": _grid_sampled}

if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))
