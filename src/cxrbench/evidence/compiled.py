"""Compile evidence: what Neuron's compiler did with a dumped graph on some machine. Never a cell's status.

Recorded below ``data/recorded/compile/<compiler version>/<graph sha256>/``, a record and a log per target
and set of options.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from cxrbench.common.errors import UserError
from cxrbench.common.files import remedy, sha256_file, sha256_json, write_text, written_aside
from cxrbench.evidence.record import Failure, RecordPart, read_model
from cxrbench.evidence.sums import updated_sums
from cxrbench.study.config import CompileOptions

FOLDER = Path("compile")
OPERATOR_LIST = "operators.txt"  # beside the outcomes of a version: what its list-operators printed
GraphPart = Literal["forward", "backward", "step"]  # backward: forward, loss and its gradients
PARTS: tuple[GraphPart, ...] = ("step", "backward", "forward")  # a step's parts say where it fails
Outcome = Literal["ok", "compile_failed", "out_of_memory", "timed_out", "crashed"]
Limit = Literal["hours", "memory"]  # of ours
Target = Literal["trn1", "trn2"]
COMPILATION_CAVEAT = (
    "not shown by a compilation: that the graph loads, fits into the device's memory, how fast it runs, and "
    "what it computes; a graph that was traced on a CPU is not the one that a device is sent"
)


def graph_name(network: str, pixels: int, batch: int, precision: str, part: GraphPart) -> str:
    """A name for files: network, setting and part."""
    return f"{network}-{pixels}px-batch{batch}-{precision}-{part}"


def outcome_path(compiler: str, graph: str, target: Target, options: CompileOptions) -> Path:
    """An outcome's path below a folder of outcomes; ``graph`` is its sha256."""
    suffix = "" if options == CompileOptions() else f"-{sha256_json(options.model_dump())[:8]}"
    return Path(compiler, graph, f"{target}{suffix}.json")


class TracedGraph(RecordPart):
    """A graph of a network's training step, as torch_xla on the CPU hands it to a compiler."""

    network: str
    pixels: int
    batch: int
    precision: Literal["fp32", "bf16"]
    part: GraphPart
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the HloModuleProto's bytes")
    instructions: int = Field(description="of its entry computation")
    versions: dict[str, str] = Field(description="of torch, torch_xla and timm")

    @property
    def name(self) -> str:
        return graph_name(self.network, self.pixels, self.batch, self.precision, self.part)


class ForeignGraph(RecordPart):
    """A graph that was found in a file: what a device was sent, or anybody's."""

    file: str = Field(description="its path below the folder that was named")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the HloModuleProto's bytes")
    instructions: int = Field(description="of its entry computation")

    @property
    def name(self) -> str:
        return self.file


class Neff(RecordPart):
    """The compiled program; it is not kept."""

    bytes: int
    sha256: str


class CompileRecord(RecordPart):
    """One call of neuronx-cc for one graph."""

    schema_version: Literal[1] = 1
    graph: TracedGraph | ForeignGraph
    target: Target
    compiler: str = Field(description="version that neuronx-cc reports", pattern=r"^[\w.+-]+$")
    container: str | None = Field(None, description="image that it ran in; none where it was on PATH")
    options: CompileOptions = Field(CompileOptions(), description="`compiler` of a recipe, and the casting")
    flags: list[str]
    status: Outcome
    stopped: Limit | None = Field(None, description="limit at which it was stopped")
    failure: Failure | None = None
    seconds: float
    peak_memory_mib: float | None = Field(None, description="sampled, of the compiler's whole process family")
    limit_hours: float
    limit_gib: float | None = None
    neff: Neff | None = None
    host: dict[str, str | int | float | None]
    started: str
    commit: str
    dirty: bool
    log_sha256: str

    @property
    def failed(self) -> bool | None:
        """Whether the compiler refused the graph; None where a limit of ours stopped it."""
        return None if self.stopped else self.status != "ok"

    @property
    def where(self) -> Path:
        """The record's path below ``data/recorded``."""
        return FOLDER / outcome_path(self.compiler, self.graph.sha256, self.target, self.options)


def read_compiled(root: Path) -> list[CompileRecord]:
    """All compile evidence below ``root`` in the order of its paths; UserError naming a bad file."""
    records = []
    for path in sorted((root / FOLDER).glob("*/*/*.json")):
        record = read_model(path, CompileRecord)
        for problem in _problems(root, path, record):
            raise UserError(f"{path}: {problem}; {remedy(path)}")
        records.append(record)
    return records


def compile_problems(root: Path) -> Iterator[str]:
    """Yield what is wrong with the compile evidence below ``root``, each with its file."""
    for path in sorted((root / FOLDER).rglob("*")):
        if path.is_dir():
            continue
        if path.name == OPERATOR_LIST and len(path.relative_to(root).parts) == 3:
            continue
        if path.suffix not in (".json", ".log") or len(path.relative_to(root).parts) != 4:
            yield f"{path}: is no file of compile evidence; remove it"
        elif path.suffix == ".log" and not path.with_suffix(".json").exists():
            yield f"{path}: its record is missing; restore or remove both"
        elif path.suffix == ".json":
            try:
                record = read_model(path, CompileRecord)
            except UserError as error:
                yield str(error)
            else:
                yield from (f"{path}: {fault}; {remedy(path)}" for fault in _problems(root, path, record))


def _problems(root: Path, path: Path, record: CompileRecord) -> Iterator[str]:
    """Yield what contradicts the record in its own folder."""
    log = path.with_suffix(".log")
    if path != root / record.where:
        yield f"its record belongs into {root / record.where}"
    if not log.is_file() or sha256_file(log) != record.log_sha256:
        yield f"its log {log.name} is missing or another one than was recorded"
    compiled = record.status == "ok"
    if compiled != (record.neff is not None) or compiled == (record.failure is not None):
        yield f"status '{record.status}' does not fit its NEFF and its failure"


def keep_compiled(records: Iterable[tuple[CompileRecord, Path]], root: Path, replace: bool) -> list[Path]:
    """Copy records, each with its log, below ``root``, and update SHA256SUMS; return the paths written.

    Raises UserError, before anything is written, where another compilation is recorded that no limit stopped,
    unless ``replace``.
    """
    new = []
    for record, log in records:
        path = root / record.where
        kept = read_model(path, CompileRecord) if path.exists() else None
        if kept and kept != record and not kept.stopped and not replace:
            raise UserError(
                f"{path} is of another compilation; add --replace to record this one in its place"
            )
        if kept != record:
            new.append((path, record, log))
    if not new:
        return []
    with updated_sums(root):
        for path, record, log in new:
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_aside(path.with_suffix(".log")) as aside:
                aside.write_bytes(log.read_bytes())
            write_text(path, record.model_dump_json(indent=1) + "\n")
    return [path for path, _, _ in new]
