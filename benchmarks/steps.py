"""The same training steps on several platforms: how far losses, gradients and weights drift apart.

Every platform starts from the same weights and sees the same batches through the same loop. The reference is
the CPU with the recipe's threads; the CPU with one thread, which sums in another order, is the noise floor.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cxrbench import platforms
from cxrbench.datasets.packed import read_packed
from cxrbench.study.config import Recipe
from cxrbench.training import host
from cxrbench.training.job import Job
from cxrbench.training.loop import Trainer

REFERENCE, FLOOR = "cpu", "cpu, one thread"


@dataclass(frozen=True)
class Step:
    """Loss, gradient and weights after an optimizer step."""

    loss: float
    gradient_norm: float
    weights: np.ndarray  # all parameters, concatenated, float64


def compare_steps(
    architecture: str,
    others: list[str],
    packed: Path,
    steps: int,
    precision: str,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """One row per platform and step: relative differences from the reference's step.

    ``others`` are platform names; the noise floor is always added. Columns: loss, loss_difference,
    gradient_norm_difference, weights_difference (L2 of the difference over L2 of the reference's weights).
    """
    runs = [(REFERENCE, REFERENCE, 2), (FLOOR, "cpu", 1), *((name, name, 2) for name in others)]
    traces = {}
    for label, name, threads in runs:
        recipe = Recipe(
            epochs=100, batch=64, precision=precision if name != "cpu" else "fp32", threads=threads
        )
        # Each in a process of its own: autograd must see a device before its first backward pass.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            traces[label] = process.submit(trace, architecture, name, recipe, packed, steps).result()
        report(f"{architecture} on {label}: {steps} steps")
    rows = []
    for label, _, _ in runs[1:]:
        for number, (a, b) in enumerate(zip(traces[REFERENCE], traces[label], strict=True), start=1):
            apart = np.linalg.norm(b.weights - a.weights) / np.linalg.norm(a.weights)
            rows.append(
                {"architecture": architecture, "platform": label, "precision": precision, "step": number}
                | {"loss": b.loss, "loss_difference": abs(b.loss / a.loss - 1)}
                | {"gradient_norm_difference": abs(b.gradient_norm / a.gradient_norm - 1)}
                | {"weights_difference": float(apart)}
                | host.measured_now()
            )
    return rows


def trace(architecture: str, platform: str, recipe: Recipe, packed: Path, steps: int) -> list[Step]:
    """Train ``steps`` optimizer steps of a packed dataset and read what each left behind."""
    device = platforms.load(platform, recipe.threads, recipe.precision)
    job = Job.to_measure(architecture, platform, recipe, packed)
    trainer = Trainer(job, read_packed(packed), device, stop=lambda: False)
    trainer.network.train()
    batches = itertools.chain.from_iterable(trainer.epoch_batches(epoch) for epoch in itertools.count())
    done = []
    for _ in range(steps):
        trainer.loss_sum = trainer.fresh_loss()
        trainer.step(batches)
        trainer.progress.step += 1
        parameters = list(trainer.network.parameters())
        gradients = _flat([p.grad for p in parameters if p.grad is not None])
        done.append(Step(float(trainer.loss_sum.cpu()), float(np.linalg.norm(gradients)), _flat(parameters)))
    return done


def _flat(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensor.detach().cpu().double().numpy().ravel() for tensor in tensors])
