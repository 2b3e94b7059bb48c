"""The day that docs/neuron.md describes: its own commands in order, with stand-ins for what is Neuron's.

Only a folder below pytest's sees what it makes: phantoms, and a device whose name ends in "(cpu)".
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from conftest import ROOT, TINY, ran
from cxrbench.cli.words import CANNOT_RUN
from cxrbench.cost.prices import price, read_prices
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import read_record
from cxrbench.training.job import Ending
from training.trainers import wait_until

from .conftest import FEW

DOCS = (ROOT / "docs/neuron.md").read_text()
DAY = DOCS.partition("## trn1.2xlarge, step by step")[2].partition("\n## ")[0]
CELL = f"phantom-32px/{TINY}/neuron/seed0"
HERE = {  # for what the document trains
    "nih128-64px/convnext_pico": f"phantom-32px/{TINY}",
    "convnext_pico": TINY,
    "--pixels 64 --batch 32": "--pixels 32 --batch 2",
}
STUDY = {
    "datasets": {"phantom-32px": {"source": "phantom", "pixels": 32, "recipe": "fast", "images": FEW}},
    "recipes": {"fast": {"epochs": 3, "batch": 64, "averaging": 0.9, "threads": 1}},
    "cells": [{"dataset": "phantom-32px", "architectures": [TINY], "platforms": ["neuron"], "seeds": [0]}],
    "limits": {"hours": 1, "checkpoint_minutes": 0},
}
# As the real one does (pytorch-neuron-parallel-compile.rst): the trial executes nothing and its outputs are
# invalid, its graphs are kept in the cache and counted. It ends with 1 where the trial fails.
PARALLEL_COMPILE = """[ "$1" = --command ] && exit 0
export NEURON_EXTRACT_GRAPHS_ONLY=1 PT_XLA_DEBUG_FILE="$NEURON_COMPILE_CACHE_URL/graphs"
mkdir -p "$NEURON_COMPILE_CACHE_URL" && "$@" || exit 1
count=$(grep 'Graph Hash' "$PT_XLA_DEBUG_FILE" | sort -u | wc -l)
for what in graphs 'successful compilations'; do
    echo "INFO ||NEURON_PARALLEL_COMPILE||: Total $what: $count"
done
echo 'INFO ||NEURON_PARALLEL_COMPILE||: Total failed compilations: 0'"""
MACHINE = """
import os
from pathlib import Path
from cxrbench.platforms import neuron_settings, neuron_tools
from cxrbench.evidence import record
here = Path(__file__).parent
neuron_settings.DEVICES, neuron_tools._DRIVER, record._DMI = here / "dev", here / "version", here
platforms.unavailable = neuron_settings.why_not
if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY"):
    import torch
    cpu = torch.Tensor.cpu
    torch.Tensor.cpu = lambda one: cpu(one) * float("nan") if one.is_floating_point() else cpu(one)
"""


def commands(title: str) -> str:
    """The commands of a step of the day, with what stands for its cell."""
    block = re.search(rf"\*\*{title}\*\*.*?```sh\n(.*?)```", DAY, re.S)[1]
    for words, instead in HERE.items():
        block = block.replace(words, instead)
    return "\n".join(map(str.strip, block.splitlines()))


def graphs(file: Path) -> set[str]:
    """The hashes of the graphs that torch_xla has compiled."""
    return set(re.findall(r"Graph Hash: (\w+)", file.read_text()))


@pytest.fixture
def trn1(neuron_machine: Path, tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's folder on a machine that a trn1.2xlarge's tools and facts describe."""
    (neuron_machine / "dev").mkdir()
    files = {"dev/neuron0": "", "version": "2.29.0.0"}
    files |= {"sys_vendor": "Amazon EC2", "product_name": "trn1.2xlarge"}
    for name, text in files.items():
        (neuron_machine / name).write_text(text)
    pins = (ROOT / "requirements/neuron.txt").read_text()
    for name, version in re.findall(r"^([\w-]+)==(.*)$", pins, re.M):
        info = neuron_machine / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with (neuron_machine / "sitecustomize.py").open("a") as file:
        file.write(MACHINE)
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "requirements", root / "requirements")
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text(yaml.safe_dump(STUDY))
    (root / "data").mkdir()
    shutil.copy(ROOT / "data/prices.csv", root / "data")
    tools("pip", "", f"echo \"$@\" >> '{root}/installed'")
    tools("python3.12", "", "mkdir -p .venv/bin && touch .venv/bin/activate")
    tools("make", "", f"grep -q \"^$1:\" '{ROOT}/Makefile'")
    tools("cxrbench", "", f"exec '{sys.executable}' -m cxrbench \"$@\"")
    tools("neuronx-cc", "", f"exec '{sys.executable}' '{ROOT}/tests/neuronx_cc.py' \"$@\"")
    tools("neuron_parallel_compile", "", PARALLEL_COMPILE)
    monkeypatch.setenv("PT_XLA_DEBUG_LEVEL", "1")
    return root


