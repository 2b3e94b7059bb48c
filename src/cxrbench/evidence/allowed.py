"""What an archive of a stranger may hold, as types: texts of known forms, finite numbers in ranges.

Allow-lists: a name of a processor, a sentence of a platform, a line of a log has one form, and what has
another one is replaced where an archive is written and refused where it is read. So no path, account, key,
formula of a spreadsheet, markup or bidirectional sign needs to be thought of. Patterns match whole texts of
bounded length.
"""

import hashlib
import re
from collections.abc import Iterator
from math import isclose
from statistics import median
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cxrbench.common.readers import matching
from cxrbench.evidence.record import Record
from cxrbench.study.names import PART
from cxrbench.study.platforms import PLATFORMS
from cxrbench.study.recipe import SPLITS, Recipe

# -- texts -------------------------------------------------------------------------------------------

SHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()@,.+:_/-]{0,119}")  # of processors, devices, systems, drivers
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,59}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,59}")
_FINDING = re.compile(r"[A-Za-z][A-Za-z0-9 _.-]{0,99}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # and patients where they are texts
PLACEHOLDER = r"<(?:path|name|address|serial|cut)>"  # as private.py has them
_SIGN = r"[ -;=?-~]"  # of ASCII, without < and >
SENTENCE = re.compile(rf"(?:{_SIGN}|{PLACEHOLDER}){{0,500}}")
_SETTING = re.compile(rf"(?![=+@]){SENTENCE.pattern}")  # a spreadsheet takes what begins so for a formula
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,9}")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOMENT = re.compile(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)")
_MACHINE = re.compile(r"[a-z0-9]{1,60}(-[a-z0-9]{1,60}){0,30}")  # becomes a folder's name
_SIGNAL = re.compile(r"SIG[A-Z0-9+]{1,12}")

# Lines of a log that a trainer writes itself, and what stands for others.
EPOCH = re.compile(
    r"epoch (\d{1,6})/(\d{1,6}): train loss (\d{1,9}\.\d{4}), val loss (\d{1,9}\.\d{4}), (\d{1,9}\.\d) s"
)
RESUMED = re.compile(r"resumed after step \d{1,12} of epoch \d{1,9}")
_LEFT_OUT = re.compile(r"\[\d{1,9} other lines, sha256 [0-9a-f]{64}\]")
_OWN_LINES = (EPOCH, RESUMED, _LEFT_OUT)
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,39}")  # of an error, such as NCC_EVRF007 or SIGKILL


def as_name(text: str) -> str:
    """A name as :data:`SHORT` has it: other signs are blanks, and the end may be cut off."""
    words = " ".join(re.sub(r"[^A-Za-z0-9 ()@,.+:_/-]", " ", text).split())
    return words.lstrip(" ()@,.+:_/-")[:120].rstrip() or "unknown"


def as_sentence(text: str) -> str:
    """A text as :data:`SENTENCE` has it: other signs are question marks, and the end may be cut."""
    parts = re.split(f"({PLACEHOLDER})", text[:5000])
    plain = (
        part if k % 2 else re.sub(f"(?!{_SIGN}).", "?", part, flags=re.S) for k, part in enumerate(parts)
    )
    shown = [sign for part in plain for sign in ([part] if re.fullmatch(PLACEHOLDER, part) else part)]
    return "".join(shown[:500])


def own_lines(text: str) -> str:
    """A log with its lines of known forms; each run of others is their number and their hash."""
    kept: list[str] = []
    others: list[str] = []

    def leave_out() -> None:
        if others:
            digest = hashlib.sha256("\n".join(others).encode(errors="replace")).hexdigest()
            kept.append(f"[{len(others)} other lines, sha256 {digest}]")
            others.clear()

    for line in text.split("\n"):
        if is_own(line):
            leave_out()
            kept.append(line)
        elif line:
            others.append(line)
    leave_out()
    return "".join(f"{line}\n" for line in kept)


def is_own(line: str) -> bool:
    """Whether a line of a log has one of the forms that a trainer writes itself."""
    return len(line) < 200 and any(form.fullmatch(line) for form in _OWN_LINES)


