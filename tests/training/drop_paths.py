"""Short runs of one job with stochastic depth, in one process: ``python drop_paths.py JOB.json OUT.npz``.

OUT.npz has the validation scores of each run, and the number of compiles of the first one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cxrbench import platforms
from cxrbench.datasets.packed import read_packed
from cxrbench.training import loop
from cxrbench.training.job import Job

STOPPED_AFTER = 5  # steps: inside the second epoch

job = Job.model_validate_json(Path(sys.argv[1]).read_text())
packed = read_packed(job.packed)
platform = platforms.load(job.platform, job.recipe.threads, job.recipe.precision)


def trainer(name: str, stop: Callable[[], bool] = lambda: False) -> loop.Trainer:
    """A trainer of the job with checkpoints of its own, and one batch to evaluate."""
    made = loop.Trainer(job.model_copy(update={"work": job.work / name}), packed, platform, stop)
    made.rows |= {split: made.rows[split][: job.micro_batch] for split in ("val", "test")}
    return made


scores = {"whole": trainer("whole").run()["val"], "compiles": platform.compiles()[0]}

votes = itertools.count(1)
try:
    trainer("stopped", lambda: next(votes) == STOPPED_AFTER).run()
except loop.Interrupted:
    platform.seed(1)  # whatever another process would begin with
    scores["resumed"] = trainer("stopped").run()["val"]

other = trainer("other")
platform.seed(job.seed + 1)  # the same weights and batches, other draws
scores["other_draws"] = other.run()["val"]

loop._REPORT_SECONDS = 0.0
scores["often_read"] = trainer("often_read").run()["val"]

np.savez(sys.argv[2], **scores)
