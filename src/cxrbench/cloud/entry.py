"""The script that SageMaker starts: train one cell of the bundled study and keep its record.

Standard library only; in a bundle it is ``train.py``, beside ``cxrbench/`` and ``study.json``.
Hyperparameters come as arguments, folders as SM_* variables (sagemaker-training-toolkit,
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
_FOLDERS = ("SM_CHANNEL_TRAINING", "SM_MODEL_DIR")
# Variables of SageMaker's torchrun, by how their names begin: the trainer starts a torchrun of its own.
_TORCHRUN = (
    *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_", "TORCHELASTIC_"),
)


def main(words: list[str] | None = None) -> int:
    """Train the cell; the exit code is that of `cxrbench train`: 0 with a record, 75 when interrupted."""
    if os.environ.get("RANK", "0") != "0":
        return 0  # SageMaker's torchrun starts this once per device; the first one starts the trainer's own
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--hours", type=float, help="of compiling ahead and training; else the study's")
    parser.add_argument("--precompile", choices=("yes", "no"), default="no")
    options = parser.parse_args(words)
    for name in _FOLDERS:
        if name not in os.environ:
            print(f"{name} is not set: this script is started by SageMaker (docs/neuron.md)", file=sys.stderr)
            return 1
    packed, kept = (Path(os.environ[name]) for name in _FOLDERS)
    work = CHECKPOINTS if CHECKPOINTS.is_dir() else Path(tempfile.mkdtemp())
    for name in [name for name in os.environ if name.startswith(_TORCHRUN)]:
        del os.environ[name]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    if (commit := HERE / "commit.txt").exists():
        os.environ["CXRBENCH_COMMIT"] = commit.read_text(encoding="utf-8").strip()
    study = json.loads((HERE / "study.json").read_text(encoding="utf-8"))
    limits = study["limits"]  # the bundle writes all of a study, its defaults too
    limits |= {"processes": options.processes, "hours": options.hours or limits["hours"]}
    for recipe in study["recipes"].values():
        if isinstance(weights := recipe["weights"], dict) and "file" in weights:
            weights["file"] = str(HERE / "weights" / weights["sha256"] / Path(weights["file"]).name)
    common = ["--packed", str(packed / "manifest.json"), "--work", str(work)]
    if options.precompile == "yes":
        command = [*_cxrbench("precompile", options.cell, study), *common]
        limits["hours"] = _compile_ahead(command, limits["hours"], work / options.cell)
    out = kept / options.cell / "record.json"
    # exec keeps this process, so that SageMaker's SIGTERM reaches `cxrbench train` itself.
    os.execv(sys.executable, [*_cxrbench("train", options.cell, study), *common, "--out", str(out)])


def _cxrbench(command: str, cell: str, study: dict[str, Any]) -> list[str]:
    """The beginning of a command about ``cell``; writes ``study`` as it is now to a new file."""
    path = Path(tempfile.mkdtemp()) / "study.json"
    path.write_text(json.dumps(study), encoding="utf-8")
    return [sys.executable, "-m", "cxrbench", command, cell, "--study", str(path)]


def _compile_ahead(command: list[str], hours: float, work: Path) -> float:
    """Run ``command`` for at most ``hours``; return those left for training, at least a minute."""
    started = time.monotonic()
    with subprocess.Popen(command, start_new_session=True) as running:
        try:
            running.wait(hours * 3600)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the compilers that it started
            print(f"compiling ahead took all {hours:g} h; give the job more --hours", file=sys.stderr)
            _charge(work / "precompile.json", hours * 3600)
            recover = "from cxrbench.study import platforms; platforms.recover('neuron')"
            subprocess.run([sys.executable, "-c", recover], check=False)  # from what was killed
    return max(hours - (time.monotonic() - started) / 3600, 1 / 60)


def _charge(path: Path, seconds: float) -> None:
    """Add the seconds of a killed `cxrbench precompile` to its file, from which the record takes them."""
    before = json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.exists() else 0.0
    counts = dict.fromkeys(("graphs", "succeeded", "failed"))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")  # SageMaker copies the folder to S3 at any time
    aside.write_text(json.dumps({"seconds": before + seconds, **counts}), encoding="utf-8")
    aside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
