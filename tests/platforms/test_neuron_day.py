"""The first hour of docs/neuron.md: its own commands in order, with stand-ins for what is Neuron's.

Only a folder below pytest's sees what it makes: phantoms, and a device whose name ends in "(cpu)".
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from conftest import ROOT, TINY, clone_of_the_tree, keep_recorded, ran
from cxrbench.cli.words import CANNOT_RUN
from cxrbench.training.endings import Ending
from training.trainers import wait_until

from .conftest import FEW

DOCS = (ROOT / "docs/neuron.md").read_text()
HOUR = DOCS.partition("## A first run on a trn1.2xlarge")[2].partition("\n## ")[0]
CELL = f"phantom-32px/{TINY}/neuron/seed0"
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
neuron_settings.DEVICE_FOLDER, neuron_tools._DRIVER, record._DMI = here / "dev", here / "version", here
platforms.unavailable = neuron_settings.why_not
import psutil
memory = psutil.virtual_memory
psutil.virtual_memory = lambda: memory()._replace(total=32 << 30)
if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY"):
    import torch
    cpu = torch.Tensor.cpu
    torch.Tensor.cpu = lambda one: cpu(one) * float("nan") if one.is_floating_point() else cpu(one)
"""


def commands(title: str) -> str:
    """The commands of a step of the hour, with what stands for its cell."""
    block = re.search(rf"\*\*{title}\*\*.*?```sh\n(.*?)```", HOUR, re.S)[1]
    block = block.replace("nih128-64px/convnext_pico", f"phantom-32px/{TINY}")
    return "\n".join(map(str.strip, block.splitlines()))


def graphs(file: Path) -> set[str]:
    """The hashes of the graphs with more than one input that torch_xla has compiled."""
    about = file.read_text().split("Graph Info:")[1:]
    known = (re.search(r"Graph Hash: (\w+)[\s\S]*?Number of Graph Inputs: (\d+)", text) for text in about)
    return {found[1] for found in known if found and int(found[2]) > 1}


def git(folder: Path, *words: object) -> str:
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org", "-c", "commit.gpgsign=false")
    return ran("git", *who, *words, cwd=folder, check=True).stdout


@pytest.fixture
def trn1(neuron_machine: Path, tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout on a machine that a trn1.2xlarge's tools and facts describe."""
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
    git(tmp_path, "clone", "-q", ROOT, root)
    clone_of_the_tree(root)
    keep_recorded(root, "nih128-32px/resnet18/cpu/seed0")
    (root / "config/config.yaml").write_text(yaml.safe_dump(STUDY))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "A small study")
    monkeypatch.setenv("PYTHONPATH", f"{neuron_machine}:{root / 'src'}")
    tools("pip", "", f"echo \"$@\" >> '{tmp_path}/installed'")
    tools("python3.12", "", "mkdir -p .venv/bin && touch .venv/bin/activate")
    tools("cxrbench", "", f"exec '{sys.executable}' -m cxrbench \"$@\"")
    tools("neuronx-cc", "", f"exec '{sys.executable}' '{ROOT}/tests/neuronx_cc.py' \"$@\"")
    tools("neuron_parallel_compile", "", PARALLEL_COMPILE)
    monkeypatch.setenv("PT_XLA_DEBUG_LEVEL", "1")
    return root


@pytest.mark.slow
@pytest.mark.fault("a trn1 is taken away while a cell trains", "exit code 75; the same command goes on")
def test_the_hour_runs_to_its_end(trn1: Path, packed: Path, tmp_path: Path) -> None:
    def run(words: str, ends_with: int = 0, cwd: Path = trn1, **environment: str) -> str:
        done = ran("bash", "-ec", words, cwd=cwd, env=os.environ | environment)
        assert done.returncode == ends_with, done.stdout + done.stderr
        return done.stdout + done.stderr

    # Without a device.
    said = run(f"cxrbench train {CELL}", CANNOT_RUN, PYTHONPATH=str(trn1 / "src"))
    assert said == re.search(r"```text\n(.*?)```", DOCS, re.S)[1]

    # Install: Neuron's packages from its own index, then what they need besides.
    run(commands("Install"))
    first, second, third = map(str.split, (tmp_path / "installed").read_text().splitlines())
    pins = re.findall(r"^[^#\n-].*", (trn1 / first[-1]).read_text(), re.M)
    assert {Requirement(pin).name for pin in pins} == {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}
    assert second[3:] == pins and (trn1 / second[2]).exists() and third == ["install", "--no-deps", "-e", "."]

    # The gate, then training, interrupted and resumed: the page counts the programs of both.
    # Tiny ones, of one value, are not counted: a compiler takes seconds for them.
    met = {"PT_XLA_DEBUG_FILE": str(tmp_path / "gate")}
    where = f"--platforms neuron --pixels 32 --batch {STUDY['recipes']['fast']['batch']}"
    run(f"cxrbench bench steps {TINY} {where}", **met)
    of_gate = graphs(tmp_path / "gate")
    contribute = f"{commands('Contribute')} --fetch"
    met = {"PT_XLA_DEBUG_FILE": str(tmp_path / "training")}
    work = trn1 / "results/checkpoints" / CELL
    training = subprocess.Popen(
        contribute.split(), cwd=trn1, env=os.environ | met, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: list(work.rglob("step*.pt")), "checkpoint", training)
    training.send_signal(signal.SIGINT)
    _, errors = training.communicate(timeout=300)
    assert training.returncode == Ending.INTERRUPTED.exit_code, errors
    resumed = ran("bash", "-ec", contribute, cwd=trn1, env=os.environ | met)
    assert f"{CELL}: ok" in resumed.stderr  # what it packs is received in tests/test_contribute.py
    of_training = graphs(tmp_path / "training")
    programs = [int(count) for count in re.findall(r"(\d) (?:more )?programs? \|", HOUR)]
    assert [len(of_gate), len(of_training - of_gate)] == programs
