"""The CPU keeps the memory that a step frees, and says so."""

import platform
import sys

import pytest

from tests.conftest import ran

FAULTS = """
import resource, sys
import torch
from cxrbench.platforms.cpu import CpuPlatform

if sys.argv[1] == "cpu":
    assert CpuPlatform(2, "fp32").report() == {"memory_layout": "contiguous", "memory_kept": True}
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(16 << 20)
before = faults()
for _ in range(40):
    torch.ones(16 << 20)  # 64 MiB
print(faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_not_faulted_in_again() -> None:
    faults = {}
    for kind in ("cpu", "plain"):
        process = ran(sys.executable, "-c", FAULTS, kind)
        assert process.returncode == 0, process.stderr
        faults[kind] = int(process.stdout)
    assert 4 * faults["cpu"] < faults["plain"]
