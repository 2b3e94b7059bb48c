"""The trainer process: ``python -m cxrbench.training.child JOB.json``.

With several processes it starts itself again under torchrun, and ends like the first that failed. Exit codes
are those of ``Ending``; 0 with both files of predictions in the work folder.
"""

from __future__ import annotations

import errno
import os
import platform as python_platform
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

STARTED = time.monotonic()  # before the slow imports: they are part of the set-up that is timed

from cxrbench.common.errors import UserError  # noqa: E402
from cxrbench.common.files import explained, sha256_file  # noqa: E402
from cxrbench.evidence.record import LAST, PREDICTIONS  # noqa: E402
from cxrbench.study.platforms import RecordingFailed  # noqa: E402
from cxrbench.training.endings import Diverged, Ending, Interrupted  # noqa: E402
from cxrbench.training.job import WEIGHTS, Job  # noqa: E402
from cxrbench.training.process import PDEATHSIG, event, prctl  # noqa: E402

_VERSIONS = ("torch", "torch_xla", "torch_neuronx", "torchvision", "timm", "numpy")
TRIAL, WORKER = "--trial", "--worker"
_stops: list[int] = []  # what the supervisor has sent to ask for an end


def main(path: str, *options: str) -> int:
    """Train the job in ``path``, report a failure as an event, return the exit code."""
    job = Job.model_validate_json(Path(path).read_text(encoding="utf-8"))
    if job.limits.processes > 1 and WORKER not in options:
        return _torchrun(job.limits.processes, path, *options, WORKER)
    if TRIAL not in options:
        _attach_to_supervisor(job.limits.memory_gib)
    try:
        train_job(job, trial=TRIAL in options)
        return 0
    except Interrupted:
        ending, message = Ending.INTERRUPTED, ""
    except Diverged as error:
        ending, message = Ending.DIVERGED, str(error)
    except RecordingFailed as error:
        traceback.print_exc(file=sys.stdout)
        ending, message = Ending.NOT_RECORDED, str(error)
    except UserError as error:
        ending, message = Ending.REFUSED, str(error)
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        ending, message = Ending.CRASHED, "".join(traceback.format_exception_only(error))[:2000]
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOMEM):  # no network's doing
            reported = f"the operating system reported: {error}; fix it and run the same command again"
            ending, message = Ending.REFUSED, str(explained(error) or reported)
    event(ending, message=message)
    return ending.exit_code


def _attach_to_supervisor(memory_gib: float | None) -> None:
    """End with the supervisor, stop when it asks, and keep to a limit of memory."""
    prctl(PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda number, _: _stops.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which asks with SIGTERM
    if memory_gib is not None:
        limit = int(memory_gib * 2**30)
        # Data, not address space: libraries map far more than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _torchrun(processes: int, *words: str) -> int:
    """Run this module in several processes; return the exit code, or end by the signal that ended one."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    prctl(PDEATHSIG, signal.SIGKILL)
    try:
        run.main(["--standalone", f"--nproc-per-node={processes}", "-m", "cxrbench.training.child", *words])
    except SignalException as error:  # torchrun was asked to stop, and has stopped its processes
        return 128 + error.sigval
    except ChildFailedError as error:
        # A process killed by a signal makes others fail. Those that torchrun stopped are not among these.
        codes = [failure.exitcode for failure in error.failures.values()]
        if (killed_by := -min(codes)) > 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if killed_by != signal.SIGKILL:
                signal.signal(killed_by, signal.SIG_DFL)
            os.kill(os.getpid(), killed_by)
        return int(error.get_first_failure()[1].exitcode)
    return 0


def train_job(job: Job, trial: bool = False) -> None:
    """Set up and train; leave predictions.parquet and report the facts. A ``trial`` only runs every graph."""
    try:
        from cxrbench.datasets.packed import read_packed
        from cxrbench.evidence.predictions import write_scores
        from cxrbench.platforms.base import Platform
        from cxrbench.study import platforms
        from cxrbench.training.run import Trainer, run_trial
        from cxrbench.training.weights import write_tensors
    except ImportError as error:
        raise UserError(f"the environment cannot train: {error}; run `make setup`") from error
    event("phase", phase="setup")
    packed, recipe = read_packed(job.packed), job.recipe
    platform: Platform = platforms.load(
        job.platform, recipe.threads, recipe.precision, recipe.compiler, recipe.arithmetic
    )
    for part, why in job.without.items():
        platform.do_without(part, why)
    if not recipe.deterministic:
        platform.allow_fastest_kernels()
    if trial:
        event("phase", phase="compile")
        return run_trial(job, packed, platform)
    dataset = {
        "manifest": sha256_file(job.packed / "manifest.json"),
        "settings": packed.manifest.get("settings"),
        **{key: packed.manifest[key] for key in ("packed", "images", "patients", "positive_images")},
    }
    if platform.rank == 0:
        packed.check_sums()
    versions = {name: platforms.installed(name) for name in _VERSIONS}
    event("facts", versions={"python": python_platform.python_version(), **versions})
    event("facts", dataset=dataset, device=platform.describe())
    trainer = Trainer(job, packed, platform, stop=lambda: bool(_stops))
    trainer.progress.timing.setup_seconds += platform.clock() - STARTED
    event("facts", parameters=trainer.parameters, weights=trainer.weights.model_dump())
    trainer.report_facts()  # of earlier attempts, should this one die before its first epoch ends
    event("phase", phase="compile" if platform.compiles_graphs else "train")
    scores, last = trainer.run(), trainer.last_scores()
    kept = trainer.averaged_weights() if job.weights else None  # of all processes
    if platform.rank == 0:
        write_scores(job.work / PREDICTIONS, packed, scores)
        write_scores(job.work / LAST, packed, last)
        if kept is not None:
            about = {"cell": str(job.cell), "recipe": recipe.hash(), "packed": packed.manifest["packed"]}
            about |= {"pixels": packed.manifest["pixels"], "findings": list(packed.findings)}
            about |= {"mean": trainer.weights.mean, "std": trainer.weights.std}
            write_tensors(job.work / WEIGHTS, kept, about)
    trainer.report_facts()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
