"""What a device could do at best: its matrix products, and the share of a step that is such work."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile as autograd_profile
from torch.profiler import ProfilerActivity, profile

from cxrbench.platforms.base import Platform

_PRODUCTS = 50  # between two events of a GPU
# Convolutions and matrix products as the profiler names them: PyTorch's operators, or kernels of a GPU.
_MATRIX_OPERATORS = (
    "aten::mkldnn_conv",
    "aten::convolution_backward",
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
)
_MATRIX_KERNELS = ("gemm", "fprop", "dgrad", "wgrad", "conv", "cutlass", "xmma")


def seconds_of(wait: Callable[[], object], work: Callable[[], object]) -> float:
    """Return the wall seconds of ``work``, with the device's own."""
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


def matrix_share(platform: Platform, work: Callable[[], object]) -> float:
    """Return the share of the device's time in ``work`` that convolutions and matrix products take.

    The rest is what a faster loop could save: the time of these kernels alone is the roofline of a step.
    """
    on_gpu = platform.device.type == "cuda"
    # Without a GPU the newer profiler complains of its absence.
    recorder: Any = (
        profile(activities=[ProfilerActivity.CUDA]) if on_gpu else autograd_profile(use_kineto=False)
    )
    with recorder as seen:
        work()
        platform.synchronise()
    time_of, names = (
        ("self_device_time_total", _MATRIX_KERNELS) if on_gpu else ("self_cpu_time_total", _MATRIX_OPERATORS)
    )
    times = {event.key.lower(): float(getattr(event, time_of)) for event in seen.key_averages()}
    matrix = sum(time for name, time in times.items() if any(part in name for part in names))
    return matrix / sum(times.values())


def matmul_flops_per_second(platform: Platform) -> float:
    """Return what a square matrix product reaches here at this precision: a peak measured, not quoted.

    On a GPU the product is large and repeated between two events of its own clock: a small one ends sooner
    than the host can time it.
    """
    kind = torch.bfloat16 if platform.precision == "bf16" else torch.float32
    side = 8192 if platform.device.type == "cuda" else 2048
    a = torch.randn(side, side, device=platform.device).to(kind)  # equal numbers draw less power: faster
    if platform.device.type != "cuda":
        return 2 * side**3 / min(seconds_of(platform.synchronise, lambda: a @ a) for _ in range(8))
    best = math.inf
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_PRODUCTS):
            a @ a
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1000 / _PRODUCTS)
    return 2 * side**3 / best
