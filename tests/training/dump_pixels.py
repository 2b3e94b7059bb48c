"""Write the pixels that a trainer's first epoch would see: ``python dump_pixels.py JOB.json FOLDER``.

Each process writes FOLDER/<rank>.npz: its batches of the epoch, one after the other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cxrbench import platforms
from cxrbench.datasets.packed import read_packed
from cxrbench.training.job import Job
from cxrbench.training.loop import Trainer

job = Job.model_validate_json(Path(sys.argv[1]).read_text())
platform = platforms.load(job.platform, job.recipe.threads, job.recipe.precision)
trainer = Trainer(job, read_packed(job.packed), platform, stop=lambda: False)
batches = []
for batch in trainer.epoch_batches(0):
    batches.append(batch.images.cpu().numpy())
    platform.end_step()
np.savez(Path(sys.argv[2]) / f"{platform.rank}.npz", images=np.stack(batches))
