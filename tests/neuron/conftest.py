"""Graphs that torch_xla makes here and now, and a program that stands in for Neuron's compiler."""

import os

os.environ.setdefault("PJRT_DEVICE", "CPU")

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import forked
from conftest import ROOT, must_work, once
from cxrbench.neuron.campaign import dump_steps
from cxrbench.neuron.control_graphs import ALWAYS
from cxrbench.platforms.base import Platform
from cxrbench.study import platforms

NETWORKS = ("test_resnet", "test_convnext")
SMALL = ("--pixels", "64", "--batch", "2")


@pytest.fixture(scope="session")
def platform() -> Platform:
    return platforms.load("xla_cpu", torch.get_num_threads(), "fp32")


@pytest.fixture(scope="session")
def hlo(platform: Platform) -> Callable[[list[torch.Tensor]], str]:
    """HLO text of what tensors on the device wait for."""
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_hlo


@pytest.fixture(scope="session")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs of two small networks, dumped once."""

    def make(folder: Path) -> None:
        must_work("audit", *NETWORKS, *SMALL, "--dump-hlo", folder, cwd=folder)
        dump_steps(ALWAYS, folder, print)  # else each test would trace the controls

    return once(tmp_path_factory, "graphs", make)


@pytest.fixture
def compile_here(dumped: Path, tmp_path: Path):
    """Run ``cxrbench compile`` in a folder of its own, with the stand-in on PATH in the given mode."""
    shutil.copytree(dumped, tmp_path / "results/compile/graphs")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/neuronx-cc"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{ROOT}/tests/neuronx_cc.py' \"$@\"\n")
    program.chmod(0o755)

    def run(*words: object, mode: str = "", path: str | None = None, sizes: tuple[str, ...] = SMALL):
        environment = os.environ | {"STANDIN": mode, "PATH": path or f"{tmp_path}/bin:{os.environ['PATH']}"}
        return forked.run("cxrbench", ["compile", *map(str, words), *sizes], tmp_path, environment)

    return run