def code_or_hash(text: str) -> str:
    """A fingerprint that is a code as it is; of another one, which may quote a text, its hash."""
    if _CODE.fullmatch(text) or re.fullmatch(r"other, sha256 [0-9a-f]{16}", text):
        return text
    return f"other, sha256 {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _of(pattern: re.Pattern[str], example: str) -> Any:
    return matching(pattern.pattern, example)


Short = Annotated[str, _of(SHORT, "a name: at most 120 letters, digits, blanks and ()@,.+:_/-")]
PackageVersion = Annotated[str, _of(VERSION, "a version such as 2.9.1")]
Key = Annotated[str, _of(_KEY, "a key such as torch")]
Sentence = Annotated[str, _of(SENTENCE, "a text of at most 500 signs of ASCII, none of them < or >")]
Moment = Annotated[str, _of(_MOMENT, "a moment such as 2026-11-21T10:54:58+00:00")]
Commit = Annotated[str, _of(COMMIT, "a commit in full")]
Machine = Annotated[str, _of(_MACHINE, "a machine's folder, such as amd-epyc-2-cores")]
Part = Annotated[str, matching(f"(?a:{PART})", "a name such as resnet18")]

# -- files besides cells -----------------------------------------------------------------------------

Rate = Annotated[float, Field(gt=0, le=1e7)]
Quotient = Annotated[float, Field(ge=0, le=1e6)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
Small = Annotated[int, Field(ge=1, le=100_000)]
_Contender = Literal["ours", "null", "timm", "timm_best", "limit", "timm_kept", "timm_best_kept"]


class _Typed(BaseModel):
    """No unknown keys, no text for a number, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Row(_Typed):
    """When, where and with what a row was measured."""

    architecture: Part
    precision: Literal["fp32", "tf32", "bf16"]
    measured: Moment
    machine: Machine
    commit: Commit
    dirty: Literal[False]
    versions: Annotated[dict[Key, PackageVersion | None], Field(max_length=20)]
    device: Short | None = None
    driver: Short | None = None
    sdk: Short | None = None
    update: Short | None = None


class SpeedRow(_Row):
    """A row of train.json: speeds beside timm's, each the median of its blocks."""

    platform: Literal["cpu", "cuda", "xla_cpu", "neuron", "torchneuron", "xla_tpu"]
    pixels: Annotated[int, Field(ge=8, le=4096)]
    batch: Small
    threads: Annotated[int, Field(ge=1, le=4096)]
    blocks: Annotated[int, Field(ge=1, le=1000)]
    steps: Small
    fastest: bool
    ours: Rate
    null: Rate | None = None
    timm: Rate
    timm_best: Rate
    limit: Rate
    timm_kept: Rate | None = None
    timm_best_kept: Rate | None = None
    ratio_to_timm: Quotient
    ratio_to_timm_best: Quotient
    ratio_to_timm_kept: Quotient | None = None
    ratio_to_timm_best_kept: Quotient | None = None
    ratio_to_null: Quotient | None = None
    null_spread: Quotient | None = None
    share_of_limit: Quotient
    spread: Quotient
    timm_best_flags: Short
    own_processes: bool
    blocks_of_each: dict[_Contender, Annotated[list[Rate], Field(min_length=1, max_length=1000)]]
    model_flops_per_image: Amount | None = None
    peak_memory_mib: Amount | None = None
    matrix_share: Annotated[float, Field(ge=0, le=1.01)] | None = None
    joules_per_image: Amount | None = None
    joules_reason: Sentence | None = None
    share_of_matmul_peak: Quotient | None = None
    matmul_flops_per_second: Amount | None = None

    @model_validator(mode="after")
    def _medians(self) -> Self:
        blocks = self.blocks_of_each
        rates: dict[str, list[float]] = {name: blocks.get(name, []) for name in get_args(_Contender)}
        for name in get_args(_Contender)[1:]:
            ratio = "share_of_limit" if name == "limit" else f"ratio_to_{name}"
            rates[ratio] = [ours / theirs for ours, theirs in zip(rates["ours"], rates[name], strict=False)]
        for name, values in rates.items():
            if not isclose(median(values or [0]), getattr(self, name) or 0, rel_tol=1e-6):
                raise ValueError(f"{name} is not the median of its blocks")
        return self


class GateDifference(_Typed):
    """A tensor of a step that differs from the exact one, as a row of gate.json names it."""

    operator: Sentence
    tensor: Sentence
    direction: Amount
    norm: Amount
    size: Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], Field(max_length=8)]
    floor: Amount
    direction_tolerance: Amount
    norm_tolerance: Amount
    ratio: Amount


