"""Many graphs, dumped and compiled one after the other; what is done is kept. Imports no torch."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from math import inf
from multiprocessing import get_context
from pathlib import Path

from pydantic import Field

from cxrbench.compile.compiler import Compiler, Limits, NotEvidence, compile_graph
from cxrbench.compile.rules import Setting
from cxrbench.evidence.compiled import (
    FOLDER,
    PARTS,
    CompileRecord,
    GraphPart,
    Target,
    TracedGraph,
    graph_name,
    keep_compiled,
    outcome_path,
)
from cxrbench.evidence.record import Part, read_model
from cxrbench.study.config import Compiler as Options
from cxrbench.study.cores import cores
from cxrbench.study.files import sha256_file, write_text

MANIFEST = "manifest.json"
_KILLED = "the process that traced it was killed, most likely for lack of memory; run this again"
TOGETHER = 10  # training steps that are traced before their graphs are compiled: less than half a minute
# Between these graphs and those that torch_neuronx traces on a Neuron device; facts that could differ are
# listed where they do not.
DIFFERENCES = (
    {
        "what": "GELU, SiLU, softmax and their gradients are custom calls there (AwsNeuronGelu and others), "
        "elementary operations here",
        "source": "Neuron SDK docs, compiler/error-codes/EVRF015 (recognised custom calls)",
    },
    {
        "what": "the input is streamed from the host, same as on the device: no graph gathers it",
        "source": "cxrbench.platforms.neuron.NeuronPlatform.keeps_input",
    },
    {
        "what": "functionalization is off, same as on the device",
        "source": "Neuron SDK docs, torch-neuron-envvars (XLA_DISABLE_FUNCTIONALIZATION)",
    },
    {
        "what": "one process, so that no gradients are averaged; where a recipe has micro-batches, each of "
        "them is a graph there",
        "source": "cxrbench.training.loop.Trainer.step",
    },
    {
        "what": "where it compiles a graph itself, torch_xla lets results take the memory of parameters "
        "(aliased buffers), and makes one tuple of 3,200 parameters or more",
        "source": "pytorch/xla, torch_xla/csrc/xla_graph_executor.cpp: BuildInputOutputAliases, Compile",
    },
)


class Manifest(Part):
    """The graphs in a folder by file name, and how they differ from those of a Neuron device."""

    graphs: dict[str, TracedGraph] = Field(default_factory=dict)
    differences: tuple[dict[str, str], ...] = DIFFERENCES


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder of graphs; an empty one where there is none."""
    path = folder / MANIFEST
    return read_model(path, Manifest) if path.exists() else Manifest()


def dump_steps(
    steps: Iterable[tuple[str, Setting]], folder: Path, say: Callable[[str], None]
) -> dict[str, TracedGraph]:
    """Write the graphs of each training step into ``folder``; return them by file name, in order.

    Those that its manifest names, made with these versions and unchanged, are kept. A network that cannot be
    traced is a message.
    """
    from cxrbench.compile.audit import versions

    folder.mkdir(parents=True, exist_ok=True)
    wanted, known, libraries = list(dict.fromkeys(steps)), read_manifest(folder).graphs, versions()
    kept = {file: known[file] for step in wanted for file in _files(step) if file in known}
    kept = {
        file: graph
        for file, graph in kept.items()
        if graph.versions == libraries and _is(folder / file, graph)
    }
    missing = [step for step in wanted if not kept.keys() >= {*_files(step)}]
    for (name, setting), found in zip(missing, _traced(missing, folder), strict=True):
        if isinstance(found, str):
            say(f"{name}: {found}")
            continue
        known, kept = known | found, kept | found
        write_text(folder / MANIFEST, Manifest(graphs=known).model_dump_json(indent=1) + "\n")
        say(f"traced {name} at {setting.pixels} px, batch {setting.batch}, {setting.precision}")
    return {file: kept[file] for step in wanted for file in _files(step) if file in kept}


def _files(step: tuple[str, Setting]) -> list[str]:
    """Return the names of the files of a training step's graphs."""
    name, setting = step
    return [f"{graph_name(name, **vars(setting), part=part)}.hlo.pb" for part in PARTS]


def _is(file: Path, graph: TracedGraph) -> bool:
    return file.is_file() and sha256_file(file) == graph.sha256


