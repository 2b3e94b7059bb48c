"""The run record of a cell: its fields, its reading, and the machine and the code that it names."""

import json
import os
import platform as python_platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from signal import Signals
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, git, remedy
from cxrbench.study.platforms import ACCELERATED, ENTRIES

SCHEMA_VERSION = 1
RECORD, PREDICTIONS, LOG = "record.json", "predictions.parquet", "train.log"
LAST = "predictions_last.parquet"  # of the test part, by the weights after the last step, without averaging
BUSY = 0.10  # share of the cores that other processes may use before speed and cost are marked

Status = Literal["ok", "compile_failed", "load_failed", "out_of_memory", "timed_out", "diverged", "crashed"]
FAILED = tuple(status for status in get_args(Status) if status != "ok")
Phase = Literal["setup", "compile", "train", "evaluate", "done"]

_DMI = Path("/sys/devices/virtual/dmi/id")


class NormStatistics(StrEnum):
    """Which images BatchNorm's batch statistics are computed over (``platform["batchnorm_statistics"]``)."""

    PER_PROCESS = "per process"
    NONE = "no BatchNorm"


Model = TypeVar("Model", bound=BaseModel)


class RecordPart(BaseModel):
    """A part of a record: unknown keys are refused, so a misspelt one is never silently lost."""

    model_config = ConfigDict(extra="forbid")


class Failure(RecordPart):
    """Why a cell has no predictions."""

    kind: str = Field(description="what was recognised, e.g. 'out of memory (host)'")
    fingerprint: str = Field(description="a code such as NCC_ITEN404, else the normalised first error line")
    returncode: int | None = None
    signal: str | None = None
    last_lines: list[str] = []

    @classmethod
    def of(cls, kind: str, fingerprint: str, returncode: int, log: str) -> Self:
        """The failure of a process that ended so (below 0: by a signal), with the end of its log."""
        killed_by = Signals(-returncode).name if returncode < 0 else None
        code = returncode if returncode >= 0 else None
        lines = [line[:500] for line in log.splitlines()[-20:]]
        return cls(kind=kind, fingerprint=fingerprint, returncode=code, signal=killed_by, last_lines=lines)


class Host(RecordPart):
    """The machine a cell ran on."""

    device: str
    device_count: int = Field(description="devices in the machine")
    devices_used: int
    device_memory_gib: float | None = None
    cpu: str
    cores: int
    cores_used: int
    memory_gib: float
    os: str
    driver: str | None = None
    sdk: str | None = None
    instance: str | None = Field(None, description="EC2 type, when the machine says that it is one")


class EpochStats(RecordPart):
    """One epoch of the history; losses are means over images."""

    epoch: int
    train_loss: float
    val_loss: float
    val_auroc: float | None = Field(
        ge=0, le=1, description="macro AUROC on the validation part, for the curve only"
    )
    train_seconds: float
    eval_seconds: float


class Timing(RecordPart):
    """Wall seconds by phase, summed over all attempts that led to this record."""

    setup_seconds: float = 0.0
    compile_seconds: float = 0.0
    compiles: int = 0
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    images_per_second: float | None = Field(None, description="steady state; none if never reached")
    how: str = ""
    others_share: float | None = Field(
        None,
        description="share of the machine's cores that other processes used during the training epochs; "
        "none where it was not measured",
    )

    @property
    def total_seconds(self) -> float:
        return self.setup_seconds + self.compile_seconds + self.train_seconds + self.evaluate_seconds


class Energy(RecordPart):
    """Joules, or none with the reason: no reading is not zero."""

    joules: float | None = None
    reason: str | None = None


class DatasetIdentity(RecordPart):
    """Which pixels and labels: cells are comparable only when ``packed`` is equal."""

    packed: str = Field(description="sha256 over images.npy and index.parquet")
    manifest: str = Field(description="sha256 of manifest.json")
    settings: dict[str, Any] | None = Field(None, description="of the study's dataset; older records lack it")
    images: dict[str, int] = Field(description="images per split")
    patients: dict[str, int] = Field(description="patients per split")
    positive_images: dict[str, dict[str, int]] = Field(description="per finding and split")


class UsedWeights(RecordPart):
    """The weights that training began with, and how the network's pixels are normalised."""

    source: str = Field(description="scratch, the name of a file, or timm's name of its weights")
    sha256: str | None = Field(description="of the file; none: scratch")
    mean: float = Field(description="subtracted from pixels in 0..1")
    std: float = Field(description="by which they are divided then")


