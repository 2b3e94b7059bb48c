"""Thresholds set before measuring, shared by the code that measures and the code that reports."""

# A way of running a training step is kept when it gains more than this (paired median, docs/decisions.md).
KEPT_ABOVE = 0.03

# Largest relative difference of loss, gradient norm and weights from the CPU over the first TESTED_STEPS
# steps, by precision; later steps may drift further, because differences grow from step to step.
STEP_TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
TESTED_STEPS = 10
