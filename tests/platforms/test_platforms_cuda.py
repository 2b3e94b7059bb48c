"""The CUDA platform as far as a machine without a GPU can show it; what needs a GPU is skipped without."""

import sys
from dataclasses import replace
from typing import ClassVar

import pandas as pd
import pytest
import torch

from benchmarks import train, turns
from conftest import ROOT, ran
from cxrbench.common.errors import UserError
from cxrbench.study import platforms

_LOAD = "from cxrbench.platforms.cuda import CudaPlatform; CudaPlatform(1, 'fp32')"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@pytest.mark.slow
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


# -- the first hour on a GPU, simulated: what PyTorch and its messages would say ------------------------

LOCKED = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]  # of torch 2.9.1+cu128


@pytest.mark.fault("a GPU that PyTorch has no code for", "a sentence before anything runs on it")
@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((6, 0), LOCKED, False),  # P100
        ((5, 2), LOCKED, False),
        *((of, LOCKED, True) for of in ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (12, 0))),
        ((12, 1), LOCKED, True),
        ((8, 0), ["sm_86"], False),  # a binary of a later minor version
        ((13, 0), LOCKED, False),
        ((13, 0), [*LOCKED, "compute_120"], True),  # translated when it is loaded
        ((6, 0), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
    ],
)
def test_a_gpu_is_refused_where_pytorch_has_no_code_for_it(capability, built_for, runs) -> None:
    from cxrbench.platforms.cuda import without_code_for

    said = without_code_for("Tesla P100-PCIE-16GB", capability, built_for)
    assert (said is None) == runs
    if capability == (6, 0) and built_for is LOCKED:
        assert "compute capability 6.0" in said and "code for 7.0 to 12.0" in said and "T4 x2" in said


def test_a_depthwise_convolution_without_cudnn_has_a_layout_that_cudnn_is_not_given() -> None:
    from cxrbench.platforms.cuda import with_own_depthwise

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 7, padding=3, groups=8))
    network = network.to(memory_format=torch.channels_last)
    images = torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    before = network(images)
    assert network[1].weight.stride() != (49, 49, 7, 1)
    with_own_depthwise(network)
    given: list[torch.Tensor] = []
    network[1].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    after = network(images)
    assert network[1].weight.stride() == (49, 49, 7, 1) and given[0].is_contiguous()
    assert torch.allclose(before, after, atol=1e-6)


class Alone:
    """A contender that finds no other one alive."""

    alive: ClassVar[list[object]] = []
    began: ClassVar[list[object]] = []

    def __init__(self, make: object) -> None:
        assert self.alive == []
        self.alive.append(make)
        self.began.append(make)

    def __call__(self) -> float:
        return 100.0

    def facts(self) -> dict[str, object]:
        return {"named": self.alive[0]}

    def close(self) -> None:
        self.alive.clear()


def test_one_contender_at_a_time_holds_the_device(monkeypatch) -> None:
    monkeypatch.setattr(turns, "InProcess", Alone)
    speeds, facts = turns.in_turns({"ours": "a", "timm": "b", "limit": "c"}, 12, lambda text: None)
    assert {name: len(of) for name, of in speeds.items()} == {"ours": 12, "timm": 12, "limit": 12}
    assert Alone.began == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]  # each has been first
    assert facts["limit"] == {"named": "c"}


# GiB: A10G and L4 as EC2 reports them (22,888 MiB), the rest as they are sold
GPUS = {"T4": 16, "A10G": 22.4, "L4": 22.4, "A100": 40, "H100": 80}
TOO_LARGE = {  # of batches 64, 256 and 1024 at 224 px in bf16, by recorded activations
    ("resnet18", 1024): {"T4", "A10G", "L4"},
    ("resnet50", 256): {"T4", "A10G", "L4"},
    ("resnet50", 1024): set(GPUS),
    ("convnext_pico", 1024): {"T4", "A10G", "L4"},
}


@pytest.mark.parametrize("batch", [64, 256, 1024])
@pytest.mark.parametrize("network", train.NETWORKS)
def test_a_batch_that_does_not_fit_is_known_before_the_first_block(network: str, batch: int) -> None:
    audit = pd.read_csv(ROOT / "data/recorded/audit/audit.csv")
    setting = train.Setting("cuda", network, 224, batch, "bf16", 2, 15)
    refused = {name for name, gib in GPUS.items() if train.too_large(setting, gib, audit)}
    assert refused == TOO_LARGE.get((network, batch), set())
    if (network, batch) == ("resnet50", 64):  # five at once, as they would be alive side by side
        assert train.too_large(replace(setting, batch=5 * batch), GPUS["A10G"], audit)
    assert train.too_large(replace(setting, architecture="unknown"), 1, audit) is None
    assert train.images_for(batch)["train"] >= 20 * batch


def test_a_broken_recording_ends_the_process(monkeypatch) -> None:
    from cxrbench.platforms import cuda

    def breaks(self, inputs: object) -> None:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(cuda.Recorded, "_record", breaks)
    recorded = cuda.Recorded(lambda value: value)
    recorded._calls = 3  # it has warmed up
    with pytest.raises(
        platforms.RecordingFailed, match="could not be recorded: CUDA error: operation failed"
    ):
        recorded(torch.zeros(1))


def test_a_trainer_that_does_without_says_so_in_its_record() -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    platform = object.__new__(CudaPlatform)  # without a GPU
    platform.size, platform._without, platform._why_not, platform._recorded = 1, {}, [], []
    platform._compiled = False
    for what in (platforms.RECORDING, platforms.CUDNN_DEPTHWISE):
        platform.do_without(what, f"{what} failed")
    assert platform.captured(len) is len
    said = platform.report()
    assert (said["graphs"], said["not_recorded"]) == (0, "recording failed")
    assert said["without_cudnn_depthwise"] == "cudnn_depthwise failed"