class Record(RecordPart):
    """record.json of a cell (design, section 4). Always written, also when training fails."""

    schema_version: int = SCHEMA_VERSION
    cell: str
    status: Status
    phase: Phase = Field(description="the phase reached")
    failure: Failure | None = None
    commit: str
    dirty: bool = Field(description="whether the work tree differed from that commit")
    started: str
    ended: str
    attempts: int = Field(1, ge=1, description="starts of the trainer, interruptions included")
    host: Host
    versions: dict[str, str | None]
    recipe: dict[str, Any]
    recipe_hash: str
    dataset: DatasetIdentity | None = None
    micro_batch: int | None = None
    parameters: int | None = Field(None, description="of the network")
    weights: UsedWeights | None = Field(None, description="none in records from before there was a choice")
    timing: Timing = Timing()
    peak_memory_mib: float | None = None
    energy: Energy = Energy()
    platform: dict[str, Any] = Field({}, description="what the platform itself reports, e.g. fallbacks")
    history: list[EpochStats] = []
    predictions_sha256: str | None = None
    predictions_last_sha256: str | None = Field(
        None, description="of the last weights; none in older records"
    )
    kept_weights_sha256: str | None = Field(None, description="of the weights that were scored, where kept")
    log_sha256: str | None = None

    @property
    def norm_images(self) -> int:
        """Images behind each BatchNorm statistic; 0 for a network without, or where no network was built."""
        per_process = self.platform.get("batchnorm_statistics") == NormStatistics.PER_PROCESS
        return (self.micro_batch or 0) if per_process else 0

    @property
    def update(self) -> str:
        """The code of the optimizer that is this project's own; else, and in older records, torch's AdamW."""
        named = str(self.platform.get("update", ""))
        return named if named.startswith("cxrbench.") else "torch's AdamW"

    @property
    def processor(self) -> str:
        """The processor; one of its own where none is named."""
        return self.host.cpu.strip() or f"unknown processor of {self.cell}"

    @property
    def machine(self) -> str:
        """Device, processor, cores, EC2 type and software: ``AMD EPYC (AVX2), 2 cores, ...``.

        Speeds and costs are averaged within one machine only, runs of the same text. Processors of one name
        differ in the instructions that they have, and so in speed.
        """
        host, platform = self.host, self.cell.split("/")[2]
        instructions = host.device.removeprefix("CPU") if host.device.startswith("CPU (") else ""
        device = [f"{host.devices_used} {host.device}"] if platform in ACCELERATED else []
        decisive = ("torch", ENTRIES[platform].software if platform in ENTRIES else "")
        software = [f"{name} {self.versions[name]}" for name in decisive if self.versions.get(name)]
        driver = [f"driver {host.driver}"] if host.driver else []
        instance = [host.instance] if host.instance else []
        processor = self.processor + instructions
        return ", ".join(
            [*device, processor, f"{host.cores} core{'s' * (host.cores != 1)}", *instance, *driver, *software]
        )

    @property
    def busy(self) -> bool:
        """Whether others used more than :data:`BUSY` of the cores, or the device; unknown is not busy."""
        share = self.timing.others_share
        return (share is not None and share > BUSY) or bool(self.platform.get("other_processes"))

    def to_json(self) -> str:
        """The bytes of record.json as text."""
        return self.model_dump_json(indent=1) + "\n"


def read_record(path: Path | str) -> Record:
    """The record in ``path`` (a record.json or its folder); UserError when it is not one."""
    path = Path(path)
    path = path / RECORD if path.is_dir() else path
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version == SCHEMA_VERSION:
        return _validated(path, raw, Record)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        reason = "is older than the record: update it with git pull"
    else:  # a field that was only added needs no new version
        cell = raw.get("cell", "CELL") if isinstance(raw, dict) else "CELL"
        again = f"make the record again: cxrbench train {cell} && cxrbench record {cell}"
        reason = f"cannot interpret older versions; {again}"
    raise UserError(f"{path}: schema_version is {version}; this cxrbench reads {SCHEMA_VERSION} and {reason}")


def read_model(path: Path, model: type[Model]) -> Model:
    """The ``model`` in a JSON file; UserError when it is none."""
    return _validated(path, read_json(path), model)