def _traced(missing: list[tuple[str, Setting]], folder: Path) -> Iterator[dict[str, TracedGraph] | str]:
    """Trace the networks in a pool of processes; yield each one's graphs, or why it has none."""
    if not missing:
        return
    from cxrbench.compile.audit import as_on_neuron

    pool_of = partial(ProcessPoolExecutor, mp_context=get_context("spawn"), initializer=as_on_neuron)
    with pool_of(min(cores(), len(missing))) as pool:
        waiting = [pool.submit(_trace, *step, folder) for step in missing]
        for future, step in zip(waiting, missing, strict=True):
            if isinstance(future.exception(), BrokenProcessPool):  # whichever network broke it
                with pool_of(1) as own:
                    future = own.submit(_trace, *step, folder)
            killed = isinstance(future.exception(), BrokenProcessPool)
            yield _KILLED if killed else future.result()


def _trace(name: str, setting: Setting, folder: Path) -> dict[str, TracedGraph] | str:
    from cxrbench.compile.capture import NotCaptured
    from cxrbench.compile.dump import dump_network

    try:
        return dump_network(name, setting, folder)
    except NotCaptured as error:
        return str(error)


@dataclass(frozen=True)
class Campaign:
    """How graphs are compiled one at a time: with what, within which limits, and where outcomes are kept.

    ``recorded``: the folder of recorded evidence into which each outcome is copied too; None: into none.
    """

    compiler: Compiler
    target: Target
    limits: Limits
    graphs: Path
    out: Path
    options: Options = field(default_factory=Options)
    recorded: Path | None = None
    replace: bool = False  # what is recorded already

    def run(
        self, steps: Sequence[tuple[str, Setting]], parts: Collection[GraphPart], say: Callable[[str], None]
    ) -> Iterator[CompileRecord]:
        """Trace and compile these parts of training steps in order; yield the outcomes.

        Outcomes that are kept already are not made again. A machine fault is a message, and the rest goes on.
        """
        for start in range(0, len(steps), TOGETHER):
            for file, graph in dump_steps(steps[start : start + TOGETHER], self.graphs, say).items():
                if graph.part in parts:
                    try:
                        yield self._outcome(file, graph, say)
                    except NotEvidence as error:
                        say(f"not recorded: {error}")

    def _outcome(self, file: str, graph: TracedGraph, say: Callable[[str], None]) -> CompileRecord:
        name = outcome_path(self.compiler.version, graph.sha256, self.target, self.options)
        place, record = self._kept(name)
        if record is None:
            record = self._compiled(file, graph, place)
            say(f"{graph.name}: {in_words(record)}")
        if self.recorded:
            for path in keep_compiled([(record, place.with_suffix(".log"))], self.recorded, self.replace):
                say(f"recorded {path}")
        return record

    def _kept(self, name: Path) -> tuple[Path, CompileRecord | None]:
        """Return the path of an outcome, and the outcome itself or None if it has yet to be made."""
        recorded = [self.recorded / FOLDER / name] if self.recorded and not self.replace else []
        for place in (self.out / name, *recorded):
            if place.exists() and not self._reaches_further(record := read_model(place, CompileRecord)):
                return place, record
        return self.out / name, None

    def _reaches_further(self, record: CompileRecord) -> bool:
        """Return whether ``record`` was stopped at a limit that is larger now."""
        if record.stopped == "hours":
            return self.limits.hours > record.limit_hours
        return record.stopped == "memory" and (self.limits.gib or inf) > (record.limit_gib or inf)

    def _compiled(self, file: str, graph: TracedGraph, place: Path) -> CompileRecord:
        """Compile a graph and keep its outcome, with its log, at ``place``."""
        work = place.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        called = self.compiler, self.target, self.options, self.limits
        record, log = compile_graph(graph, self.graphs / file, *called, work)
        shutil.move(log, place.with_suffix(".log"))
        write_text(place, record.model_dump_json(indent=1) + "\n")
        shutil.rmtree(work)
        return record


def in_words(record: CompileRecord) -> str:
    """Return the outcome of a compilation in words."""
    if record.failure:
        why = f"{record.failure.kind} ({record.failure.fingerprint})"
        return f"{record.status} after {record.seconds:.0f} s: {why}"
    return f"compiles in {record.seconds:.0f} s"
