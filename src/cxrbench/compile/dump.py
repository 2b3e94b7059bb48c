"""The parts of a training step as HloModuleProto files, which ``neuronx-cc compile --framework XLA`` takes.

They are traced by torch_xla on the CPU, as for the audit; :data:`cxrbench.compile.campaign.DIFFERENCES`
lists how the graphs that torch_neuronx would trace differ.
"""

import hashlib
from pathlib import Path

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


def dump_network(architecture: str, setting: Setting, folder: Path) -> dict[str, TracedGraph]:
    """Write the step's parts of a timm network into ``folder``; return them by file name.

    Raises NotCaptured for a network that cannot be traced at this size, or whose graph is too large.
    """
    platform = platforms.load("xla_cpu", torch.get_num_threads(), setting.precision)
    dumped: dict[str, TracedGraph] = {}

    def keep(part: GraphPart, tensors: list[torch.Tensor]) -> None:
        try:
            content: bytes = torch_xla._XLAC._get_xla_tensors_hlo_proto(tensors)
        except RuntimeError as error:
            raise NotCaptured(f"its {part} graph cannot be written: {error}") from error
        if len(content) > LARGEST:
            raise NotCaptured(f"its {part} graph has {len(content):,} bytes, above protobuf's {LARGEST:,}")
        read_back = get_computation_hlo(computation_from_module_proto("graph", content))
        graph = TracedGraph(
            network=architecture,
            **vars(setting),
            part=part,
            sha256=hashlib.sha256(content).hexdigest(),
            instructions=len(Graph.parse(read_back).instructions),
            versions=versions(),
        )
        file = folder / f"{graph.name}.hlo.pb"
        with written_aside(file) as aside:
            aside.write_bytes(content)
        dumped[file.name] = graph

    capture(build(architecture, setting.pixels), setting, platform, keep=keep)
    return dumped
