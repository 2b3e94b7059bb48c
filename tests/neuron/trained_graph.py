"""Print the counts of the graph that training sends to the device in its second step, then of the audit's.

Run in a process of its own: functionalization is chosen before torch_xla is imported.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from cxrbench.datasets.packed import read_packed
from cxrbench.neuron.capture import _graph, _results, build, capture
from cxrbench.neuron.rules import Setting
from cxrbench.platforms.xla import XlaPlatform
from cxrbench.study.config import Recipe
from cxrbench.training.steps import Steps


class Watched(XlaPlatform):
    """Streams its input as platform neuron does, and keeps the graph of every step of ``steps``."""

    keeps_input = False
    steps: Any = None

    def end_step(self) -> None:
        if trainer := self.steps:
            live = _results(trainer.network, trainer.optimizer, trainer.averaged, trainer.update.loss_sum)
            self.graph = _graph(live)
        super().end_step()


folder, architecture, precision = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
packed = read_packed(folder)
platform = Watched(torch.get_num_threads(), precision)
recipe = Recipe(epochs=1, batch=4, precision=precision)
platform.steps = Steps(architecture, platform, recipe, packed)
platform.steps.take(platform.steps.all_batches(), 2)
setting = Setting(packed.manifest["pixels"], 4, precision)
audited = capture(build(architecture, setting.pixels), setting, platform)["step"]
trained = platform.graph
counts = {"instructions": len(trained.instructions), "convolutions": len(trained.convolutions)}
counts |= {"dots": trained.counts["dot"], "transposes": trained.counts["transpose"]}
counts |= {"tiles": sum(product.tiles for product in trained.products)}
print(json.dumps([counts, {name: getattr(audited, name) for name in counts}]))
