"""The method: how a network is made, trained and scored, in the order in which a reader asks.

B images of P x P pixels go through in a batch, to F logits each: one per finding. All that a device changes
is asked of platforms/base.py; clock, votes, checkpoints and reports are in training/run.py.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrbench.common.files import ahead
from cxrbench.datasets.packed import Packed
from cxrbench.evidence.record import UsedWeights
from cxrbench.platforms.adamw import Number
from cxrbench.platforms.base import Platform
from cxrbench.study.recipe import Augmentation, EmulatedWeights, Recipe
from cxrbench.training.network import initial_network, set_prior_bias

# -- the network -----------------------------------------------------------------------------------


def build_network(architecture: str, pixels: int, recipe: Recipe, priors: np.ndarray) -> nn.Module:
    """A timm network with the recipe's initial weights: one input channel, one logit per finding, on the CPU.

    ``priors`` are the label frequencies of the training part (F). The caller seeds torch before.
    Raises UserError for a name that timm does not know, and for weights that do not fit.
    """
    network = initial_network(architecture, pixels, len(priors), recipe)
    if recipe.activation_checkpointing:
        network.set_grad_checkpointing(True)
    if recipe.prior_bias:
        set_prior_bias(network, priors)
    return network


def parameter_groups(network: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """AdamW's groups, each with ``lr_scale``, its part of the learning rate; no decay of vectors."""
    if recipe.layer_decay == 1:
        groups = param_groups_weight_decay(network, recipe.weight_decay)
        return [group | {"lr_scale": 1.0} for group in groups]
    return list(param_groups_layer_decay(network, recipe.weight_decay, layer_decay=recipe.layer_decay))


# -- its schedule and its averaged weights ---------------------------------------------------------


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Linear warm-up, then a half cosine to zero; a function of the step, so resuming needs no state."""
    warm = max(1, round(recipe.warmup * steps))
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Averaged:
    """Exponential moving average of weights and buffers; without a host read, unlike torch's swa_utils."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        self.state = {name: value.detach().clone() for name, value in network.state_dict().items()}

    def weight(self, step: int) -> float:
        """The share that the weights after ``step`` (from 0) get; larger while the decay warms up."""
        return 1 - min(self._decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, network: nn.Module, weight: Number) -> None:
        """Average in the network's weights; ``weight``: :meth:`weight` as ``Platform.number`` returns it."""
        averages, values = [], []
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                averages.append(self.state[name])
                values.append(value)
            else:
                self.state[name].copy_(value)
        if not torch.is_tensor(weight):
            torch._foreach_lerp_(averages, values, weight)
        elif weight.dim():  # one update per tensor, as XLA fuses them
            torch._foreach_lerp_(averages, values, [weight] * len(averages))
        else:
            steps = torch._foreach_sub(values, averages)
            torch._foreach_mul_(steps, weight)
            torch._foreach_add_(averages, steps)


# -- its images ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """A batch on the device, always of full size; only its first ``valid`` images count."""

    images: Tensor  # B x 1 x P x P float32, normalised
    labels: Tensor  # B x F float32
    label_weights: Tensor | None  # B x F, 0 where missing; none: all are known
    valid: int


