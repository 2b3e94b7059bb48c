"""Steps of the trainer outside a cell's training, to measure them."""

from collections.abc import Iterator
from itertools import chain, count

from cxrbench.datasets.packed import Packed
from cxrbench.platforms.base import Platform
from cxrbench.study.config import Limits, Recipe
from cxrbench.training.job import Job
from cxrbench.training.method import Batch, train_steps
from cxrbench.training.run import Trainer


class Steps(Trainer):
    """Optimizer steps of a new network, in whole batches; ``done`` steps of the schedule count as taken.

    After a step the parameters of its ``network`` have that step's gradients.
    """

    def __init__(
        self,
        architecture: str,
        platform: Platform,
        recipe: Recipe,
        packed: Packed,
        done: int = 0,
        seed: int = 0,
    ) -> None:
        job = Job(
            dataset=packed.folder.name,
            architecture=architecture,
            platform=platform.name,
            seed=seed,
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
        """The sum of the losses since the last call, read from the device."""
        before, self._read = self._read, self.losses()
        return self._read - before
