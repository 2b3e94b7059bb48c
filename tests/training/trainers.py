"""Trainers as users start them, and networks that misbehave in them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from conftest import ROOT
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.record import Record
from cxrbench.training.endings import Ending
from cxrbench.training.job import checkpoints


def start(job, folder: Path, *options: str, **environment: str) -> subprocess.Popen:
    """`cxrbench train` of the job's cell, in a process of its own, with ``folder``/out for its evidence."""
    images = read_packed(job.packed).manifest["images"]
    study = {
        "datasets": {job.dataset: {"source": "phantom", "pixels": 32, "recipe": "fast", "images": images}},
        "recipes": {"fast": job.recipe.model_dump(mode="json")},
        "limits": job.limits.model_dump(mode="json"),
        "cells": [],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(study))
    words = ["train", job.cell, "--study", folder / "study.json", "--packed", job.packed / "manifest.json"]
    words += ["--out", folder / "out/record.json", "--work", job.work.parents[3], *options]
    command = [sys.executable, "-m", "cxrbench", *map(str, words)]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)


def wait_until(there: Callable[[], object], what: str, process: subprocess.Popen) -> None:
    """Until ``there()``, while ``process`` lives; at most two minutes."""
    deadline = time.monotonic() + 120
    while not there():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, f"no {what} after two minutes"
        time.sleep(0.05)


def wait_for_checkpoint(job, process: subprocess.Popen, count: int = 1) -> None:
    """Until the trainer has saved its first state, or ``count`` states."""
    wait_until(lambda: len(checkpoints(job.checkpoints)) >= count, "checkpoint", process)


def stop(job, process: subprocess.Popen, number: int = signal.SIGTERM, checkpoints: int = 1) -> None:
    """Stop `cxrbench train` with a signal, once its trainer has saved."""
    wait_for_checkpoint(job, process, checkpoints)
    process.send_signal(number)
    assert process.wait(120) == Ending.INTERRUPTED.exit_code


def children(process: int) -> list[int]:
    """The ids of a process's children, in the order of their start."""
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def trainer_of(runner: subprocess.Popen) -> int:
    """The process id of the runner's child: the trainer, or torchrun when there are several processes."""
    return children(runner.pid)[0]


def wall_seconds(record: Record) -> float:
    """From the first start to the end, each in whole seconds."""
    return (datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)).total_seconds()


def stub_timm(folder: Path, code: str) -> str:
    """Return a PYTHONPATH on which importing timm, as the trainer does, runs ``code`` instead."""
    (folder / "stub").mkdir()
    (folder / "stub/timm.py").write_text(f"import os, signal, time\n{code}\n")
    return f"{folder / 'stub'}:{ROOT / 'src'}"


def custom_network(folder: Path, forward: str) -> str:
    """Put a network into timm, in the trainer's process, whose forward is the given code."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys, importlib.abc, importlib.machinery\n"
        "class Hook(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name != 'cxrbench.training.method':\n"
        "            return None\n"
        "        sys.meta_path.remove(self)\n"
        "        import broken_network\n"
        "        return None\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    (folder / "broken_network.py").write_text(
        "import torch\nfrom timm.models import register_model\n"
        "from timm.models.resnet import ResNet, BasicBlock\n"
        "class Broken(ResNet):\n"
        f"    def forward(self, x):\n        {forward}\n"
        "@register_model\n"
        "def resnet10t(pretrained=False, **kwargs):\n"
        "    kwargs.pop('pretrained_cfg', None); kwargs.pop('pretrained_cfg_overlay', None)\n"
        "    kwargs.pop('cache_dir', None)\n"
        "    return Broken(BasicBlock, [1, 1, 1, 1], channels=(8, 8, 8, 8), **kwargs)\n"
    )
    return f"{folder}:{ROOT / 'src'}"