class GateRow(_Row):
    """A row of gate.json: whether each operator of a training step is right on a platform."""

    platform: Annotated[str, matching("|".join(PLATFORMS), "a platform")]
    pixels: Annotated[int, Field(ge=8, le=4096)]
    batch: Small
    repeats: bool
    tensors: Annotated[int, Field(ge=1, le=10**6)]
    differences: Annotated[int, Field(ge=0, le=10**6)]
    worst: Annotated[list[GateDifference], Field(max_length=10)]


class StepRow(_Row):
    """A row of steps.json: how far a training step is from the CPU's."""

    platform: Annotated[str, matching("|".join([*PLATFORMS, "cpu, one thread"]), "a platform")]
    step: Annotated[int, Field(ge=1, le=1000)]
    loss: Annotated[float, Field(ge=0, le=1e6)]
    loss_difference: Amount
    gradient_norm_difference: Amount
    weights_difference: Amount
    drift: Sentence | None = None


ROWS: dict[str, type[SpeedRow] | type[GateRow] | type[StepRow]] = {
    "train": SpeedRow,
    "gate": GateRow,
    "steps": StepRow,
}


class Versions(_Typed):
    """versions.json."""

    format: Literal[1]
    commit: Commit
    versions: Annotated[dict[Key, PackageVersion | None], Field(max_length=50)]


# -- a cell's record ---------------------------------------------------------------------------------

_RANGES = {  # of numbers of a record, by dotted name
    **{f"host.{name}": (1, 4096) for name in ("cores", "cores_used")},
    **{f"host.{name}": (0, 4096) for name in ("device_count", "devices_used")},
    "host.memory_gib": (0.1, 1e5),
    "host.device_memory_gib": (0.1, 1e5),
    "attempts": (1, 10_000),
    "micro_batch": (1, 1_000_000),
    "parameters": (1, 1e12),
    "peak_memory_mib": (0, 1e8),
    "energy.joules": (0, 1e12),
    "timing.images_per_second": (0, 1e7),
    "timing.others_share": (0, 1.5),
    "timing.compiles": (0, 1_000_000),
}
_SECONDS = (0, 1e8)
_MOST_EPOCHS = 10_000
_TEXTS = {  # form of each text of a record, by dotted name
    "commit": COMMIT,
    "started": _MOMENT,
    "ended": _MOMENT,
    "timing.how": SENTENCE,
    "energy.reason": SENTENCE,
    "weights.source": SHORT,
    "failure.kind": SENTENCE,
    "failure.fingerprint": SENTENCE,
    "failure.signal": _SIGNAL,
    **dict.fromkeys([f"host.{name}" for name in ("device", "cpu", "os", "driver", "sdk", "instance")], SHORT),
    **dict.fromkeys(
        ["dataset.packed", "dataset.manifest", "predictions_sha256", "log_sha256", "weights.sha256"],
        re.compile("[0-9a-f]{64}"),
    ),
    "kept_weights_sha256": re.compile("[0-9a-f]{64}"),
    "predictions_last_sha256": re.compile("[0-9a-f]{64}"),
    "recipe_hash": re.compile("[0-9a-f]{16}"),
}
_CHECKED_ELSEWHERE = ("cell", "status", "phase", "schema_version")  # by the record's own type and its folder
_MOST_VALUES, _DEEPEST = 300, 4  # of what a platform reports


