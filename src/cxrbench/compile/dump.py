"""The parts of a training step as HloModuleProto files, which ``neuronx-cc compile --framework XLA`` takes.

They are the graphs that are audited, traced by torch_xla on the CPU; what torch_neuronx would trace differs
in what :data:`DIFFERENCES` lists.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import torch
import torch_xla
from torch_xla.core.xla_builder import computation_from_module_proto, get_computation_hlo

from cxrbench import platforms
from cxrbench.compile.audit import versions
from cxrbench.compile.capture import NotCaptured, build, capture
from cxrbench.compile.hlo import Graph
from cxrbench.compile.rules import Setting
from cxrbench.evidence.compiled import GraphPart, TracedGraph
from cxrbench.study.files import written_aside

LARGEST = 2**31 - 1  # bytes of a protobuf message


class Dumped(NamedTuple):
    """A graph and its file."""

    graph: TracedGraph
    file: Path


def dump_network(architecture: str, setting: Setting, folder: Path) -> list[Dumped]:
    """Write the step's parts of a timm network into ``folder``; return them.

    Raises NotCaptured for a network that cannot be traced at this size, or whose graph is too large.
    """
    platform = platforms.load("xla_cpu", torch.get_num_threads(), setting.precision)
    dumped: list[Dumped] = []

    def keep(part: GraphPart, tensors: list[torch.Tensor]) -> None:
        try:
            content: bytes = torch_xla._XLAC._get_xla_tensors_hlo_proto(tensors)
        except RuntimeError as error:
            raise NotCaptured(f"its {part} graph cannot be written: {error}") from error
        if len(content) > LARGEST:
            raise NotCaptured(f"its {part} graph has {len(content):,} bytes, above protobuf's {LARGEST:,}")
        graph = TracedGraph(
            network=architecture,
            **vars(setting),
            part=part,
            sha256=hashlib.sha256(content).hexdigest(),
            instructions=instructions_in(content),
            versions=versions(),
        )
        file = folder / f"{graph.name}.hlo.pb"
        with written_aside(file) as aside:
            aside.write_bytes(content)
        dumped.append(Dumped(graph, file))

    capture(build(architecture, setting.pixels), setting, platform, keep=keep)
    return dumped


def instructions_in(content: bytes) -> int:
    """Return the instructions of the entry computation of a serialised HloModuleProto, read back by XLA."""
    text = get_computation_hlo(computation_from_module_proto("graph", content))
    return len(Graph.parse(text).instructions)
