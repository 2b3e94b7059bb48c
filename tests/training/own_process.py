"""Runs of a job in processes of their own: ``python own_process.py {pixels,drop_paths} JOB.json OUT``."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cxrbench.datasets.packed import read_packed
from cxrbench.study import platforms
from cxrbench.training import run
from cxrbench.training.job import Job

STOPPED_AFTER = 5  # steps: inside the second epoch

what, path, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
job = Job.model_validate_json(path.read_text())
packed = read_packed(job.packed)
platform = platforms.load(job.platform, job.recipe.threads, job.recipe.precision)


def trainer(name: str = "", stop: Callable[[], bool] = lambda: False) -> run.Trainer:
    """A trainer of the job with checkpoints of its own, and one batch to evaluate."""
    made = run.Trainer(job.model_copy(update={"work": job.work / name}), packed, platform, stop)
    made.rows |= {split: made.rows[split][: job.micro_batch] for split in ("val", "test")}
    return made


def pixels() -> None:
    """Write OUT/<rank>.npz: the batches of the first epoch that this process sees, one after the other."""
    batches = []
    for batch in trainer().epoch_batches(0):
        batches.append(batch.images.cpu().numpy())
        platform.end_step()
    np.savez(folder / f"{platform.rank}.npz", images=np.stack(batches))


def drop_paths() -> None:
    """Write OUT/0.npz: validation scores of runs with stochastic depth, and the compiles of the first."""
    scores = {"whole": trainer("whole").run()["val"], "compiles": platform.compiles()[0]}
    votes = itertools.count(1)
    try:
        trainer("stopped", lambda: next(votes) == STOPPED_AFTER).run()
    except run.Interrupted:
        platform.seed(1)  # whatever another process would begin with
        scores["resumed"] = trainer("stopped").run()["val"]
    other = trainer("other")
    platform.seed(job.seed + 1)  # the same weights and batches, other draws
    scores["other_draws"] = other.run()["val"]
    run._REPORT_SECONDS = 0.0
    scores["often_read"] = trainer("often_read").run()["val"]
    np.savez(folder / "0.npz", **scores)


{"pixels": pixels, "drop_paths": drop_paths}[what]()
