"""Steps of the trainer outside a cell's training: to measure them, and to meet every graph of a cell."""

from collections.abc import Iterator
from itertools import chain, count

from cxrbench.datasets.packed import Packed
from cxrbench.platforms.base import Platform
from cxrbench.study.config import Limits, Recipe
from cxrbench.training.job import Job
from cxrbench.training.method import Batch, train_steps
from cxrbench.training.run import Trainer

TRIAL_STEPS = 6  # of each epoch; Neuron's guide recommends ten to fifteen in all
TRIAL_EPOCHS = 2  # the first step of an epoch differs from the others


class Steps(Trainer):
    """Optimizer steps of a new network, in whole batches; ``done`` steps of the schedule count as taken.

    After a step the parameters of its ``network`` have that step's gradients.
    """

    def __init__(
        self, architecture: str, platform: Platform, recipe: Recipe, packed: Packed, done: int = 0
    ) -> None:
        job = Job(
            dataset=packed.folder.name,
            architecture=architecture,
            platform=platform.name,
            seed=0,
            recipe=recipe,
            limits=Limits(),
            packed=packed.folder,
            work=packed.folder / "no-checkpoints",
            micro_batch=recipe.batch,
        )
        super().__init__(job, packed, platform, stop=lambda: False)
        self.progress.step = done
        self._read = 0.0  # of the sum of losses

    def all_batches(self) -> Iterator[Batch]:
        """The augmented batches of epoch after epoch, without end."""
        return chain.from_iterable(map(self.epoch_batches, count()))

    def take(self, batches: Iterator[Batch], steps: int = 1) -> None:
        """Take optimizer steps on ``batches``; the device may still be at work afterwards."""
        self.network.train()
        first, all_steps = self.progress.step, self.recipe.epochs * self.steps_per_epoch
        for done in train_steps(self.update, batches, self.recipe, first, first + steps, all_steps):
            self.progress.step = done

    def loss(self) -> float:
        """Return the sum of the losses since the last call, read from the device."""
        before, self._read = self._read, self.losses()
        return self._read - before


class _Trial(Trainer):
    """Epochs whose outputs are neither read, judged nor saved.

    They are invalid under ``neuron_parallel_compile``, which executes no graph (Neuron SDK,
    pytorch-neuron-parallel-compile.rst).
    """

    def _report_progress(self) -> float:
        return 0.0

    def _end_epoch(self) -> None:
        self._logits("val")
        self.progress.epoch += 1

    def _save(self) -> None:
        pass


def run_trial(job: Job, packed: Packed, platform: Platform) -> None:
    """Run every graph of ``job``'s cell: two short epochs, and one batch of each part that is evaluated."""
    recipe = job.recipe.model_copy(update={"epochs": min(TRIAL_EPOCHS, job.recipe.epochs)})
    trainer = _Trial(job.model_copy(update={"recipe": recipe}), packed, platform, stop=lambda: False)
    trainer.steps_per_epoch = min(TRIAL_STEPS, trainer.steps_per_epoch)
    for split in ("val", "test"):
        trainer.rows[split] = trainer.rows[split][: job.micro_batch * platform.size]
    trainer.run()
    trainer.report_facts()
