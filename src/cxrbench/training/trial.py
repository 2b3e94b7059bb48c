"""A trial run: every graph of a cell, traced in a few steps. ``python -m cxrbench.training.trial JOB.json``.

Under ``neuron_parallel_compile`` it only collects graphs (nothing is computed, all results are zero); run
alone it trains for a moment. Either way nothing of it is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cxrbench import platforms
from cxrbench.datasets.packed import Packed, read_packed
from cxrbench.platforms.base import Platform
from cxrbench.training.child import report_failures
from cxrbench.training.job import Job, event
from cxrbench.training.loop import Trainer

STEPS = 6  # of each epoch; Neuron's guide says ten to fifteen in all
EPOCHS = 2  # an epoch begins otherwise than it goes on


class Trial(Trainer):
    """The trainer of a cell with few steps and one batch of each evaluated part; all shapes stay the same."""

    def __init__(self, job: Job, packed: Packed, platform: Platform) -> None:
        recipe = job.recipe.model_copy(update={"epochs": min(EPOCHS, job.recipe.epochs)})
        super().__init__(job.model_copy(update={"recipe": recipe}), packed, platform, stop=lambda: False)
        self.steps_per_epoch = min(STEPS, self.steps_per_epoch)
        for split in ("val", "test"):
            self.rows[split] = self.rows[split][: job.micro_batch * platform.size]


def main(path: str) -> int:
    """Exit code 0 when all graphs were traced; a failure is reported as the trainer's is."""
    return report_failures(lambda: trace(Job.model_validate_json(Path(path).read_text(encoding="utf-8"))))


def trace(job: Job) -> None:
    """Run every graph of the cell once."""
    event("phase", phase="setup")
    platform = platforms.load(job.platform, job.recipe.threads, job.recipe.precision, job.recipe.compiler)
    trial = Trial(job, read_packed(job.packed), platform)
    event("phase", phase="compile")
    trial.run()
    trial.report_facts()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
