"""``data/claims.yaml``: its schema, and reading it so that every complaint names line and column.

A claim: ``id``, ``source`` (a key of ``sources``), ``where`` in it, ``says`` (in our words), ``inputs``
(see :mod:`cxrbench.claims.evidence`), ``computation`` (see :mod:`cxrbench.claims.formula`), ``stated``
(a number, two numbers as a range, or ``{above: x}``, ``{below: x}``), ``tolerance`` (absolute, or ``5%``
of what is stated), ``unit``, ``verdict`` (what the last review saw: a computed verdict that differs is
drift, it is never shown as the verdict), ``note``, ``striking``, ``experiment`` (a key of ``experiments``:
how a reviewer sees it). Instead of a computation, ``missing`` says what a test would need that is not here.

An experiment: ``title``, ``command``, ``human_minutes`` (an estimate), ``expect`` (what is seen at the end),
and either ``cell`` (its recorded evidence gives scores, hours, money) or ``measured`` (what one run took).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cxrbench.cells import Cell
from cxrbench.claims.evidence import KINDS, OPTIONS, Context, Value, number_or_range, own_value, show
from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.errors import UserError, nearest

OURS = "ours"
_REQUIRED = ("id", "source", "where", "says")
_OPTIONAL = (
    "inputs", "computation", "stated", "tolerance", "unit", "verdict", "note", "striking", "missing",
    "experiment",
)  # fmt: skip
_EXPERIMENT_TEXTS = ("title", "command", "expect")
_MEASURED_KEYS = ("seconds", "disk_mib", "where", "date")
_SOURCE_KEYS = ("author", "title", "where", "interest")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Source:
    """Where claims are from: author, title, where to find it, and what its author sells, if anything."""

    author: str
    title: str
    where: str
    interest: str = ""


@dataclass(frozen=True)
class Stated:
    """What a claim states: between ``low`` and ``high``; infinite ends for above and below."""

    low: float
    high: float
    shown: str

    @property
    def is_range(self) -> bool:
        """Whether two finite ends were stated, so that both must be met."""
        return self.low != self.high and abs(self.low) != float("inf") and abs(self.high) != float("inf")


@dataclass(frozen=True)
class Check:
    """How a claim is tested: the formula agrees with what is stated up to an absolute ``tolerance``."""

    computation: Formula
    stated: Stated
    tolerance: float


@dataclass(frozen=True)
class Claim:
    """One checked entry. ``check`` is none exactly when ``missing`` says why."""

    id: str
    source: str
    where: str
    says: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    check: Check | None = None
    unit: str = ""
    verdict: str = ""
    note: str = ""
    striking: bool = False
    missing: str = ""
    experiment: str = ""
    at: Mapping[str, str] = field(default_factory=dict)  # key -> file:line:column

    def value_of(self, name: str, context: Context) -> Value:
        """The input called ``name``; NotHere when there is no evidence, UserError when it is wrong."""
        entry = self.inputs[name]
        if not isinstance(entry, Mapping):
            return own_value(number_or_range(entry))
        kind = next(key for key in entry if key in KINDS)
        try:
            return KINDS[kind](entry, context)
        except UserError as error:
            raise UserError(f"{self.at['inputs']}: claim {self.id}: input '{name}': {error}") from None


@dataclass(frozen=True)
class Measured:
    """What one run of an experiment took: wall seconds, MiB written, on which machine, when."""

    seconds: float
    disk_mib: float
    where: str
    date: str


@dataclass(frozen=True)
class Experiment:
    """How a reviewer sees claims: one command. ``cell`` or ``measured`` tell its cost, where known."""

    title: str
    command: str
    human_minutes: float
    expect: str
    cell: Cell | None = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Claims:
    """All claims of a file; their sources and the experiments that show ours, by key."""

    sources: Mapping[str, Source]
    claims: tuple[Claim, ...]
    experiments: Mapping[str, Experiment] = field(default_factory=dict)

    @property
    def ours(self) -> tuple[Claim, ...]:
        """Our own claims, in the file's order."""
        return tuple(claim for claim in self.claims if claim.source == OURS)


