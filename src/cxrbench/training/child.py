"""The trainer process: ``python -m cxrbench.training.child JOB.json``. Its runner survives its death.

Exit codes: 0 with predictions.parquet in the work folder; 75 interrupted and saved;
78 the user's mistake or the machine's trouble; 1 a failure that the last lines of its output explain.
"""

from __future__ import annotations

import errno
import platform as python_platform
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

STARTED = time.monotonic()  # before the slow imports: they are part of the set-up that is timed

from cxrbench.study.errors import UserError  # noqa: E402
from cxrbench.study.files import explained, sha256_file  # noqa: E402
from cxrbench.training.family import die_with_parent  # noqa: E402
from cxrbench.training.job import INTERRUPTED, REFUSED, Job, event  # noqa: E402

if TYPE_CHECKING:
    import numpy as np

    from cxrbench.datasets.packed import Packed

_VERSIONS = ("torch", "torch_xla", "torch_neuronx", "torchvision", "timm", "numpy")
_stop = False


def main(path: str) -> int:
    """Train the job in ``path``; see the module's exit codes."""
    die_with_parent()
    signal.signal(signal.SIGTERM, _ask_to_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the runner, which asks with SIGTERM
    job = Job.model_validate_json(Path(path).read_text(encoding="utf-8"))
    if job.limits.memory_gib is not None:
        limit = int(job.limits.memory_gib * 2**30)
        # Data, not address space: libraries map far more than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return report_failures(lambda: train(job))


def report_failures(work: Callable[[], None]) -> int:
    """Run ``work``, report its failure as an event, return the exit code."""
    try:
        from cxrbench.training.loop import Diverged, Interrupted  # slow: imports torch
    except ImportError as error:
        event("refused", message=f"the environment cannot train: {error}; run `make setup`")
        return REFUSED
    try:
        work()
    except Interrupted:
        event("interrupted")
        return INTERRUPTED
    except UserError as error:
        event("refused", message=str(error))
        return REFUSED
    except Diverged as error:
        event("diverged", message=str(error))
        return 1
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOMEM):  # no network's doing
            refusal = explained(error) or f"the system refused: {error}; mend that, then run this again"
            event("refused", message=str(refusal))
            return REFUSED
        event("failed", message="".join(traceback.format_exception_only(error))[:2000])
        return 1
    return 0


def train(job: Job) -> None:
    """Set up and train; leaves predictions.parquet in the work folder and reports the facts."""
    from cxrbench import platforms
    from cxrbench.datasets.packed import read_packed
    from cxrbench.training.loop import Trainer

    event("phase", phase="setup")
    packed = read_packed(job.packed)
    dataset = {
        "manifest": sha256_file(job.packed / "manifest.json"),
        **{key: packed.manifest[key] for key in ("packed", "images", "patients", "positive_images")},
    }
    platform = platforms.load(job.platform, job.recipe.threads, job.recipe.precision, job.recipe.compiler)
    if platform.rank == 0:
        packed.check_sums()
    event("facts", dataset=dataset, versions=_versions(), device=platform.describe())
    trainer = Trainer(job, packed, platform, stop=lambda: _stop)
    trainer.progress.timing.setup_seconds += platform.clock() - STARTED
    event("facts", parameters=trainer.parameters)
    trainer.report_facts()  # of earlier attempts, should this one die before its first epoch ends
    event("phase", phase="compile" if platform.compiles_graphs else "train")
    scores = trainer.run()
    if platform.rank == 0:
        _write_predictions(job, packed, scores)
    trainer.report_facts()


def _write_predictions(job: Job, packed: Packed, scores: dict[str, np.ndarray]) -> None:
    import pandas as pd

    from cxrbench.evidence.predictions import LABELS, SCORES, write_predictions

    # ChestMNIST does not say which patient is whose: the column is left out, and intervals are marked.
    known = packed.index["patient"].notna().all()
    identity = ["image", "patient", "split"] if known else ["image", "split"]
    parts = []
    for split, values in scores.items():
        rows = packed.rows(split)
        part = packed.index.iloc[rows][identity].reset_index(drop=True)
        part[LABELS] = packed.labels()[rows]
        part[SCORES] = values
        parts.append(part)
    write_predictions(job.work / "predictions.parquet", pd.concat(parts, ignore_index=True))


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": python_platform.python_version()}
    for name in _VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _ask_to_stop(signum: int, frame: FrameType | None) -> None:
    global _stop
    _stop = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
