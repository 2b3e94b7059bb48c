"""The script that SageMaker starts: train one cell of the bundled study, leave its record to be kept.

Standard library only; in a bundle it is ``train.py``, beside ``cxrbench/`` and ``study.json``.
Hyperparameters come as arguments, places as SM_* variables (sagemaker-training-toolkit,
ENVIRONMENT_VARIABLES.md): SM_CHANNEL_TRAINING holds the packed dataset, SM_MODEL_DIR is kept. There it is
``<cell>/record.json``, so that model.tar.gz unpacked into results/runs is what `cxrbench record` expects.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKPOINTS = Path("/opt/ml/checkpoints")  # kept in S3 by jobs on spot instances
_OF_TORCHRUN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_BEGINNINGS = ("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_", "TORCHELASTIC_")


def main(words: list[str] | None = None) -> int:
    """Train the cell; the exit code is that of `cxrbench train`: 0 with a record, 75 when interrupted."""
    if int(os.environ.get("RANK", "0")) > 0:
        return 0  # SageMaker's torchrun starts this once per device; the first one starts the trainer's own
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--hours", type=float, help="of compiling ahead and training; else the study's")
    parser.add_argument("--precompile", choices=("yes", "no"), default="no")
    asked = parser.parse_args(words)
    places = [_place("SM_CHANNEL_TRAINING"), _place("SM_MODEL_DIR")]
    if None in places:
        return 1
    packed, kept = (Path(str(place)) for place in places)
    work = CHECKPOINTS if CHECKPOINTS.is_dir() else Path(tempfile.mkdtemp())
    os.environ.update(_environment())
    study = json.loads((HERE / "study.json").read_text(encoding="utf-8"))
    limits = study["limits"]  # the bundle writes all of a study, its defaults too
    limits |= {"processes": asked.processes, "hours": asked.hours or limits["hours"]}
    common = ["--packed", str(packed / "manifest.json"), "--work", str(work)]
    if asked.precompile == "yes":
        command = [*_cxrbench("precompile", asked.cell, study), *common]
        limits["hours"] = _compiled_ahead(command, limits["hours"], work / asked.cell)
    out = kept / asked.cell / "record.json"
    # The same process goes on, so that SageMaker's SIGTERM reaches `cxrbench train` itself.
    os.execv(sys.executable, [*_cxrbench("train", asked.cell, study), *common, "--out", str(out)])


def _cxrbench(command: str, cell: str, study: dict[str, Any]) -> list[str]:
    """The first words of a command about ``cell``; ``study`` as it is now is written to a file of its own."""
    path = Path(tempfile.mkdtemp()) / "study.json"
    path.write_text(json.dumps(study), encoding="utf-8")
    return [sys.executable, "-m", "cxrbench", command, cell, "--study", str(path)]


def _compiled_ahead(command: list[str], hours: float, work: Path) -> float:
    """Run ``command`` for at most ``hours``; returns those left for training, at least a minute."""
    started = time.monotonic()
    with subprocess.Popen(command, start_new_session=True) as running:
        try:
            running.wait(hours * 3600)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the compilers that it started
            print(f"compiling ahead took all {hours:g} h; give the job more --hours", file=sys.stderr)
            _charge(work, hours * 3600)
    return max(hours - (time.monotonic() - started) / 3600, 1 / 60)


def _charge(work: Path, seconds: float) -> None:
    """Leave what a stopped `cxrbench precompile` did not live to write: the record has its seconds."""
    kept = work / "precompile.json"
    work.mkdir(parents=True, exist_ok=True)
    before = json.loads(kept.read_text(encoding="utf-8"))["seconds"] if kept.exists() else 0.0
    counts = dict.fromkeys(("graphs", "succeeded", "failed"))
    kept.write_text(json.dumps({"seconds": before + seconds, **counts}), encoding="utf-8")


def _place(name: str) -> str | None:
    if name not in os.environ:
        print(f"{name} is not set: this script is started by SageMaker (docs/neuron.md)", file=sys.stderr)
    return os.environ.get(name)


def _environment() -> dict[str, str]:
    """What the trainer needs to know; what SageMaker's torchrun told this process must not reach it."""
    for name in [name for name in os.environ if name in _OF_TORCHRUN or name.startswith(_BEGINNINGS)]:
        del os.environ[name]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    commit = HERE / "commit.txt"
    known = {"CXRBENCH_COMMIT": commit.read_text(encoding="utf-8").strip()} if commit.exists() else {}
    return {"PYTHONPATH": path, **known}


if __name__ == "__main__":
    sys.exit(main())
