"""Neuron's command line tools as scripts on the PATH, which print what the real ones are known to print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import QUICK_XLA, ROOT, pack_phantoms

# `neuron-ls --json-output` on a trn1.2xlarge, as two public projects captured it:
# github.com/lablup/all-smi (its Neuron reader's tests), github.com/lablup/backend.ai (accelerator/neuron).
NEURON_LS_TRN1 = """[
    {
        "neuron_device": 0, "bdf": "0000:00:1e.0", "cpu_affinity": "0-7", "numa_node": "-1",
        "connected_to": null, "nc_count": 2, "memory_size": 34359738368, "neuroncore_ids": [0, 1],
        "neuron_processes": []
    }
]"""


def report(utilisation: dict[str, float] | None, device_bytes: int | None) -> dict[str, Any]:
    """One report of neuron-monitor, cut to the configured groups.

    The shape is that of the Neuron SDK's neuron-monitor-user-guide.rst; what surrounds the runtimes is a
    trn1.2xlarge's, captured in github.com/lablup/all-smi (without the addresses of the account it ran in).
    """
    cores = {core: {"neuroncore_utilization": percent} for core, percent in (utilisation or {}).items()}
    used = {"host": 6997643264, "neuron_device": device_bytes}
    metrics = {
        "neuroncore_counters": {"period": 1.000113182, "neuroncores_in_use": cores, "error": ""},
        "memory_used": {"period": 1.00001, "neuron_runtime_used_bytes": used, "loaded_models": []},
    }
    runtime = {"pid": 4242, "neuron_runtime_tag": "cxrbench", "error": "", "report": metrics}
    return {
        "neuron_runtime_data": [runtime] if utilisation is not None else [],
        "system_data": {"memory_info": {"period": 1.0, "memory_total_bytes": 33110204416, "error": ""}},
        "instance_info": {"instance_type": "trn1.2xlarge", "error": ""},
    }


# What TorchNeuron's package is known to offer, for the CPU; sources in platforms/torchneuron.py.
TORCH_NEURONX = """import types, torch
from torch._dynamo import utils
generator = torch.Generator()
torch.cpu.get_rng_state, torch.cpu.set_rng_state = generator.get_state, generator.set_state
def get_fallback_ops():
    return ['aten::sort']
def max_memory_allocated():
    return 5 * 2**30
def get_dynamo_metrics():
    graph = dict(graph_node_count=7, torch_neuronx_compile_us=250_000)
    names = map('model_{}'.format, range(utils.counters['stats']['unique_graphs']))
    return [types.SimpleNamespace(graph_name=name, **graph) for name in names]
"""


FEW = {"train": 320, "val": 280, "test": 280}


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer phantoms than elsewhere: graphs count here, and XLA's CPU device is slow."""
    return pack_phantoms(tmp_path_factory.mktemp("packed"), FEW)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Path]:
    """A function that puts a shell script called like one of Neuron's tools first on the PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(name: str, prints: str, then: str = "exit 0") -> Path:
        (folder / f"{name}.out").write_text(prints)
        script = folder / name
        script.write_text(f"#!/bin/sh\ncat '{folder / name}.out'\n{then}\n")
        script.chmod(0o755)
        return script

    return put


@pytest.fixture
def neuron_machine(tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The adapters of trn1 and trn2 on this machine's CPU: only the device and its compiler are replaced.

    In the trainer's processes, and only there: no device is looked for, torch_xla takes its CPU with
    functionalization off, as on Neuron, TorchNeuron's package is a module of a few functions, and
    torch.compile stops after PyTorch's own part. Each process of torch_xla sees one replica: the mean of
    gradients is in its graph and exchanges nothing.
    """
    monitored = [report(None, None), report({"0": 40.0}, 2**30), report({"0": 60.0, "1": 10.0}, 3 * 2**30)]
    lines = "".join(json.dumps(reading) + "\n" for reading in monitored)
    tools("neuron-ls", NEURON_LS_TRN1)
    tools("neuron-monitor", lines + '{"neuron_runtime_d', "exit 3")
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch_neuronx.py").write_text(TORCH_NEURONX)
    (site / "sitecustomize.py").write_text(
        "import os\n"
        "from cxrbench.study import platforms\n"
        "platforms.unavailable = lambda name: None\n"
        "real = platforms.load\n"
        "def load(name, threads, precision, compiler=None, arithmetic='own'):\n"
        "    if name == 'neuron':\n"
        "        from cxrbench.platforms import neuron\n"
        "        os.environ['PJRT_DEVICE'] = neuron.NeuronPlatform.hardware = 'CPU'\n"
        "    else:\n"
        "        import torch\n"
        "        from cxrbench.platforms.torchneuron import TorchNeuronPlatform as here\n"
        "        here.device_type, here.compiler, here.backend = 'cpu', 'aot_eager', 'gloo'\n"
        "        torch.accelerator.synchronize = lambda: None\n"
        "    return real(name, threads, precision, compiler, arithmetic)\n"
        "platforms.load = load\n"
    )
    monkeypatch.setenv("XLA_FLAGS", QUICK_XLA)
    monkeypatch.setenv("XLA_DISABLE_FUNCTIONALIZATION", "1")
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT / 'src'}")
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return site