def read_json(path: Path) -> Any:
    """The JSON in a file; UserError for what no record can hold, and for a key that stands twice."""
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(
            text, parse_int=_number, parse_float=_number, parse_constant=_number, object_pairs_hook=_once
        )
        json.dumps(raw, ensure_ascii=False).encode()  # half a character cannot be written again
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such record; run the cell first") from None
    except RecursionError:
        raise UserError(f"{path}: not a record: it is nested too deeply; {remedy(path)}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable record ({error}); {remedy(path)}") from None
    return raw


def _validated(path: Path, raw: Any, model: type[Model]) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: key '{key}': {first['msg']}; {remedy(path)}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of ``pairs``; ValueError where a key stands twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key '{next(key for key in keys if keys.count(key) > 1)}' stands twice")
    return mapping


def _number(text: str) -> int | float:
    """A number of a record; ValueError for NaN, infinity and integers beyond 64 bits."""
    number = int(text) if text.removeprefix("-").isdigit() and len(text) < 19 else float(text)
    if not abs(number) < 2**63:
        raise ValueError(f"{text[:20]} is not a number that a record has")
    return number


# -- the machine and the code, as a record names them -----------------------------------------------


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's own name, with family and model where a hypervisor hides its number."""
    with suppress(OSError):
        facts = dict(re.findall(r"^([a-z ]+?)\s*: *(.*?) *$", cpuinfo.read_text("utf-8"), re.M))
        if name := facts.get("model name"):
            hidden = not re.search(r"\d", name) and {"cpu family", "model"} <= facts.keys()
            return f"{name} family {facts['cpu family']} model {facts['model']}" if hidden else name
    return python_platform.processor() or python_platform.machine()


def this_machine() -> dict[str, Any]:
    """The facts that records hold of a machine: processor, cores, memory, system, as Linux 6.1, EC2 type."""
    import psutil  # imported here: every command loads this module

    library, version = python_platform.libc_ver()
    instance = os.environ.get("SM_CURRENT_INSTANCE_TYPE")
    with suppress(OSError):
        if not instance and "Amazon EC2" in (_DMI / "sys_vendor").read_text(encoding="utf-8"):
            instance = (_DMI / "product_name").read_text(encoding="utf-8").strip()
    release = ".".join(python_platform.release().split(".")[:2])
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": f"{python_platform.system()} {release}" + (f", {library} {version}" if library else ""),
        "instance": instance or None,
    }


def without_folders(log: bytes) -> str:
    """A log as text, with short names for this machine's folders."""
    text = log.decode(errors="backslashreplace")
    folders = {
        os.getcwd(): ".", sys.prefix: "<env>", sys.base_prefix: "<python>", os.path.expanduser("~"): "~",
    }  # fmt: skip
    for folder, name in folders.items():
        if folder not in ("/", "~"):  # a container's root, an unknown home
            text = text.replace(folder, name)
    return text


def commit_of_code() -> tuple[str, bool]:
    """(commit, whether the checkout of this code differs); ('unknown', True) where there is none."""
    if given := os.environ.get("CXRBENCH_COMMIT"):  # in a container without a checkout
        return given.removesuffix("-dirty"), given.endswith("-dirty")
    package = Path(__file__).parents[1]  # the checkout of the package, not the caller's
    named = git(package, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    untracked = git(package, "ls-files", "--others", "--exclude-standard")
    if named is None or untracked is None:
        return "unknown", True
    head, changed, _ = named.strip().partition("-dirty")
    return head, bool(changed or untracked)


def now() -> str:
    """The time as records have it: UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def short_processor(processor: str) -> str:
    """A processor's name without what every name has: ``Intel Xeon``."""
    plain = re.sub(r"\((R|TM)\)|@[^,]*|\b(Processor|CPU)\b", " ", processor)
    return re.sub(r" +,", ",", " ".join(plain.split()))


def processors_in_words(processors: Iterable[str]) -> str:
    """The different processors, shortened and sorted: ``AMD EPYC and Intel Xeon``."""
    return " and ".join(sorted({short_processor(name) for name in processors}))


def load_in_words(others_share: float | None) -> str:
    """The load of the machine in words: ``others used 48 % of the cores``, or that nobody measured it."""
    if others_share is None:
        return "load not recorded"
    return f"others used {others_share:.0%} of the cores".replace("%", " %")
