"""Thresholds set before measuring, shared by the code that measures and the code that reports."""

from collections.abc import Iterable
from typing import Any

# A way of running a training step is kept when its paired median gain exceeds every difference of two equal
# contenders; in measurements from before these were among them, when it exceeds this.
KEPT_ABOVE = 0.03

# What the training loop is to reach over timm at its documented best, and over timm with the same memory.
AHEAD, NEVER_BEHIND = 1.10, 1.0

STEP_FLOOR = "cpu, one thread"  # the noise floor of compared steps: it sums in another order
STEP_DIFFERENCES = ("loss_difference", "gradient_norm_difference", "weights_difference")
# Largest relative difference of loss, gradient norm and weights from the CPU over the first TESTED_STEPS
# steps, by precision; later steps may drift further, because differences grow from step to step.
STEP_TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
TESTED_STEPS = 10


def outside(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tested rows of ``cxrbench bench steps`` with a larger difference, or with NaN."""
    return [
        row
        for row in rows
        if row["step"] <= TESTED_STEPS
        if not all(row[name] < STEP_TOLERANCE[row["precision"]] for name in STEP_DIFFERENCES)
    ]
