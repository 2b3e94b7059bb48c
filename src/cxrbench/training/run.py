"""A cell's training around its method: the clock, the votes to stop and save, checkpoints, and reports.

What is computed stands in training/method.py.
"""

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import Packed
from cxrbench.evidence.predictions import macro_auroc
from cxrbench.evidence.record import EpochStats, NormStatistics
from cxrbench.platforms.base import Platform
from cxrbench.training.checkpoint import load_checkpoint, save_checkpoint
from cxrbench.training.clock import WARMUP_STEPS, Clock, Progress
from cxrbench.training.endings import Diverged, Interrupted
from cxrbench.training.job import Job
from cxrbench.training.machine import CoreUse
from cxrbench.training.method import (
    Averaged,
    Batch,
    Batches,
    Scoring,
    Update,
    build_network,
    draw_parameters,
    parameter_groups,
    round_weights,
    rows_of_epoch,
    sigmoid,
    train_steps,
)
from cxrbench.training.process import event
from cxrbench.training.weights import used_weights

_HOW = (
    "training images over wall seconds between device synchronisations; the first "
    f"{WARMUP_STEPS} steps after each start, evaluation and saving are left out"
)
_COMPILED_STEPS = 2  # after these a platform that compiles has met every training graph
_REPORT_SECONDS = 1.0  # how often progress is read from the device and reported
_TRIAL_STEPS = 6  # of each epoch; Neuron's guide recommends ten to fifteen in all
_TRIAL_EPOCHS = 2  # the first step of an epoch differs from the others


