"""How many cores this process may use: the one place that every pool of workers asks."""

import os


def cores() -> int:
    """Cores this process may use; fewer than the machine has under taskset, Slurm or a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