@pytest.mark.slow
@pytest.mark.fault("a trn1 is taken away while a cell trains", "exit code 75; the same command goes on")
def test_the_day_runs_to_its_end(trn1: Path, packed: Path, tmp_path: Path) -> None:
    def run(words: str, ends_with: int = 0, **environment: str) -> str:
        done = ran("bash", "-ec", words, cwd=trn1, env=os.environ | environment)
        assert done.returncode == ends_with, done.stdout + done.stderr
        return done.stdout + done.stderr

    # Without a device.
    said = run(commands("Train"), CANNOT_RUN, PYTHONPATH=str(ROOT / "src"))
    assert said == re.search(r"```text\n(.*?)```", DOCS, re.S)[1]

    # Install: Neuron's packages from its own index, then what they need besides.
    run(commands("Install"))
    first, second, islpy, third = map(str.split, (trn1 / "installed").read_text().splitlines())
    pins = re.findall(r"^[^#\n-].*", (trn1 / first[-1]).read_text(), re.M)
    assert {Requirement(pin).name for pin in pins} == {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}
    assert second[3:] == pins and (trn1 / second[2]).exists() and third == ["install", "--no-deps", "-e", "."]
    assert islpy == ["install", "islpy<2026.2"]

    # The compiler is asked without the device.
    found = run(commands("Ask the compiler what to expect"))
    assert re.search(rf"{TINY}-32px-batch2-fp32-step: compiles in \d+ s", found), found
    shutil.copytree(packed, trn1 / "data/packed/phantom-32px")

    # Both cores, compiled ahead: three graphs, the ones that training meets, though no output is valid.
    ((key, number),) = re.findall(r"add `(\w+): (\d)` under `limits:`", DAY)
    limits = STUDY["limits"] | {key: int(number)}
    (trn1 / "config/config.yaml").write_text(yaml.safe_dump(STUDY | {"limits": limits}))
    assert "3 of 3 graphs compiled" in run(commands("Compile ahead"))
    work = trn1 / "results/checkpoints" / CELL
    assert not list(work.rglob("*.pt"))

    # Train, interrupted and resumed: with the graphs that were compiled ahead.
    met = [{"PT_XLA_DEBUG_FILE": str(trn1 / name)} for name in ("first", "resumed")]
    training = subprocess.Popen(
        commands("Train").split(), cwd=trn1, env=os.environ | met[0], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: list(work.rglob("step*.pt")), "checkpoint", training)
    training.send_signal(signal.SIGTERM)
    _, errors = training.communicate(timeout=120)
    assert training.returncode == Ending.INTERRUPTED.exit_code, errors
    assert run(commands("Train"), **met[1]).strip().endswith(f"{CELL}: ok")
    ahead = graphs(tmp_path / "cache/graphs")
    assert len(ahead) == 3 and graphs(trn1 / "first") == ahead and graphs(trn1 / "resumed") < ahead

    # Record, verify, price.
    shown = run(commands("Bring the record back"))
    assert f"recorded {CELL}" in shown and "1 recorded cells are intact" in shown
    record = read_record(trn1 / "data/recorded" / CELL)
    check_record(record, tmp_path)
    predictions = read_predictions(trn1 / "data/recorded" / CELL / "predictions.parquet")
    assert len(predictions) == 280 + 280 and predictions["image"].is_unique
    hourly = price(read_prices(trn1 / "data/prices.csv"), "trn1.2xlarge", "us-east-1", "on_demand")
    (cost,) = json.loads(run(f"cxrbench cost table data/recorded/{CELL} --json 2>/dev/null"))
    assert (cost["kind"], cost["instance"], cost["cores_used"]) == ("measured", "trn1.2xlarge", 2)
    hours = record.timing.total_seconds / 3600
    assert cost["usd_total"] == pytest.approx(hours * hourly["usd_per_hour"], rel=1e-6)


def check_record(record, tmp_path: Path) -> None:
    """What the day leaves in the record, from tools, settings and both attempts."""
    host, found = record.host, record.platform
    assert record.status == "ok" and record.attempts == 2 and found["processes"] == 2
    assert (host.device_count, host.devices_used, host.device_memory_gib) == (2, 2, 16.0)
    assert host.device.endswith("(cpu)") and host.instance == "trn1.2xlarge"  # the stand-in's
    assert host.driver == "aws-neuronx-dkms 2.29.0.0" and "neuronx-cc 2.26.6360.0" in host.sdk
    flags = "--auto-cast=none --model-type=generic --optlevel=2 --retry_failed_compilation"
    assert found["compiler_flags"] == flags and found["compile_cache"] == str(tmp_path / "cache")
    assert found["stochastic_rounding"] == {"enabled": False, "seed": "0"}
    assert found["neuroncore_utilization_percent"] == {"0": 50.0, "1": 10.0}
    assert (found["neuron_monitor"], found["neuron_monitor_unreadable"]) == ("ended with exit code 3", 1)
    assert record.peak_memory_mib == 3 * 1024 and record.energy.joules is None
    ahead = found["precompile"]
    assert (ahead["graphs"], ahead["succeeded"], ahead["failed"]) == (3, 3, 0)
    assert record.timing.compiles == 3 + 2 and record.timing.compile_seconds > ahead["seconds"] > 0
