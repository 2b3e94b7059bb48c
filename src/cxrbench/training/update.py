"""The device's part of a training step: forward, backward, AdamW and averaging, without a host read."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cxrbench.platforms.base import Platform
from cxrbench.study.recipe import EmulatedWeights
from cxrbench.training.batches import Batch
from cxrbench.training.network import Averaged

Number = float | torch.Tensor  # as Platform.number gives it


class Update:
    """Optimizer steps of ``parts`` micro-batches; a step of a single one is captured as a whole."""

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        averaged: Averaged,
        platform: Platform,
        parts: int,
        weights: EmulatedWeights = "fp32",
    ) -> None:
        self._network, self._optimizer, self._averaged = network, optimizer, averaged
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
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor | None,
        share: Number,
        *rates: Number,
    ) -> None:
        """All of a step on one micro-batch; what changes from step to step comes as arguments."""
        self._optimizer.zero_grad(set_to_none=True)
        self._add_gradients(images, labels, counts)
        self._move(share, *rates)

    def _add_gradients(self, images: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor | None) -> None:
        """Forward and backward of a micro-batch; ``counts`` weighs its labels."""
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
        self._averaged.update(self._network, share)


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
