"""Workers: how many cores this process may use, which every pool asks here, and threads that work ahead."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def cores() -> int:
    """Cores this process may use; fewer than the machine has under taskset, Slurm or a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ahead(make: Callable[[Any], Any], items: Iterable[Any], threads: int, most: int) -> Iterator[Any]:
    """``map(make, items)`` on ``threads``, at most ``most`` items at a time; errors are raised here."""
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(make, item))
                if len(waiting) == most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
