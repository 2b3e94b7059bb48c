"""The CUDA platform as far as a machine without a GPU can show it; what needs a GPU is skipped without."""

import subprocess
import sys

import pytest
import torch

_LOAD = "from cxrbench.platforms.cuda import CudaPlatform; CudaPlatform(1, 'fp32')"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU on this machine")
@pytest.mark.fault("no GPU, an old driver, a torch without CUDA", "a sentence with PyTorch's own reason")
@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("", "PyTorch finds no usable GPU ("),
        ("import torch; torch.version.cuda = None; ", "was built without CUDA; `make setup` installs"),
    ],
)
def test_why_no_gpu_can_be_used_is_said(before: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-c", before + _LOAD], capture_output=True, text=True, check=False)
    assert "UserError: platform cuda cannot run here: " in done.stderr and message in done.stderr


@needs_gpu
def test_a_gpu_reports_who_else_is_on_it() -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    others = CudaPlatform(1, "fp32").report()["other_processes"]
    assert others is None or others >= 0
