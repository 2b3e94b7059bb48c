"""Graphs that torch_xla makes here and now."""

from __future__ import annotations

import os

os.environ.setdefault("PJRT_DEVICE", "CPU")

from collections.abc import Callable

import pytest
import torch

from cxrbench import platforms
from cxrbench.platforms.base import Platform


@pytest.fixture(scope="session")
def platform() -> Platform:
    return platforms.load("xla_cpu", torch.get_num_threads(), "fp32")


@pytest.fixture(scope="session")
def hlo(platform: Platform) -> Callable[[list[torch.Tensor]], str]:
    """HLO text of what tensors on the device wait for."""
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_hlo
