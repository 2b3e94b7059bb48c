"""Many graphs, dumped and compiled one after the other; what is done is kept. Imports no torch."""

import shutil
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

from pydantic import Field

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, explained, sha256_file, write_text
from cxrbench.datasets.packed import Say
from cxrbench.evidence.compiled import (
    FOLDER,
    OPERATOR_LIST,
    PARTS,
    CompileRecord,
    ForeignGraph,
    GraphPart,
    Target,
    TracedGraph,
    graph_name,
    keep_compiled,
    outcome_path,
)
from cxrbench.evidence.record import RecordPart, commit_of_code, now, read_model, this_machine
from cxrbench.evidence.sums import updated_sums
from cxrbench.neuron.audit import Wanted, traced, versions
from cxrbench.neuron.compiler import (
    COMPILE_LOG,
    CompilerLimits,
    NeuronCompiler,
    NotEvidence,
    outcome_of,
    run_compiler,
)
from cxrbench.neuron.control_graphs import ALWAYS
from cxrbench.neuron.module import read_module
from cxrbench.neuron.operators import names_in, unlisted
from cxrbench.neuron.rules import Setting
from cxrbench.platforms.neuron_settings import graph_flags
from cxrbench.study.config import CompileOptions

_GRAPH_MANIFEST = "manifest.json"
_KILLED = "the process that traced it was killed, most likely for lack of memory; run this again"
_AnyGraph = TracedGraph | ForeignGraph
_Accepted = tuple[tuple[str, ...], frozenset[str]]  # what the compiler lists; what its controls have
_CONTROL_HOURS = 2.0  # at least: a limit for other graphs must not end a control
_TOGETHER = 10  # training steps that are traced before their graphs are compiled: less than half a minute
DIFFERENCES = tomllib.loads(Path(__file__).with_name("differences.toml").read_text(encoding="utf-8"))


class Manifest(RecordPart):
    """The graphs in a folder by file name, and how they differ from those of a Neuron device."""

    graphs: dict[str, TracedGraph] = Field(default_factory=dict)
    differences: tuple[dict[str, str], ...] = tuple(DIFFERENCES["difference"])


def dump_steps(steps: Iterable[Wanted], folder: Path, say: Callable[[str], None]) -> dict[str, TracedGraph]:
    """Write the graphs of each training step into ``folder``; return them by file name, in order.

    Those that its manifest names, made with these versions and unchanged, are kept. A network that cannot be
    traced is a message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = read_model(path, Manifest) if (path := folder / _GRAPH_MANIFEST).exists() else Manifest()
    wanted, listed, libraries = list(dict.fromkeys(steps)), manifest.graphs, versions()
    kept = {
        file: graph
        for step in wanted
        for file in _files(step)
        if (graph := listed.get(file)) and graph.versions == libraries
        if (folder / file).is_file() and sha256_file(folder / file) == graph.sha256
    }
    missing = [step for step in wanted if not kept.keys() >= {*_files(step)}]
    trace = partial(_trace, folder=folder, versions=libraries)
    for (name, setting), dumped in traced(trace, missing, min(cores(), len(missing))):
        if isinstance(dumped, dict):
            listed, kept = listed | dumped, kept | dumped
            write_text(folder / _GRAPH_MANIFEST, Manifest(graphs=listed).model_dump_json(indent=1) + "\n")
            say(f"traced {name} at {setting.pixels} px, batch {setting.batch}, {setting.precision}")
        else:
            say(f"{name}: {dumped or _KILLED}")
    return {file: kept[file] for step in wanted for file in _files(step) if file in kept}


def _files(step: Wanted) -> list[str]:
    """The names of the files of a training step's graphs."""
    name, setting = step
    return [f"{graph_name(name, **vars(setting), part=part)}.hlo.pb" for part in PARTS]


def _trace(
    name: str, setting: Setting, folder: Path, versions: dict[str, str]
) -> dict[str, TracedGraph] | str:
    """The graphs of a training step, written into ``folder``, or why there are none."""
    from cxrbench.neuron.capture import NotCaptured, dump_network

    try:
        return dump_network(name, setting, folder, versions)
    except NotCaptured as error:
        return str(error)