def odd_in_record(record: Record) -> Iterator[str]:
    """Yield what no record in an archive has: texts of other forms, numbers out of range, a dirty tree."""
    if record.dirty:
        yield "dirty is true: the code that ran is not that of its commit"
    value = record.model_dump(mode="json")
    if len(record.history) > _MOST_EPOCHS:
        yield f"history has {len(record.history):,} epochs"
        return
    odd = (key for key in _keys(value) if not (_KEY.fullmatch(key) or _FINDING.fullmatch(key)))
    if (first := next(odd, None)) is not None:
        yield f"it has the key {first[:100]!r}"
    yield from _odd_counts(value["dataset"] or {})
    for name, text in value["versions"].items():
        if text is not None and not VERSION.fullmatch(text):
            yield f"versions.{name} is {text[:100]!r}"
    if len(value["versions"]) > 1000:
        yield f"versions has {len(value['versions']):,} keys"
    others = {key: part for key, part in value.items() if key not in ("versions", "recipe")}
    for name, text in _leaves(others):
        yield from _odd_leaf(name, text)
    try:
        recipe = Recipe.model_validate(record.recipe).model_dump(mode="json")
    except ValueError:
        return  # checks.record_problems names it
    named = recipe["weights"] if isinstance(recipe["weights"], dict) else {}
    if (file := named.get("file")) and not _FILE.fullmatch(file):
        yield f"recipe.weights.file is {file!r}"
    if record.host.cores_used > record.host.cores:
        yield f"host.cores_used is {record.host.cores_used} of {record.host.cores} cores"
    on_device = (record.host.device_memory_gib or 0) * max(1, record.host.device_count)
    most = 1024 * max(record.host.memory_gib, on_device)
    if (record.peak_memory_mib or 0) > most:
        yield f"peak_memory_mib is {record.peak_memory_mib:g}, more than the machine's {most:g}"
    if sum(1 for _ in _leaves(record.platform)) > _MOST_VALUES:
        yield f"platform has more than {_MOST_VALUES} values"


def _odd_counts(dataset: dict[str, Any]) -> Iterator[str]:
    """Yield what is no name of a finding or of a part in the counts of a record's dataset."""
    findings = dataset.get("positive_images", {})
    if len(findings) > 1000:
        yield f"dataset.positive_images has {len(findings):,} keys"
    for name in findings:
        if not _FINDING.fullmatch(name):
            yield f"dataset.positive_images has {name[:100]!r}"
    counts = {name: dataset.get(name, {}) for name in ("images", "patients")} | findings
    for name, of_part in counts.items():
        yield from (f"dataset counts {name} in part {part[:100]!r}" for part in of_part if part not in SPLITS)


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys of all mappings in nested JSON."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str):
            yield key
        if isinstance(part, dict | list):
            yield from _keys(part)


def _odd_leaf(name: str, value: Any) -> Iterator[str]:
    """Yield what is odd about a text or a number of a record, which has this dotted name."""
    first, _, rest = name.partition(".")
    if name in _CHECKED_ELSEWHERE or value is None or isinstance(value, bool):
        return
    if first == "platform":
        keys = rest.split(".")
        if len(keys) > _DEEPEST or not all(_KEY.fullmatch(key) for key in keys):
            yield f"platform has the key {rest[:100]!r}"
    if isinstance(value, str):
        lines = name.startswith("failure.last_lines.")
        of_settings = name.startswith("dataset.settings.")  # and they are those of the study
        default = SENTENCE if first == "platform" or lines else _SETTING if of_settings else None
        form = _TEXTS.get(name, default)
        if form is None or not form.fullmatch(value):
            yield f"{name} is {value[:100]!r}, which has another form than it should"
    elif limits := _SECONDS if name.endswith("seconds") else _RANGES.get(name):
        if not limits[0] <= value <= limits[1]:
            yield f"{name} is {value:g}, outside of {limits[0]:g} to {limits[1]:g}"
    elif not abs(value) <= 1e15:
        yield f"{name} is {value:g}"


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested JSON that are no list or mapping, with their dotted names."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def conforming(value: dict[str, Any], with_log: bool) -> dict[str, Any]:
    """record.json's value with every free text in the form that :func:`odd_in_record` lets pass.

    Without ``with_log`` a failure's last lines and its message are their number and hash.
    """

    def sentences(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                key if _KEY.fullmatch(key) else as_name(key)[:60]: sentences(one) for key, one in part.items()
            }
        if isinstance(part, list):
            return [sentences(one) for one in part]
        return as_sentence(part) if isinstance(part, str) else part

    texts = {
        key: sentences(value[key]) for key in ("failure", "timing", "energy", "platform") if key in value
    }
    host = {name: as_name(fact) if isinstance(fact, str) else fact for name, fact in value["host"].items()}
    if (failure := texts.get("failure")) and not with_log:
        left = own_lines("\n".join(failure["last_lines"])).splitlines()
        failure |= {"last_lines": left, "fingerprint": code_or_hash(failure["fingerprint"])}
    return value | texts | {"host": host}
