"""The Neuron adapters as far as they run without Neuron: on torch_xla's CPU device and in eager PyTorch."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import ran
from cxrbench.evidence.record import read_record
from cxrbench.neuron.audit import as_on_neuron
from cxrbench.platforms import base
from cxrbench.study import platforms
from cxrbench.study.config import Recipe
from cxrbench.training.method import prepared
from cxrbench.training.supervisor import run

VANILLA = "NEURON_INTERNAL_USE_VANILLA_TORCH_XLA"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    """One short epoch."""
    return Recipe(epochs=1, batch=64, averaging=0.9, threads=2)


def output(code: str, **environment: str) -> str:
    """What a Python process prints; this one may have set what it decides."""
    own = {name: value for name, value in os.environ.items() if name != VANILLA}
    done = ran(sys.executable, "-c", code, env=own | environment)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_torch_xla_on_its_cpu_is_not_taken_for_neuron() -> None:
    code = (
        "import os; from cxrbench.platforms import neuron; os.environ['PJRT_DEVICE'] = 'CPU'\n"
        "neuron.NeuronPlatform(1, 'fp32')"
    )
    assert "platform neuron cannot run here: torch_xla found CPU, not NEURON" in output(code)


@pytest.mark.slow
def test_gradients_become_their_mean_in_place() -> None:
    # One replica, divided by two processes; torch_xla does nothing for a single one by default.
    code = (
        "import os, torch; from cxrbench.platforms import neuron\n"
        "os.environ['PJRT_DEVICE'] = neuron.NeuronPlatform.hardware = 'CPU'\n"
        "platform = neuron.NeuronPlatform(1, 'fp32'); platform.size = 2\n"
        "parts = [torch.ones(3, device=platform.device), torch.full((2, 2), 6.0, device=platform.device)]\n"
        "platform.mean(parts); print([part.sum().item() for part in parts])"
    )
    assert "[1.5, 12.0]" in output(code, XLA_ALWAYS_ALLREDUCE="1").splitlines()


def test_graphs_are_captured_without_the_custom_calls_of_torch_neuronx(monkeypatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    as_on_neuron()
    assert os.environ[VANILLA] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(("device", "value"), [("CPU", "1"), ("NEURON", "None")])
def test_only_torch_xla_on_its_cpu_goes_without_them(device: str, value: str) -> None:
    code = f"import os; from cxrbench.platforms import xla; print(os.environ.get('{VANILLA}'))"
    assert output(code, PJRT_DEVICE=device).split()[-1] == value


@pytest.mark.slow
def test_the_locks_of_killed_compilers_are_cleared(tools, tmp_path: Path, monkeypatch) -> None:
    """By the tool on the PATH, or by the one beside the interpreter; not while another may hold them."""
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    tool = tools("neuron_parallel_compile", "", f"echo \"$@\" >> '{tmp_path}/words'")
    platforms.recover("cpu")
    assert not (tmp_path / "words").exists()
    code = "print(flush=True); input()"
    command = ["setsid", "-f", sys.executable, "-c", code, f"neuronx-cc of {tmp_path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.wait()  # from now on what it has started is of no family here
        other.stdout.readline()  # and it runs
        platforms.recover("neuron")
        assert not (tmp_path / "words").exists()
        running = psutil.process_iter(["cmdline"])
        found = [process for process in running if command[-1] in (process.info["cmdline"] or ())]
        other.stdin.write(b"\n")
        other.stdin.close()
    psutil.wait_procs(found, timeout=60)
    platforms.recover("neuron")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tool.with_name("python")))
    platforms.recover("neuron")
    assert (tmp_path / "words").read_text() == "--command clear-locks\n" * 2
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/cache")
    platforms.recover("neuron")
    assert (tmp_path / "words").read_text() == "--command clear-locks\n" * 2


@pytest.mark.slow
def test_a_trn2_cell_trains_through_torch_compile(neuron_machine: Path, make_job, tmp_path: Path) -> None:
    reference = run(make_job("cpu"), tmp_path / "cpu")
    record = run(make_job("trn2", platform="torchneuron"), tmp_path / "out")
    assert record.status == "ok", record.failure
    how = "torch.compile(backend='aot_eager', dynamic=False, fullgraph=True)"
    assert record.platform["compiler"] == how
    assert record.platform["compiler_flags"] is None  # TorchNeuron documents none
    assert record.platform["fallback_operators"] == ["aten::sort"]  # as the library says
    assert [graph["neff_seconds"] for graph in record.platform["compiled_graphs"]] == [0.25, 0.25]
    assert (
        record.platform["generator_in_checkpoints"]
        and "not documented" in record.platform["compiler_options"]
    )
    assert record.peak_memory_mib == 5 * 1024 == record.platform["allocator_peak_mib"]
    assert record.timing.compiles == 2  # training and evaluation
    assert record.history[0].train_loss == pytest.approx(reference.history[0].train_loss, rel=1e-3)
    assert read_record(tmp_path / "out").host.device_count == 2


@pytest.fixture
def torchneuron(monkeypatch: pytest.MonkeyPatch):
    """A function that makes the TorchNeuron platform on the CPU, with the given functions in its library."""
    from cxrbench.platforms.torchneuron import TorchNeuronPlatform as Native

    library = ModuleType("torch_neuronx")
    monkeypatch.setitem(sys.modules, "torch_neuronx", library)
    monkeypatch.setattr(Native, "device_type", "cpu")
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)

    def make(**functions: object) -> Native:
        vars(library).update(functions)
        return Native(torch.get_num_threads(), "fp32")

    return make


def test_seconds_to_neffs_are_compilation_but_no_more_than_have_passed(torchneuron, monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=lambda: now))
    graphs = [SimpleNamespace(graph_name="step", graph_node_count=9, torch_neuronx_compile_us=0)]
    platform = torchneuron(get_dynamo_metrics=lambda: graphs)
    platform.synchronise()
    clock, seconds = platform.clock(), platform.compiles()[1]
    graphs[0].torch_neuronx_compile_us = 3_600_000_000  # an hour, of compilers side by side
    now += 10
    platform.synchronise()
    assert platform.compiles()[1] == pytest.approx(seconds + 10) and platform.clock() == pytest.approx(clock)
    now += 5  # of training
    platform.synchronise()
    assert platform.clock() == pytest.approx(clock + 5)
    assert platform.report()["compiled_graphs"] == [{"name": "step", "nodes": 9, "neff_seconds": 3600.0}]


def test_the_devices_generator_goes_on_where_it_was_saved(torchneuron, monkeypatch) -> None:
    device = torch.Generator()
    monkeypatch.setattr(torch.cpu, "get_rng_state", device.get_state, raising=False)
    monkeypatch.setattr(torch.cpu, "set_rng_state", device.set_state, raising=False)
    platform = torchneuron()
    state = platform.generator_state()
    drawn = torch.rand(3, generator=device)
    platform.restore_generator(state)
    assert torch.equal(torch.rand(3, generator=device), drawn)
    assert platform.report()["generator_in_checkpoints"]


class Floats(TorchDispatchMode):
    """The operators that are called with a Python float."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(isinstance(argument, float) for argument in (*args, *(kwargs or {}).values())):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_no_python_float_meets_a_tensor_outside_of_the_compiled_network(torchneuron) -> None:
    platform, on_cpu = torchneuron(), platforms.load("cpu", torch.get_num_threads(), "fp32")
    pixels = torch.randint(256, (2, 16, 16), dtype=torch.uint8)
    drawn = torch.tensor([[1.1, 0.9, 0.1, 0.0]] * 2)
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = platform.optimizer([{"params": [weight], "weight_decay": 0.1}], 1e-3, 0.1)
    with Floats() as floats:
        images = prepared(pixels, drawn, 0.5, 0.25, platform)
        optimizer.param_groups[0]["lr"] = platform.number(1e-3)
        optimizer.step()
    assert floats.names == []
    with Floats() as floats:
        assert torch.equal(images, prepared(pixels, drawn, 0.5, 0.25, on_cpu))
    assert floats.names  # elsewhere they are there, and the bits are the same


def test_a_version_that_lacks_what_others_have_still_trains(torchneuron) -> None:
    platform = torchneuron()
    platform.restore_generator(platform.generator_state())
    found = platform.report()
    assert found["fallback_operators"] is None and found["allocator_peak_mib"] is None
    assert found["compiled_graphs"] == [] and not found["generator_in_checkpoints"]
    assert platform.peak_memory_mib() is None