class Trainer:
    """Train one cell and score its validation and test parts with the averaged weights."""

    def __init__(self, job: Job, packed: Packed, platform: Platform, stop: Callable[[], bool]) -> None:
        self.job, self.recipe, self.platform, self.packed = job, job.recipe, platform, packed
        self.stop = stop
        self.rows = {split: packed.rows(split) for split in ("train", "val", "test")}
        self._check_sizes()
        if self.recipe.activation_checkpointing and not platform.recomputes:
            raise UserError(
                f"platform {platform.name} cannot train with activation_checkpointing; set it to false in a "
                "recipe of its own"
            )
        self.steps_per_epoch = len(self.rows["train"]) // self.recipe.batch
        platform.seed(job.seed)
        priors = np.asarray(np.nanmean(packed.labels()[self.rows["train"]], axis=0, dtype=np.float64))
        network = build_network(job.architecture, packed.manifest["pixels"], self.recipe, priors)
        self.parameters = sum(p.numel() for p in network.parameters())
        self.network = platform.network(network)
        self.optimizer = platform.optimizer(
            parameter_groups(self.network, self.recipe),
            self.recipe.learning_rate,
            self.recipe.weight_decay,
        )
        kind = self.recipe.emulated_weights
        round_weights(self.network, "fp32" if kind == "fp32" else "bf16_nearest")
        platform.settle(self.network, self.optimizer)
        self.averaged = Averaged(self.network, self.recipe.averaging)
        self.weights = used_weights(self.network, self.recipe, packed.manifest)
        self.batches = Batches(packed, platform, job.limits.resident_gib * 2**30, self.weights)
        self.progress = Progress()
        if job.limits.torch_compile:
            platform.compile_network()
        parts = self.recipe.batch // job.micro_batch // platform.size
        self.update = Update(self.network, self.optimizer, self.averaged, platform, parts, kind)
        self.scoring = Scoring(self.network, platform)
        self.saved_at = time.monotonic()
        self.resumed = False
        if platform.size > 1:
            # The weights are equal on all processes; what they drop at random must not be.
            platform.seed(job.seed + 1_000_003 * platform.rank)
        self._resume()
        timing = self.progress.timing
        self.compiled_before = (timing.compiles, timing.compile_seconds)  # by earlier attempts
        self.clock = Clock(platform, self.progress, self.recipe.batch)

    def _check_sizes(self) -> None:
        for split, rows in self.rows.items():
            if len(rows) == 0:
                raise UserError(f"{self.packed.folder}: the {split} part has no image; choose another split")
        if len(self.rows["train"]) < self.recipe.batch:
            raise UserError(
                f"{self.packed.folder}: {len(self.rows['train'])} training images are fewer than one batch "
                f"of {self.recipe.batch}; lower 'batch' in the recipe"
            )
        if self.recipe.batch % (self.job.micro_batch * self.platform.size):
            raise UserError(
                f"the batch of {self.recipe.batch} is not a multiple of micro_batch {self.job.micro_batch} "
                f"times {self.platform.size} processes; choose a micro_batch that divides it"
            )
        emulates = self.recipe.emulated_weights != "fp32" or self.recipe.arithmetic != "own"
        if emulates and self.platform.size > 1:
            several = "several processes would round their weights apart"
            raise UserError(f"emulated_weights and arithmetic: {several}; set limits.processes to 1")

    def run(self) -> dict[str, np.ndarray]:
        """Train what is left; return the scores of each evaluated split (images x findings, float32)."""
        while self.progress.epoch < self.recipe.epochs:
            self._train_epoch()
            self._end_epoch()
        event("phase", phase="evaluate")
        started = self.platform.clock()
        average = self.averaged_weights()
        scores = {split: sigmoid(self._logits(split, self.scoring, average)) for split in ("val", "test")}
        self.progress.timing.evaluate_seconds += self.platform.clock() - started
        return scores

    def last_scores(self) -> dict[str, np.ndarray]:
        """The scores of the test part (images x findings, float32) by the weights after the last step."""
        anew = Scoring(self.network, self.platform)  # a recorded one would go on with the averaged weights
        return {"test": sigmoid(self._logits("test", anew, self._over_processes(self.network.state_dict())))}

    # -- one epoch ---------------------------------------------------------------------------------

    def epoch_batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield this process's augmented micro-batches of an epoch from its step ``first`` on."""
        job, platform = self.job, self.platform
        rows = rows_of_epoch(self.rows["train"], self.recipe, job.seed, epoch, platform.rank, platform.size)
        rows = rows[first : self.steps_per_epoch].reshape(-1)
        drawn = draw_parameters(self.recipe.augmentation, len(self.packed.images), job.seed, epoch)
        return self.batches.over(rows, job.micro_batch, drawn[rows])

    def _train_epoch(self) -> None:
        """Take the steps of this epoch that are still to do."""
        progress = self.progress
        before, steps = progress.epoch * self.steps_per_epoch, self.recipe.epochs * self.steps_per_epoch
        micro_batches = self.epoch_batches(progress.epoch, progress.step - before)
        self.network.train()
        use = CoreUse()
        self.clock.restart()
        last = before + self.steps_per_epoch
        for done in train_steps(self.update, micro_batches, self.recipe, progress.step, last, steps):
            progress.step = done
            self.clock.steps += 1
            self._after_step()
        self.clock.read()
        there, others = use.others(self.platform.gather)
        progress.core_seconds += there
        progress.others_seconds += others
        progress.timing.others_share = round(progress.others_seconds / progress.core_seconds, 3)

    def _after_step(self) -> None:
        """Report, save or stop between steps. Processes vote, because saving and stopping involve all."""
        if self.platform.compiles_graphs and self.clock.steps == _COMPILED_STEPS:
            event("phase", phase="train")
        since = self.platform.clock() - self.clock.last
        if since >= _REPORT_SECONDS or self.clock.steps == 1:  # the first: a sign of progress
            self.clock.read()
            self._report_progress()
        if self.progress.step % self.platform.steps_between_votes:
            return
        save = (time.monotonic() - self.saved_at) / 60 >= self.job.limits.checkpoint_minutes
        votes = self.platform.gather((self.stop(), save))
        stop = any(vote[0] for vote in votes)
        if stop or any(vote[1] for vote in votes):
            self.clock.read()
            self._save()
            self.clock.restart()
        if stop:
            raise Interrupted

    def losses(self) -> float:
        """The sum of all losses so far, read from the device."""
        return float(self.update.loss_sum.cpu())

    def _report_progress(self) -> float:
        """The mean loss of this epoch so far, and report it; raise Diverged when it is not finite."""
        steps = self.progress.step - self.progress.epoch * self.steps_per_epoch
        loss = (self.losses() - self.progress.loss_before) / max(1, steps)
        if not np.isfinite(loss):
            raise Diverged(f"training loss is {loss} after step {self.progress.step}")
        event(
            "progress",
            epoch=self.progress.epoch + 1,
            epochs=self.recipe.epochs,
            step=self.progress.step,
            steps=self.recipe.epochs * self.steps_per_epoch,
            loss=loss,
            images_per_second=self.progress.images_per_second,
        )
        return loss

    def report_facts(self) -> None:
        """Report what the record needs of the run so far: there may be no later report."""
        timing, platform = self.progress.timing, self.platform
        self._count_compiles()
        timing.images_per_second = self.progress.images_per_second
        timing.how = _HOW
        readings, reasons = zip(*platform.gather(platform.energy_joules()), strict=True)  # a device each
        joules, reason = None if None in readings else sum(readings), next(filter(None, reasons), None)
        if self.resumed and joules is not None:
            joules, reason = None, "the energy of the attempts before the last one was not kept"
        peak = platform.peak_memory_mib()
        statistics = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.network.modules())
        decisions = {
            "resident_input": self.batches.resident,
            "processes": platform.size,
            "update": update_of(self.optimizer),
            "batchnorm_statistics": NormStatistics.PER_PROCESS if statistics else NormStatistics.NONE,
        }
        event(
            "facts",
            timing=timing.model_dump(),
            history=[stats.model_dump() for stats in self.progress.history],
            peak_memory_mib=None if peak is None else round(peak, 1),
            energy={"joules": joules, "reason": reason},
            platform=platform.report() | decisions,
        )

    def _count_compiles(self) -> None:
        """Add the compiles of this attempt to those of earlier ones."""
        timing, (number, seconds) = self.progress.timing, self.platform.compiles()
        timing.compiles = self.compiled_before[0] + number
        timing.compile_seconds = self.compiled_before[1] + seconds

    def _end_epoch(self) -> None:
        """Score the validation part with the averaged weights, add a line of history, save."""
        progress = self.progress
        train_loss = float(np.mean(self.platform.gather(self._report_progress())))
        started = self.platform.clock()
        logits = self._logits("val", self.scoring, self.averaged_weights())
        labels = self.packed.labels()[self.rows["val"]]
        wide = logits.astype(np.float64)
        losses, labelled = np.logaddexp(0, wide) - labels * wide, ~np.isnan(labels)
        val_loss = float(np.mean(losses if labelled.all() else losses[labelled]))
        seconds = self.platform.clock() - started
        if not np.isfinite(val_loss):
            raise Diverged(f"validation loss is {val_loss} after epoch {progress.epoch + 1}")
        stats = EpochStats(
            epoch=progress.epoch + 1,
            train_loss=train_loss,
            val_loss=val_loss,
            val_auroc=macro_auroc(labels, logits),
            train_seconds=progress.epoch_seconds,
            eval_seconds=seconds,
        )
        self._log(
            f"epoch {stats.epoch}/{self.recipe.epochs}: train loss {stats.train_loss:.4f}, "
            f"val loss {stats.val_loss:.4f}, {stats.train_seconds:.1f} s"
        )
        progress.history.append(stats)
        progress.timing.evaluate_seconds += seconds
        self.report_facts()
        progress.epoch += 1
        progress.epoch_seconds = 0.0
        progress.loss_before = self.losses()
        self._save()

    # -- evaluation --------------------------------------------------------------------------------

    def _logits(self, split: str, scoring: Scoring, weights: dict[str, torch.Tensor]) -> np.ndarray:
        """The logits of a split (images x findings, float32) by ``weights``."""
        rows = np.array_split(self.rows[split], self.platform.size)[self.platform.rank]
        logits = scoring.logits(weights, self.batches.over(rows, self.job.micro_batch))
        return np.concatenate([part for of_process in self.platform.gather(logits) for part in of_process])

    def averaged_weights(self) -> dict[str, torch.Tensor]:
        """The averaged weights, with BatchNorm statistics as the mean over all processes."""
        return self._over_processes(self.averaged.state)

    def _over_processes(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A state of the network, with BatchNorm statistics as the mean over all processes."""
        if self.platform.size == 1:
            return state
        of_each = self.platform.gather(self._buffers(state))
        return state | {
            # On the host: on the device the mean is a graph of its own, or part of the first batch's.
            name: self.platform.to_device(sum(values[name] for values in of_each) / len(of_each))
            for name, value in of_each[0].items()
            if value.is_floating_point()
        }

    def _buffers(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The differences between processes in a state of the network, on the host."""
        return {name: state[name].cpu() for name, _ in self.network.named_buffers()}

    # -- checkpoints -------------------------------------------------------------------------------

    def _identity(self) -> dict[str, str]:
        return {
            "cell": str(self.job.cell),
            "recipe": self.recipe.hash(),
            "data": self.packed.manifest["packed"],
            "number of processes": str(self.platform.size),
        } | self._own_update()

    def _own_update(self) -> dict[str, str]:
        """The optimizer's code unless it is torch's: no other one continues from its state."""
        update = update_of(self.optimizer)
        return {} if update.startswith("torch.") else {"update of the weights": update}

    def _save(self) -> None:
        """Save all that the next step depends on: network, average, optimizer, generators, position."""
        self.platform.synchronise()
        self._count_compiles()
        own = {  # what differs between processes: BatchNorm statistics, generators, the loss so far
            "network": self._buffers(dict(self.network.named_buffers())),
            "averaged": self._buffers(self.averaged.state),
            "generators": self.platform.generator_state(),
            "loss_sum": self.update.loss_sum.cpu(),
            "progress": {"loss_before": self.progress.loss_before},
        }
        of_each = self.platform.gather(own)
        if self.platform.rank == 0:
            state = {
                "identity": self._identity(),
                "network": self.network.state_dict(),
                "averaged": self.averaged.state,
                "optimizer": self.optimizer.state_dict(),
                "of_each_process": of_each,
                "progress": self.progress.model_dump(),
            }
            on_host = tree_map_only(torch.Tensor, torch.Tensor.cpu, state)
            save_checkpoint(self.job.checkpoints, self.progress.step, on_host)
        self.saved_at = time.monotonic()

    def _resume(self) -> None:
        state = load_checkpoint(self.job.checkpoints, self._identity(), self._log)
        if state is None:
            return
        own = state["of_each_process"][self.platform.rank]
        self.platform.restore_network(self.network, state["network"] | own["network"])
        self.platform.restore(self.averaged.state, state["averaged"] | own["averaged"])
        self.platform.restore({"sum": self.update.loss_sum}, {"sum": own["loss_sum"]})
        self.platform.restore_optimizer(self.optimizer, state["optimizer"])
        self.platform.restore_generator(own["generators"])
        self.progress = Progress(**state["progress"] | own.get("progress", {}))
        self.resumed = True
        self._log(f"resumed after step {self.progress.step} of epoch {self.progress.epoch + 1}")

    def _log(self, text: str) -> None:
        """Write a line of the log, from the first process only."""
        if self.platform.rank == 0:
            print(text, flush=True)


def update_of(optimizer: torch.optim.Optimizer) -> str:
    """The code that moves the weights, for the record: of torch's AdamW the function that it calls.

    A library may have put its own in that place, as an older torch_neuronx does.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("torch."):
        return f"{kind.__module__}.{kind.__qualname__}"
    form = "fused" if optimizer.defaults.get("fused") else "single_tensor"
    function = getattr(sys.modules["torch.optim.adam"], f"_{form}_adam")
    return f"{function.__module__}.{function.__qualname__}"


class _Trial(Trainer):
    """Epochs whose outputs are neither read, judged nor saved.

    They are invalid under ``neuron_parallel_compile``, which executes no graph (Neuron SDK,
    pytorch-neuron-parallel-compile.rst).
    """

    def _report_progress(self) -> float:
        return 0.0

    def _end_epoch(self) -> None:
        self._logits("val", self.scoring, self.averaged_weights())
        self.progress.epoch += 1

    def _save(self) -> None:
        pass


def run_trial(job: Job, packed: Packed, platform: Platform) -> None:
    """Run every graph of ``job``'s cell: two short epochs, and one batch of each part that is evaluated."""
    recipe = job.recipe.model_copy(update={"epochs": min(_TRIAL_EPOCHS, job.recipe.epochs)})
    trainer = _Trial(job.model_copy(update={"recipe": recipe}), packed, platform, stop=lambda: False)
    trainer.steps_per_epoch = min(_TRIAL_STEPS, trainer.steps_per_epoch)
    for split in ("val", "test"):
        trainer.rows[split] = trainer.rows[split][: job.micro_batch * platform.size]
    trainer.run()
    trainer.report_facts()
