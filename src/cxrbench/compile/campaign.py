"""Many graphs, dumped and compiled one after the other; what is done is kept. Imports no torch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import Field

from cxrbench.compile.compiler import LOG, Compiler, Limits, NotEvidence, compile_graph
from cxrbench.compile.rules import Setting
from cxrbench.evidence.compiled import CompileRecord, Target, TracedGraph
from cxrbench.evidence.record import Part, read_model
from cxrbench.platforms.neuron_settings import graph_flags
from cxrbench.study.config import Compiler as CompilerRecipe
from cxrbench.study.cores import cores
from cxrbench.study.files import sha256_file, write_text

MANIFEST = "manifest.json"
DIFFERENCES = (  # between these graphs and those that torch_neuronx traces on a Neuron device
    {
        "what": "GELU, SiLU, softmax and their gradients are custom calls there (AwsNeuronGelu and others), "
        "elementary operations here",
        "source": "Neuron SDK docs, compiler/error-codes/EVRF015 (recognised custom calls)",
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


def dump(
    names: Iterable[str], settings: Sequence[Setting], folder: Path, say: Callable[[str], None]
) -> dict[str, TracedGraph]:
    """Write the graphs of each network in each setting into ``folder``; return them by file name.

    Those that its manifest names, made with these versions and unchanged, are kept. A network that cannot be
    traced is a message.
    """
    from cxrbench.compile.audit import versions

    folder.mkdir(parents=True, exist_ok=True)
    manifest, wanted = read_manifest(folder), [(name, setting) for name in names for setting in settings]
    kept = {
        file: graph
        for file, graph in manifest.graphs.items()
        if graph.versions == versions() and _is(folder / file, graph)
    }
    known = {(graph.network, _setting(graph)) for graph in kept.values()}
    missing = [pair for pair in wanted if pair not in known]
    for (name, setting), found in zip(missing, _traced(missing, folder), strict=True):
        if isinstance(found, str):
            say(f"{name}: {found}")
            continue
        kept |= found
        write_text(folder / MANIFEST, Manifest(graphs=kept).model_dump_json(indent=1) + "\n")
        say(f"traced {name} at {setting.pixels} px, batch {setting.batch}, {setting.precision}")
    return {file: graph for file, graph in kept.items() if (graph.network, _setting(graph)) in wanted}


def _is(file: Path, graph: TracedGraph) -> bool:
    return file.is_file() and sha256_file(file) == graph.sha256


def _setting(graph: TracedGraph) -> Setting:
    return Setting(graph.pixels, graph.batch, graph.precision)


def _traced(missing: list[tuple[str, Setting]], folder: Path) -> Iterator[dict[str, TracedGraph] | str]:
    """Trace each network in a process of its own pool; yield its graphs, or why there are none."""
    if not missing:
        return
    from cxrbench.compile.audit import as_on_neuron

    workers, spawn = min(cores(), len(missing)), get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=as_on_neuron) as pool:
        waiting = [pool.submit(partial(_trace, folder=folder), name, setting) for name, setting in missing]
        for future in waiting:
            try:
                yield future.result()
            except BrokenProcessPool:
                yield "the process that traced it was killed, most likely for lack of memory; run this again"


def _trace(name: str, setting: Setting, folder: Path) -> dict[str, TracedGraph] | str:
    from cxrbench.compile.capture import NotCaptured
    from cxrbench.compile.dump import dump_network

    try:
        return {dumped.file.name: dumped.graph for dumped in dump_network(name, setting, folder)}
    except NotCaptured as error:
        return str(error)


def compile_all(
    graphs: dict[str, TracedGraph],
    folder: Path,
    compiler: Compiler,
    target: Target,
    limits: Limits,
    out: Path,
    say: Callable[[str], None],
) -> list[tuple[CompileRecord, Path]]:
    """Compile the graphs in ``folder`` one at a time into ``out``; return each record with its log.

    What ``out`` has of this compiler, graph and target is kept. The machine's trouble with one graph is a
    message, and the rest goes on.
    """
    done = []
    for file, graph in graphs.items():
        place = out / compiler.version / graph.sha256
        kept = place / f"{target}.json"
        if kept.exists():
            done.append((read_model(kept, CompileRecord), kept.with_suffix(".log")))
            continue
        work, flags = place / f"{target}.work", graph_flags(graph.precision, CompilerRecipe())
        shutil.rmtree(work, ignore_errors=True)
        try:
            record, _ = compile_graph(graph, folder / file, compiler, target, flags, limits, work)
        except NotEvidence as error:
            say(f"not recorded: {error}")
            continue
        shutil.move(work / LOG, kept.with_suffix(".log"))
        write_text(kept, record.model_dump_json(indent=1) + "\n")
        shutil.rmtree(work)
        done.append((record, kept.with_suffix(".log")))
        say(f"{graph.name}: {in_words(record)}")
    return done


def in_words(record: CompileRecord) -> str:
    """Return the outcome of a compilation in words."""
    if record.failure:
        why = f"{record.failure.kind} ({record.failure.fingerprint})"
        return f"{record.status} after {record.seconds:.0f} s: {why}"
    return f"compiles in {record.seconds:.0f} s"


def rows(records: Iterable[CompileRecord]) -> list[dict[str, Any]]:
    """Return a row per record for tables: the graph, the compiler and the outcome."""
    return [
        {
            **record.graph.model_dump(include={"network", "pixels", "batch", "precision", "part"}),
            "target": record.target,
            "compiler": record.compiler,
            "status": record.status,
            "code": record.failure.fingerprint if record.failure else "",
            "seconds": record.seconds,
            "peak_memory_mib": record.peak_memory_mib,
            "neff_mib": round(record.neff.bytes / 2**20, 2) if record.neff else None,
            "graph_sha256": record.graph.sha256,
        }
        for record in records
    ]
