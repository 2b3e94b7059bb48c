"""Trainium 1 through torch_xla: what trn1 needs beyond platforms/xla.py.

Never run on the hardware yet (docs/neuron.md). Sources: Neuron SDK, pytorch-neuron-programming-guide.rst
(device, `xla` backend under torchrun, gradients) and torch-neuron-envvars.rst.
"""

import os
from typing import Any

from torch import Tensor, distributed

from cxrbench.platforms.neuron_tools import Monitored

os.environ["PJRT_DEVICE"] = "NEURON"  # before torch_xla is imported: platforms/xla.py would choose its CPU

import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend  # noqa: F401  (registers the backend)

from cxrbench.platforms.xla import XlaPlatform

_BUCKET_MB = 50  # gradients per message: the default of Neuron's own optimizer step


class NeuronPlatform(Monitored, XlaPlatform):
    """One process per NeuronCore. ``platforms.load`` sets the environment of neuron_settings first."""

    name = "neuron"
    backend = "xla"
    hardware = "NEURON"
    # One per NeuronCore of trn1; others: "Unsupported topology" (optimum-neuron #619). 4 and 64 are the
    # logical cores of trn2.3xlarge and trn2.48xlarge, which the same release runs (n2-manifest.json, 2.31).
    processes = (1, 2, 4, 8, 16, 32, 64)
    steps_between_votes = 10
    keeps_input = False  # the gather would be in every graph, and its failure look like the network's

    def __init__(self, threads: int, precision: str) -> None:
        super().__init__(threads, precision)
        self.kind = f"Trainium NeuronCore ({xm.xla_device_kind()})"
        # Values of the host travel through gloo: as tensors on the device each size would be a new graph.
        self._host = distributed.new_group(backend="gloo") if self.size > 1 else None

    def mean(self, tensors: list[Tensor]) -> None:
        if self.size > 1 and tensors:
            # From the last layer on, as torch_xla's own reduce_gradients does: backward ends with the first.
            xm.all_reduce_bucketized_gradients(tensors[::-1], 1 / self.size, None, True, _BUCKET_MB)

    def gather(self, value: Any) -> list[Any]:
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value, group=self._host)
        return values
