"""The first epoch of a cell, trained again by a process of its own: a received history is held against it.

It is trained as its record says, without checkpoints, and nothing of it is kept.
"""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.record import EpochStats
from cxrbench.study import platforms
from cxrbench.training.job import Job

# Largest relative differences of the first epoch's losses, training and validation, between runs of one seed,
# recipe and data on processors of two makers, with AVX2 or AVX512, and on XLA: in fp32 without BatchNorm
# 2.2e-7 and 3.2e-8 (17 pairs), with it 1.5e-3 and 1.2e-2 (16 pairs). Other seeds: the training losses of the
# phantoms differ by 2.3e-3 to 1.2e-2; ResNets on radiographs by as little as 1e-4, which tells nothing there.
_STEADY, _OTHERS = (1e-5, 1e-5), (3e-3, 2.5e-2)


class FirstEpoch(NamedTuple):
    """A first epoch as it was trained here."""

    stats: EpochStats
    steady: bool  # fp32 without BatchNorm: the order of sums hardly moves its losses

    def beside(self, recorded: EpochStats) -> tuple[bool, str]:
        """Whether a recorded first epoch has these losses within the tolerances, and both in words."""
        agrees, words = True, []
        for name, most in zip(("train_loss", "val_loss"), _STEADY if self.steady else _OTHERS, strict=True):
            loss, told = getattr(self.stats, name), getattr(recorded, name)
            difference = abs(told / loss - 1)
            agrees &= difference <= most
            words.append(
                f"{name} {told:.6f} in its record, {loss:.6f} here ({difference:.1e}, tolerance {most:g})"
            )
        return agrees, f"first epoch trained again: {'; '.join(words)}"


def first_epoch(job: Job) -> FirstEpoch:
    """The first epoch of ``job``, trained here in at most its ``limits.hours``.

    UserError where that fails.
    """
    with TemporaryDirectory() as folder:
        aside = job.model_copy(update={"work": Path(folder)})
        command = [sys.executable, "-m", __name__, aside.command()[-1]]
        how = {"env": os.environ | job.environment(), "timeout": 3600 * job.limits.hours}
        try:
            done = subprocess.run(command, capture_output=True, text=True, **how)  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{job.cell}: its first epoch takes more than {job.limits.hours:g} h here; "
                "check it on a faster machine"
            ) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"{job.cell}: its first epoch cannot be trained here: {why}")
    stats, steady = json.loads(done.stdout)
    return FirstEpoch(EpochStats.model_validate(stats), steady)


def _train(job: Job) -> FirstEpoch:
    from torch.nn.modules.batchnorm import _BatchNorm  # slow, and whoever starts this does without

    from cxrbench.training.run import Trainer

    class Once(Trainer):
        """One epoch, of which nothing is saved."""

        def _save(self) -> None:
            pass

        def first(self) -> EpochStats:
            self._train_epoch()
            self._end_epoch()
            return self.progress.history[0]

    recipe, packed = job.recipe, read_packed(job.packed)
    packed.check_sums()
    platform = platforms.load(
        job.platform, recipe.threads, recipe.precision, recipe.compiler, recipe.arithmetic
    )
    if not recipe.deterministic:
        platform.allow_fastest_kernels()
    trainer = Once(job, packed, platform, stop=lambda: False)
    own = (recipe.precision, recipe.emulated_weights, recipe.arithmetic) == ("fp32", "fp32", "own")
    norms = any(isinstance(part, _BatchNorm) for part in trainer.network.modules())
    return FirstEpoch(trainer.first(), own and not norms)


if __name__ == "__main__":
    try:
        with redirect_stdout(io.StringIO()):  # events for a supervisor
            found = _train(Job.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except UserError as error:
        sys.exit(str(error))
    print(json.dumps([found.stats.model_dump(), found.steady]))
