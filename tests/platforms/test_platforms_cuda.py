"""The CUDA platform as far as a machine without a GPU can show it; what needs a GPU is skipped without."""

import sys

import pytest
import torch

from conftest import ran
from cxrbench.study import platforms
from cxrbench.study.names import UserError

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
    done = ran(sys.executable, "-c", before + _LOAD)
    assert "UserError: platform cuda cannot run here: " in done.stderr and message in done.stderr


def test_a_precision_that_a_platform_does_not_offer_is_refused() -> None:
    with pytest.raises(UserError, match="platform cpu has no precision tf32; use fp32, bf16"):
        platforms.load("cpu", 1, "tf32")


@pytest.mark.parametrize(
    ("capability", "emulated", "precision", "message"),
    [
        (
            (7, 5),
            True,
            "tf32",
            "Tesla T4 has compute capability 7.5, and TF32 begins with 8.0; use a recipe in fp32",
        ),
        ((7, 5), True, "bf16", "Tesla T4 only emulates bf16; use a recipe in fp32"),
        ((7, 5), True, "fp32", None),
        ((8, 6), False, "bf16", None),
        ((8, 6), False, "tf32", None),
    ],
)
def test_arithmetic_that_a_gpu_lacks_is_refused(
    monkeypatch, capability, emulated, precision, message
) -> None:
    """Facts of a GPU are made up: what PyTorch would say of it."""
    from cxrbench.platforms import cuda

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not emulated)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(cuda, "_why_not", lambda: None)
    if message:
        with pytest.raises(UserError, match=f"cannot run {precision} here: {message}"):
            cuda.CudaPlatform(1, precision)
    else:
        assert cuda._lacks(precision) is None


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_only_tf32_rounds_the_factors_of_a_product(precision: str) -> None:
    platform = platforms.load("cuda", 1, precision)
    factor = platform.to_device(torch.full((256, 256), 1 + 2**-12))  # TF32 rounds it to 1
    product = (factor @ torch.eye(256, device=platform.device)).cpu()
    assert bool((product == 1).all()) == (precision == "tf32")


@needs_gpu
def test_a_gpu_reports_who_else_is_on_it() -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    others = CudaPlatform(1, "fp32").report()["other_processes"]
    assert others is None or others >= 0