def read_claims(path: Path | str) -> Claims:
    """The claims in ``path``; UserError with file, line and column for the first thing that is wrong."""
    path = Path(path)
    try:
        loader = _LOADER(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        raw = loader.construct_document(root) if root is not None else None
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; restore it with git") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable ({error}); restore it with git") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise UserError(f"{at}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    return _Reader(path, root).claims(raw)


class _Reader:
    """Checks the plain values against the schema; the node tree tells where each of them stands."""

    def __init__(self, path: Path, root: yaml.Node | None) -> None:
        self.path, self.root = path, root

    def at(self, *keys: str | int, offset: int = 0) -> str:
        """file:line:column of the value below ``keys``, or of the nearest one above that exists."""
        node = self.root
        for key in keys:
            node = _below(node, key) or node
        if node is None:
            return f"{self.path}:1:1"
        mark = node.start_mark
        quoted = 1 if getattr(node, "style", None) in ("'", '"') and offset else 0
        return f"{self.path}:{mark.line + 1}:{mark.column + 1 + quoted + offset}"

    def wrong(self, keys: tuple[str | int, ...], what: str, offset: int = 0) -> UserError:
        return UserError(f"{self.at(*keys, offset=offset)}: {what}")

    def claims(self, raw: Any) -> Claims:
        if self.root is not None:
            _refuse_repeated_keys(self.root, self.path)
        if not isinstance(raw, dict) or set(raw) - {"experiments"} != {"sources", "claims"}:
            raise self.wrong(
                (), "a claims file has two keys, 'sources' and 'claims', and may have 'experiments'"
            )
        if not isinstance(raw["claims"], list) or not isinstance(raw["sources"], dict):
            raise self.wrong((), "'sources' is a mapping and 'claims' a list")
        sources = {key: self._source(key, value) for key, value in raw["sources"].items()}
        experiments = self._experiments(raw.get("experiments", {}))
        claims: list[Claim] = []
        seen: dict[str, int] = {}
        for number, entry in enumerate(raw["claims"]):
            claim = self._claim(number, entry, sources)
            if claim.experiment and claim.experiment not in experiments:
                hint = nearest(claim.experiment, experiments) or f"; known: {', '.join(experiments)}"
                what = f"claim {claim.id}: unknown experiment '{claim.experiment}'{hint}"
                raise self.wrong(("claims", number, "experiment"), what)
            if claim.id in seen:
                first = self.at("claims", seen[claim.id]).split(":")[-2]
                raise self.wrong(
                    ("claims", number, "id"), f"id {claim.id} is taken (line {first}); use another"
                )
            seen[claim.id] = number
            claims.append(claim)
        return Claims(sources, tuple(claims), experiments)

    def _source(self, key: str, value: Any) -> Source:
        where = ("sources", key)
        if not isinstance(value, dict) or any(not isinstance(one, str) for one in value.values()):
            raise self.wrong(where, f"source {key} is a mapping of texts: {', '.join(_SOURCE_KEYS)}")
        self._known_keys(where, value, _SOURCE_KEYS)
        for needed in _SOURCE_KEYS[:3]:
            if needed not in value:
                raise self.wrong(where, f"source {key}: key '{needed}' is missing")
        return Source(**value)

    def _experiments(self, value: Any) -> dict[str, Experiment]:
        if not isinstance(value, dict):
            raise self.wrong(("experiments",), "'experiments' is a mapping of names to experiments")
        return {str(key): self._experiment(str(key), entry) for key, entry in value.items()}

    def _experiment(self, key: str, entry: Any) -> Experiment:
        where = ("experiments", key)
        if not isinstance(entry, dict):
            raise self.wrong(where, f"experiment {key} is a mapping with {', '.join(_EXPERIMENT_TEXTS)}, ...")
        self._known_keys(where, entry, (*_EXPERIMENT_TEXTS, "human_minutes", "cell", "measured"))
        for text in _EXPERIMENT_TEXTS:
            if not isinstance(entry.get(text), str) or not entry[text].strip():
                raise self.wrong((*where, text), f"experiment {key}: '{text}' must be a text")
        minutes = self._amount((*where, "human_minutes"), entry.get("human_minutes"))
        try:
            cell = Cell.parse(str(entry["cell"])) if "cell" in entry else None
        except UserError as error:
            raise self.wrong((*where, "cell"), f"experiment {key}: {error}") from None
        texts = {name: entry[name].strip() for name in _EXPERIMENT_TEXTS}
        return Experiment(**texts, human_minutes=minutes, cell=cell, measured=self._measured(where, entry))

    def _measured(self, where: tuple[str | int, ...], entry: Mapping[str, Any]) -> Measured | None:
        if "measured" not in entry:
            return None
        found, here = entry["measured"], (*where, "measured")
        if not isinstance(found, dict) or set(found) != set(_MEASURED_KEYS):
            raise self.wrong(here, f"measured is a mapping with {', '.join(_MEASURED_KEYS)}")
        amounts = {key: self._amount((*here, key), found[key]) for key in _MEASURED_KEYS[:2]}
        return Measured(**amounts, where=str(found["where"]), date=str(found["date"]))

    def _amount(self, where: tuple[str | int, ...], value: Any) -> float:
        if isinstance(number := self._number(where, value), tuple) or number < 0:
            raise self.wrong(where, f"'{value}': a number that is not negative")
        return number

    def _known_keys(self, where: tuple[str | int, ...], value: Mapping, known: tuple[str, ...]) -> None:
        for key in value:
            if key not in known:
                hint = nearest(str(key), known) or f"; known: {', '.join(known)}"
                raise self.wrong((*where, key), f"unknown key '{key}'{hint}")

    def _claim(self, number: int, entry: Any, sources: Mapping[str, Source]) -> Claim:
        where = ("claims", number)
        if not isinstance(entry, dict):
            raise self.wrong(where, "a claim is a mapping with id, source, where, says, ...")
        self._known_keys(where, entry, (*_REQUIRED, *_OPTIONAL))
        for key in _REQUIRED:
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                raise self.wrong(
                    (*where, key), f"claim {entry.get('id', number + 1)}: '{key}' must be a text"
                )
        name = entry["id"]
        if entry["source"] not in sources:
            hint = nearest(entry["source"], sources) or f"; known: {', '.join(sources)}"
            raise self.wrong((*where, "source"), f"claim {name}: unknown source '{entry['source']}'{hint}")
        texts = {key: str(entry.get(key, "")) for key in ("unit", "verdict", "note", "missing")}
        at = {key: self.at(*where, key) for key in ("inputs", "computation", "verdict")}
        common = (
            {key: entry[key] for key in _REQUIRED} | texts | {"experiment": str(entry.get("experiment", ""))}
        )
        common |= {"striking": bool(entry.get("striking", False)), "at": at}
        if ("missing" in entry) == ("computation" in entry):
            raise self.wrong(where, f"claim {name}: give either a 'computation' or what is 'missing'")
        if "missing" in entry:
            return Claim(**common)
        for key in ("stated", "tolerance"):
            if key not in entry:
                raise self.wrong(where, f"claim {name}: '{key}' is missing")
        stated = self._stated((*where, "stated"), entry["stated"])
        inputs = self._inputs((*where, "inputs"), entry.get("inputs", {}))
        tolerance = self._tolerance((*where, "tolerance"), entry["tolerance"], stated)
        check = Check(self._formula(where, entry), stated, tolerance)
        return Claim(**common, inputs=inputs, check=check)

    def _inputs(self, where: tuple[str | int, ...], value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(where, "inputs is a mapping of names to numbers or look-ups")
        for name, entry in value.items():
            here = (*where, name)
            if not str(name).isidentifier():
                raise self.wrong(here, f"input '{name}' is not a name that a formula can use")
            if not isinstance(entry, dict):
                self._number(here, entry)
                continue
            kinds = [key for key in entry if key in KINDS]
            if len(kinds) != 1:
                raise self.wrong(here, f"input '{name}': give exactly one of {', '.join(KINDS)}")
            self._known_keys(here, entry, (kinds[0], *sorted(OPTIONS[kinds[0]])))
            if kinds[0] == "value" and not isinstance(entry.get("from"), str):
                raise self.wrong(here, f"input '{name}': a value of another source needs 'from': name it")
        return value

    def _number(self, where: tuple[str | int, ...], value: Any) -> float | tuple[float, float]:
        try:
            return number_or_range(value)
        except UserError as error:
            raise self.wrong(where, str(error)) from None

    def _formula(self, where: tuple[str | int, ...], entry: Mapping[str, Any]) -> Formula:
        text = str(entry["computation"])
        try:
            return Formula(text, entry.get("inputs", {}))
        except FormulaError as error:
            raise self.wrong(
                (*where, "computation"),
                f"claim {entry['id']}: computation '{text}': {error}",
                error.offset,
            ) from None

    def _stated(self, where: tuple[str | int, ...], value: Any) -> Stated:
        if isinstance(value, dict) and len(value) == 1 and set(value) <= {"above", "below"}:
            side, bound = next(iter(value.items()))
            limit = self._number(where, bound)
            if not isinstance(limit, tuple):
                ends = (limit, float("inf")) if side == "above" else (float("-inf"), limit)
                return Stated(*ends, f"{side} {show(limit)}")
        elif not isinstance(value, dict):
            limit = self._number(where, value)
            if isinstance(limit, tuple):
                return Stated(*limit, show(limit))
            return Stated(limit, limit, show(limit))
        raise self.wrong(where, f"stated '{value}': a number, [low, high], {{above: x}} or {{below: x}}")

    def _tolerance(self, where: tuple[str | int, ...], value: Any, stated: Stated) -> float:
        text = str(value)
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise self.wrong(where, f"tolerance '{value}': a number, or a percentage of what is stated")
        if not text.endswith("%"):
            return number
        if abs(stated.low) == float("inf") or abs(stated.high) == float("inf"):
            raise self.wrong(where, "a percentage needs a stated number or range")
        return number / 100 * max(abs(stated.low), abs(stated.high))


def _below(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == str(key)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key]
    return None


def _refuse_repeated_keys(node: yaml.Node, path: Path) -> None:
    """YAML would silently keep the last of two equal keys."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for name, value in node.value:
            if name.value in seen:
                at = f"{path}:{name.start_mark.line + 1}:{name.start_mark.column + 1}"
                raise UserError(f"{at}: key '{name.value}' is given twice; keep one")
            seen.add(name.value)
            _refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _refuse_repeated_keys(one, path)