@dataclass(frozen=True)
class Campaign:
    """How graphs are compiled one at a time: with what, within which limits, and where outcomes are kept.

    ``recorded``: the folder of recorded evidence into which each outcome is copied too; None: into none.
    """

    compiler: NeuronCompiler
    target: Target
    limits: CompilerLimits
    graphs: Path
    out: Path
    options: CompileOptions = field(default_factory=CompileOptions)
    recorded: Path | None = None
    replace: bool = False  # what is recorded already
    controls: Sequence[Wanted] = ()  # besides those that are always compiled first

    def run(self, steps: Sequence[Wanted], parts: Collection[GraphPart], say: Say) -> Iterator[CompileRecord]:
        """Trace and compile these parts of training steps in order, after the controls; yield the outcomes.

        Outcomes that are kept already are not made again. A machine fault and a fault of the trace are
        messages, and the rest goes on. UserError where a control fails: then nothing is an outcome.
        """
        accepted = self._proven(say)
        for start in range(0, len(steps), _TOGETHER):
            for file, graph in dump_steps(steps[start : start + _TOGETHER], self.graphs, say).items():
                if graph.part in parts:
                    yield from self._judged(self.graphs / file, graph, accepted, say)

    def run_files(self, folder: Path, say: Say) -> Iterator[CompileRecord]:
        """Compile the HloModuleProtos below ``folder``, after the controls; yield the outcomes."""
        files = sorted(path for path in folder.rglob("*.pb") if path.is_file())
        if not files:
            raise UserError(f"{folder}: there is no graph (*.pb, an HloModuleProto) below it; name another")
        accepted = self._proven(say)
        for path in files:
            try:
                content = read_module(path.read_bytes())
            except ValueError as error:
                say(f"{path}: {error}; left out")
                continue
            name, size = str(path.relative_to(folder)), content.instructions
            graph = ForeignGraph(file=name, sha256=sha256_file(path), instructions=size)
            yield from self._judged(path, graph, accepted, say)

    def _proven(self, say: Say) -> _Accepted:
        """Compile the controls; return the operators that the compiler lists, and what the controls have.

        One that failed is compiled again: its installation may have been mended since.
        """
        patient = replace(self, limits=replace(self.limits, hours=max(_CONTROL_HOURS, self.limits.hours)))
        answer, proven, outcomes = self.compiler.operators(), frozenset[str](), []
        write_text(self.out / self.compiler.version / OPERATOR_LIST, answer)
        controls = (*ALWAYS, *self.controls)
        dumped = dump_steps(controls, self.graphs, say)
        for step in controls:
            file = _files(step)[0]
            if (graph := dumped.get(file)) is None:
                raise UserError(
                    f"the control {step[0]} could not be traced, and without it "
                    "nothing is recorded; run `make setup`, which installs what traces graphs"
                )
            record, place = patient._outcome(self.graphs / file, graph, say, again=True)
            if record.status != "ok":
                raise UserError(
                    f"the control {graph.name} fails ({outcome_in_words(record)}): this compiler or its "
                    f"installation does not work here, so nothing is recorded of any other graph; see {place}"
                )
            outcomes.append((record, place.with_suffix(".log")))
            contents = read_module((self.graphs / file).read_bytes())
            proven |= contents.opcodes | contents.targets
        self._keep(outcomes, say)
        if (
            self.recorded
            and not (kept := self.recorded / FOLDER / self.compiler.version / OPERATOR_LIST).exists()
        ):
            with updated_sums(self.recorded):
                write_text(kept, answer)
        return tuple(names_in(answer)), proven

    def _judged(self, path: Path, graph: _AnyGraph, accepted: _Accepted, say: Say) -> Iterator[CompileRecord]:
        """Yield the outcome of a graph if it is one; else say why not."""
        try:
            record, place = self._outcome(path, graph, say)
        except NotEvidence as error:
            say(f"not recorded: {error}")
            return
        suspects = [] if record.status == "ok" else unlisted(read_module(path.read_bytes()), *accepted)
        if suspects:
            say(
                f"{graph.name}: a fault of the trace and no outcome: the graph has {', '.join(suspects)}, "
                f"which neuronx-cc {record.compiler} does not list; a device may never send it"
            )
            return
        self._keep([(record, place.with_suffix(".log"))], say)
        yield record

    def _keep(self, outcomes: list[tuple[CompileRecord, Path]], say: Say) -> None:
        """Record outcomes, if they are to be."""
        if self.recorded:
            for path in keep_compiled(outcomes, self.recorded, self.replace):
                say(f"recorded {path}")

    def _outcome(
        self, path: Path, graph: _AnyGraph, say: Say, again: bool = False
    ) -> tuple[CompileRecord, Path]:
        """The outcome of compiling a graph, and where it is kept; ``again``: not a failure."""
        name = outcome_path(self.compiler.version, graph.sha256, self.target, self.options)
        place, record = self._kept(name)
        if record is None or (again and record.status != "ok"):
            record = self._compiled(path, graph, place)
            say(f"{graph.name}: {outcome_in_words(record)}")
        return record, place

    def _kept(self, name: Path) -> tuple[Path, CompileRecord | None]:
        """The path of an outcome, and the outcome itself or None if it has yet to be made."""
        recorded = [self.recorded / FOLDER / name] if self.recorded and not self.replace else []
        for place in (self.out / name, *recorded):
            if place.exists() and not self._reaches_further(record := read_model(place, CompileRecord)):
                return place, record
        return self.out / name, None

    def _reaches_further(self, record: CompileRecord) -> bool:
        """Whether ``record`` was stopped at a limit that is larger now."""
        if record.stopped == "hours":
            return self.limits.hours > record.limit_hours
        return record.stopped == "memory" and (self.limits.gib or inf) > (record.limit_gib or inf)

    def _compiled(self, file: Path, graph: _AnyGraph, place: Path) -> CompileRecord:
        """Compile the graph in ``file`` and keep its outcome, with its log, at ``place``.

        Raises NotEvidence where the machine and not the graph decided how it ended.
        """
        started, work = now(), place.with_suffix(".work").absolute()
        flags = graph_flags(self.options, self.compiler.version, self.target)
        name = f"cxrbench-{graph.sha256[:12]}-{time.monotonic_ns()}"
        shutil.rmtree(work, ignore_errors=True)
        try:
            work.mkdir(parents=True, exist_ok=True)
            copy = work / "graph.hlo.pb"
            shutil.copyfile(file, copy)
            if sha256_file(copy) != graph.sha256:
                raise NotEvidence(f"{file}: not the graph that its manifest names; dump it again")
            command = self.compiler.call(copy, self.target, flags, self.limits, name)
            ending = run_compiler(command, work, self.limits, name if self.compiler.container else None)
        except OSError as error:
            raise NotEvidence(explained(error) or f"{graph.name}: the system refused: {error}") from error
        status, failure = outcome_of(ending, self.limits, graph.name)
        head, dirty = commit_of_code()
        record = CompileRecord(
            graph=graph,
            target=self.target,
            compiler=self.compiler.version,
            container=self.compiler.container,
            options=self.options,
            flags=flags,
            status=status,
            stopped=ending.stopped,
            failure=failure,
            seconds=round(ending.seconds, 2),
            peak_memory_mib=ending.peak_mib,
            limit_hours=self.limits.hours,
            limit_gib=self.limits.gib,
            neff=ending.neff if status == "ok" else None,
            host=this_machine(),
            started=started,
            commit=head,
            dirty=dirty,
            log_sha256=sha256_file(work / COMPILE_LOG),
        )
        shutil.move(work / COMPILE_LOG, place.with_suffix(".log"))
        write_text(place, record.model_dump_json(indent=1) + "\n")
        shutil.rmtree(work)
        return record


def outcome_in_words(record: CompileRecord) -> str:
    """The outcome of a compilation in words."""
    if record.failure:
        why = f"{record.failure.kind} ({record.failure.fingerprint})"
        return f"{record.status} after {record.seconds:.0f} s: {why}"
    return f"compiles in {record.seconds:.0f} s"