def rows_of_epoch(
    train: np.ndarray, recipe: Recipe, seed: int, epoch: int, process: int, processes: int
) -> np.ndarray:
    """The training rows of an epoch in shuffled order: steps x this process's images of a step.

    Images that fill no whole batch are left out.
    """
    key = [seed, 2**32 + epoch]  # apart from the keys of the augmentation
    rows = np.random.Generator(np.random.Philox(key=key)).permutation(train)
    rows = rows[: len(rows) // recipe.batch * recipe.batch]
    # Each process takes its share of every batch, so their number does not change what a batch holds.
    return rows.reshape(-1, processes, recipe.batch // processes)[:, process]


def draw_parameters(config: Augmentation, images: int, seed: int, epoch: int) -> np.ndarray:
    """Per image (images x 4 float32): x scale with the flip as its sign, y scale, x shift, y shift.

    Scales multiply source coordinates around the centre; shifts are fractions of the side. They are drawn on
    the host from (seed, epoch, image): every platform, process count and resumed run sees the same pixels.
    """
    u = np.random.Generator(np.random.Philox(key=[seed, epoch])).random((images, 4), dtype=np.float32)
    flip = np.where(u[:, 0] < config.flip, -1.0, 1.0)
    scale = 1.0 + config.scale * (2 * u[:, 1] - 1)
    shift = config.shift * (2 * u[:, 2:4] - 1)
    return np.column_stack([flip * scale, scale, shift]).astype(np.float32)


def augmented(images: Tensor, parameters: Tensor, constant: Callable[[float], Number] = float) -> Tensor:
    """Flip, shift and scale B x P x P float images with B x 4 parameters; edges are repeated.

    As two batched matrix products, rows, then columns: torch_xla sends ``grid_sample`` back to the CPU.
    """
    height, width = images.shape[-2:]
    across = _interpolation(width, parameters[:, 0], parameters[:, 2], constant((width - 1) / 2))
    down = _interpolation(height, parameters[:, 1], parameters[:, 3], constant((height - 1) / 2))
    return torch.bmm(torch.bmm(down, images), across.transpose(1, 2))


def _interpolation(side: int, scale: Tensor, shift: Tensor, centre: Number) -> Tensor:
    """B x side x side matrices whose row i holds the linear weights of the source of pixel i."""
    grid = torch.arange(side, device=scale.device, dtype=torch.float32)
    source = (grid - centre) * scale[:, None] + centre + shift[:, None] * side
    distance = source.clamp(0, side - 1)[:, :, None] - grid
    return (1 - distance.abs()).clamp(min=0)


def prepared(
    pixels: Tensor, parameters: Tensor | None, mean: float, std: float, platform: Platform
) -> Tensor:
    """The network's input (B x 1 x P x P float32) from pixels of 0 to 255 (B x P x P).

    Augmented with B x 4 ``parameters``, if any, then normalised with ``mean`` and ``std`` of 0 to 1.
    """
    images = pixels.float()
    if parameters is not None:
        images = augmented(images, parameters, platform.constant)
    mean_of_pixels, deviation = platform.constant(mean), platform.constant(std)
    return platform.layout(((images / 255 - mean_of_pixels) / deviation).unsqueeze(1))


class Batches:
    """Gathers, augments and normalises batches of a packed dataset on a platform's device."""

    def __init__(self, packed: Packed, platform: Platform, resident_bytes: float, used: UsedWeights) -> None:
        self._packed, self._platform = packed, platform
        self._mean, self._std = used.mean, used.std
        labels = packed.labels()
        labelled = ~np.isnan(labels)
        self._labels = torch.from_numpy(np.nan_to_num(labels))
        # By the share of all labels, not of a batch's: a known label counts the same in every batch.
        counts = (labelled / labelled.mean()).astype(np.float32)
        self._label_weights = None if labelled.all() else torch.from_numpy(counts)
        self.resident = platform.keeps_input and packed.images.nbytes <= resident_bytes
        if self.resident:
            self._images = platform.to_device(torch.from_numpy(np.array(packed.images)))
        self._augmented = platform.captured(self._images_of)

    def over(self, rows: np.ndarray, size: int, parameters: np.ndarray | None = None) -> Iterator[Batch]:
        """Batches of ``size`` over ``rows`` in order, augmented with ``parameters`` (len(rows) x 4) if given.

        A last batch that is short is filled up by repeating its first row: shapes never change.
        """
        starts = range(0, len(rows), size)

        def host_part(start: int) -> tuple[int, list[Tensor]]:
            valid = rows[start : start + size]
            picked = np.concatenate([valid, np.repeat(valid[:1], size - len(valid))])
            tensors = [torch.from_numpy(picked if self.resident else self._packed.images[picked])]
            if parameters is not None:
                tensors.append(torch.from_numpy(parameters[start : start + size]))
            tensors.append(self._labels[picked])
            if self._label_weights is not None:
                tensors.append(self._label_weights[picked])
            return len(valid), tensors if self.resident else self._platform.sent_ahead(tensors)

        parts = map(host_part, starts) if self.resident else ahead(host_part, starts, threads=1, most=5)
        for valid, tensors in parts:
            moved = iter([self._platform.to_device(tensor) for tensor in tensors])
            if parameters is None:
                images = self._images_of(next(moved))
            else:
                images = self._augmented(next(moved), next(moved))
            yield Batch(images, next(moved), next(moved, None), valid)

    def _images_of(self, moved: Tensor, drawn: Tensor | None = None) -> Tensor:
        """B x 1 x H x W images of rows on the device (or of pixels that came instead), augmented."""
        pixels = self._images.index_select(0, moved) if self.resident else moved
        return prepared(pixels, drawn, self._mean, self._std, self._platform)


# -- one step --------------------------------------------------------------------------------------


class Update:
    """Optimizer steps of ``parts`` micro-batches; a step of a single one is captured as a whole.

    A step is forward, backward, AdamW and averaging, without a host read.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        averaged: Averaged,
        platform: Platform,
        parts: int,
        weights: EmulatedWeights = "fp32",
    ) -> None:
        self._network, self._optimizer, self.averaged = network, optimizer, averaged
        self._platform, self._parts, self._weights = platform, parts, weights
        # One element, not a scalar (platforms/xla.py, 5), and never replaced: a new tensor is a new graph.
        self.loss_sum = platform.to_device(torch.zeros(1))
        self._scales = list(dict.fromkeys(group["lr_scale"] for group in optimizer.param_groups))
        self._trained = platform.parallel(network) if parts == 1 else network
        self._whole = platform.captured(self._one_step, "several micro-batches" if parts > 1 else None)

    def take(self, micro_batches: Iterator[Batch], rate: float, share: float) -> None:
        """Take an optimizer step at a learning rate; its weights count ``share`` in the average."""
        number = self._platform.number
        rates = [number(rate * scale) for scale in self._scales]  # one for each scale, not for each group
        if self._parts == 1:
            batch = next(micro_batches)
            self._whole(batch.images, batch.labels, batch.label_weights, number(share), *rates)
        else:
            self._optimizer.zero_grad(set_to_none=True)
            for batch in islice(micro_batches, self._parts):
                self._add_gradients(batch.images, batch.labels, batch.label_weights)
                self._platform.end_step()  # a graph of one micro-batch, not of all
            self._move(number(share), *rates)
        self._platform.end_step()

    def _one_step(
        self, images: Tensor, labels: Tensor, counts: Tensor | None, share: Number, *rates: Number
    ) -> None:
        """All of a step on one micro-batch; what changes from step to step comes as arguments."""
        self._optimizer.zero_grad(set_to_none=True)
        self._add_gradients(images, labels, counts)
        self._move(share, *rates)

    def _add_gradients(self, images: Tensor, labels: Tensor, counts: Tensor | None) -> None:
        """Forward and backward of a micro-batch; ``counts`` weighs its labels."""
        with self._platform.arithmetic():
            with self._platform.autocast():
                logits = self._trained(images)
                loss = binary_cross_entropy_with_logits(logits, labels, counts) / self._parts
            loss.backward()
        self.loss_sum += loss.detach()

    def _move(self, share: Number, *rates: Number) -> None:
        """Move the weights at the rate of each scale, and their average."""
        of_scale = dict(zip(self._scales, rates, strict=True))
        for group in self._optimizer.param_groups:
            group["lr"] = of_scale[group["lr_scale"]]
        if self._trained is self._network:
            self._platform.mean([p.grad for p in self._network.parameters() if p.grad is not None])
        self._optimizer.step()
        round_weights(self._network, self._weights)
        self._platform.settle(self._network, self._optimizer)
        self.averaged.update(self._network, share)


@torch.no_grad()
def round_weights(network: nn.Module, kind: EmulatedWeights) -> None:
    """Round fp32 parameters to values that bf16 has; AdamW's moments and BatchNorm's statistics stay fp32.

    Stochastically, a value goes to one of its two neighbours with a probability that makes the mean exact:
    AWS's replacement for fp32 copies (Neuron SDK, "Migration From XLA_USE_BF16/XLA_DOWNCAST_BF16").
    """
    if kind == "fp32":
        return
    for weights in network.parameters():
        if kind == "bf16_nearest":
            weights.copy_(weights.bfloat16())
        else:
            bits = weights.view(torch.int32)  # of which bf16 keeps the upper half
            bits += torch.randint_like(bits, 1 << 16)
            bits &= -(1 << 16)


# -- one epoch, and scoring ------------------------------------------------------------------------


def train_steps(
    update: Update, micro_batches: Iterator[Batch], recipe: Recipe, first: int, last: int, steps: int
) -> Iterator[int]:
    """Take the optimizer steps ``first`` to ``last`` of all ``steps`` of a run; yield how many are done."""
    for step in range(first, last):
        update.take(micro_batches, learning_rate(recipe, step, steps), update.averaged.weight(step))
        yield step + 1


class Scoring:
    """Logits of a network with given weights, by a forward that is captured as a whole."""

    def __init__(self, network: nn.Module, platform: Platform) -> None:
        self._network, self._platform = network, platform
        self._captured = platform.captured(self._forward)

    @torch.no_grad()
    def logits(self, weights: dict[str, Tensor], batches: Iterable[Batch]) -> list[np.ndarray]:
        """The logits (images x F float32) of each batch; ``weights`` stand for the network's own."""
        self._network.eval()
        self._weights, parts = weights, []
        for batch in batches:
            # A copy: what captured work gives holds until its next call.
            parts.append((self._captured(batch.images).clone(), batch.valid))
            self._platform.end_step()
        return [logits.cpu().numpy()[:valid] for logits, valid in parts]

    def _forward(self, images: Tensor) -> Tensor:
        with self._platform.arithmetic(), self._platform.autocast():
            # Called with these weights, not filled with them (platforms/xla.py, 8).
            logits: Tensor = functional_call(self._network, self._weights, (images,))
        return logits.float()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Probabilities (float32)."""
    return (1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
