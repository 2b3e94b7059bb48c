"""One process, or several under torchrun: how they start and end. Imports no torch by itself.

torchrun ends with 1 whatever ended its processes. Started as ``python -m cxrbench.training.torchrun`` it ends
as the first of them did, by the same signal or with the same exit code: a runner treats one and many alike.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from cxrbench.training.family import die_with_parent
from cxrbench.training.job import Job


def launcher(job: Job) -> list[str]:
    """Python's arguments for one process or several; the name of the module to run comes after them."""
    if job.limits.processes == 1:
        return ["-m"]
    return [
        "-m",
        "cxrbench.training.torchrun",
        "--standalone",
        f"--nproc-per-node={job.limits.processes}",
        "-m",
    ]


def environment(job: Job) -> dict[str, str]:
    """The processes' threads, and a PATH with the tools that came with the interpreter."""
    threads = str(job.recipe.threads)
    # Neuron's compiler lies there, and the interpreter may have been called by its path.
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.pathsep.join(places)}


def main() -> int:
    """Run torchrun on the command line's arguments; see the module for its exit code."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    die_with_parent()
    try:
        run.main()
    except SignalException as error:  # torchrun was asked to stop, and has stopped its processes
        return 128 + error.sigval
    except ChildFailedError as error:
        # A process killed by a signal makes others fail. Those that torchrun stopped are not among these.
        codes = [failure.exitcode for failure in error.failures.values()]
        return min(codes) if min(codes) < 0 else error.get_first_failure()[1].exitcode
    return 0


if __name__ == "__main__":
    if (code := main()) < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
