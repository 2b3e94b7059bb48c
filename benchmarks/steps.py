"""The same training steps on several platforms: how far losses, gradients and weights drift apart.

The reference is the CPU; the CPU with one thread, which sums in another order, is the noise floor. Networks
with ReLU differ in jumps: of the millions of its inputs one lies within rounding of zero and has another
sign, so that its gradient is there on one platform alone (docs/decisions.md, step parity).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import measured_now
from benchmarks.turns import Report, in_own_process
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.store import STEP_FLOOR
from cxrbench.study import platforms
from cxrbench.study.config import Recipe
from cxrbench.training.run import update_of
from cxrbench.training.steps import Steps

Trace = tuple[float, float, np.ndarray]  # loss, gradient norm, all parameters concatenated (float64)


def compare_steps(
    architecture: str, others: list[str], packed: Path, steps: int, precision: str, report: Report
) -> list[dict[str, Any]]:
    """Return a row per step for the noise floor and each of ``others``: differences from the CPU.

    Differences grow from step to step: these rows are drawn, and benchmarks/gate.py decides.
    """
    traces, measured = {}, {}
    for label, name, threads in (
        ("cpu", "cpu", 2),
        (STEP_FLOOR, "cpu", 1),
        *((name, name, 2) for name in others),
    ):
        kind = precision if name != "cpu" else "fp32"
        recipe = Recipe(epochs=100, batch=64, precision=kind, threads=threads)
        traces[label], measured[label] = in_own_process(trace, architecture, name, recipe, packed, steps)
        report(f"{architecture} on {label}: {steps} steps")
    reference = traces.pop("cpu")
    rows = [
        {
            "architecture": architecture,
            "platform": label,
            "precision": precision,
            "step": number,
            "loss": loss,
            "loss_difference": abs(loss / on_cpu[0] - 1),
            "gradient_norm_difference": abs(norm / on_cpu[1] - 1),
            "weights_difference": float(np.linalg.norm(weights - on_cpu[2]) / np.linalg.norm(on_cpu[2])),
            **measured[label],
        }
        for label, taken in traces.items()
        for number, (on_cpu, (loss, norm, weights)) in enumerate(zip(reference, taken, strict=True), start=1)
    ]
    for label in traces:
        of_label = [row for row in rows if row["platform"] == label]
        report(f"{architecture} on {label}: {_largest(of_label)}")
    return rows


def _largest(rows: list[dict[str, Any]]) -> str:
    """Return the largest differences from the CPU over these steps."""
    parts = {"loss": "loss", "gradient norm": "gradient_norm", "weights": "weights"}
    texts = (f"{name} {max(row[f'{key}_difference'] for row in rows):.1e}" for name, key in parts.items())
    return f"largest difference from the CPU over {len(rows)} steps: {', '.join(texts)}"


def trace(
    architecture: str, platform: str, recipe: Recipe, packed: Path, steps: int
) -> tuple[list[Trace], dict[str, Any]]:
    """Train ``steps`` optimizer steps of a packed dataset; return what each left behind, and where it was."""
    device = platforms.load(platform, recipe.threads, recipe.precision)
    trained = Steps(architecture, device, recipe, read_packed(packed))
    batches, taken = trained.all_batches(), []
    for _ in range(steps):
        trained.take(batches)
        parameters = list(trained.network.parameters())
        gradients = _flat([p.grad for p in parameters if p.grad is not None])
        taken.append((trained.loss(), float(np.linalg.norm(gradients)), _flat(parameters)))
    return taken, measured_now(device) | {"update": update_of(trained.optimizer)}


def _flat(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    return np.concatenate([tensor.detach().cpu().double().numpy().ravel() for tensor in tensors])
