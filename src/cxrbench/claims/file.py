"""``data/claims.yaml``: its schema, and reading it so that every complaint names line and column.

A claim: ``id``, ``source`` (a key of ``sources``), ``where`` in it, ``says`` (in our words), ``inputs``
(see :mod:`cxrbench.claims.evidence`), ``computation`` (see :mod:`cxrbench.claims.formula`), ``stated``
(a number, two numbers as a range, ``{above: x}``, ``{below: x}``, or yes), ``tolerance`` (absolute, or ``5%``
of what is stated), ``unit``, ``verdict`` (what the last review saw: a computed verdict that differs is
drift, it is never shown as the verdict), ``note``, ``striking``, ``experiment`` (a key of ``experiments``:
how a reviewer sees it), ``rests_on`` (a key of ``facts``, which are sentences: claims that rest on one fact
are one finding), ``assumes`` (what the test needs and the source does not say: the claim is conditional).
Instead of a computation, ``missing`` says what a test would need that is not here. Each price of a claim of
ours has a date, ``as_of``: a newer price warns and changes no verdict.

An experiment: ``title``, ``command``, ``human_minutes`` (an estimate), ``expect`` (what is seen at the end),
and either ``cell`` (its recorded evidence gives scores, hours, money) or ``measured`` (what one run took).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from cxrbench.claims.evidence import KINDS, OPTIONS, answer_or_number, number_or_range, show
from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.claims.model import OURS, Check, Claim, Claims, Experiment, Measured, Plain, Source, Stated
from cxrbench.cost.prices import UNDATED
from cxrbench.study.config import Strict
from cxrbench.study.errors import UserError, suggestion
from cxrbench.study.readers import Document, Keys, Text, complaint, iso_date


def _input(value: Any) -> Any:
    """Check one input: a number, a range, or exactly one look-up with its options."""
    if not isinstance(value, Mapping):
        number_or_range(value)
        return value
    kinds = [key for key in value if key in KINDS]
    if len(kinds) != 1:
        raise ValueError(f"give exactly one of {', '.join(KINDS)}")
    kind, options = kinds[0], OPTIONS[kinds[0]]
    for key, given in value.items():
        if key != kind and key not in options:
            raise ValueError(f"unknown key '{key}'{suggestion(str(key), (kind, *sorted(options)))}")
        inner = list(given.values()) if key == kind and isinstance(given, Mapping) else [given]
        for one in inner:
            if any(isinstance(part, list | Mapping) for part in (one if isinstance(one, list) else [one])):
                raise ValueError(f"'{key}' has texts, numbers and lists of them, no more")
    if kind == "value" and not isinstance(value.get("from"), str):
        raise ValueError("a value of another source needs 'from': name it")
    for key in ("value", "now") if kind == "value" else ():
        answer_or_number(value.get(key, 0))
    if kind == "share" and "of" not in value:
        raise ValueError("a share needs 'of': the statuses that are counted")
    if "as_of" in value and value["as_of"] != UNDATED:
        iso_date(str(value["as_of"]))
    return value


def _stated(value: Any) -> Stated:
    if isinstance(value, bool):
        return Stated(float(value), float(value), show(float(value), yes_no=True), yes_no=True)
    if isinstance(value, Mapping):
        side, bound = next(iter(value.items()), ("", None))
        limit = number_or_range(bound)
        if len(value) > 1 or side not in ("above", "below") or isinstance(limit, tuple):
            raise ValueError(f"'{value}': write a number, [low, high], {{above: x}}, {{below: x}} or yes")
        low, high = (limit, float("inf")) if side == "above" else (float("-inf"), limit)
        return Stated(low, high, f"{side} {show(limit)}")
    limit = number_or_range(value)
    low, high = limit if isinstance(limit, tuple) else (limit, limit)
    return Stated(low, high, show(limit))


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"'{name}' is not a name that a formula can use")
    return name


class _Entry(Strict):
    """A claim as it is written."""

    id: Text
    source: Text
    where: Text
    says: Text
    inputs: dict[Annotated[str, AfterValidator(_name)], Annotated[Any, AfterValidator(_input)]] = Field({})
    computation: Plain | None = None
    stated: Annotated[Stated | None, BeforeValidator(_stated)] = None
    tolerance: Plain | None = None
    unit: Plain = ""
    verdict: Plain = ""
    note: Plain = ""
    striking: bool = False
    missing: Plain = ""
    experiment: Plain = ""
    rests_on: Plain = ""
    assumes: Plain = ""


class _File(Strict):
    sources: dict[str, Source]
    claims: list[_Entry]
    experiments: dict[str, Experiment] = Field({})
    facts: dict[str, Text] = Field({})


_MODELS: dict[tuple[str, int], type[Strict]] = {
    ("", 0): _File, ("sources", 2): Source, ("claims", 2): _Entry, ("experiments", 2): Experiment,
    ("experiments", 3): Measured,
}  # fmt: skip


def read_claims(path: Path | str) -> Claims:
    """The claims in ``path``; UserError with file, line and column for the first thing that is wrong."""
    document = Document(path)
    if not isinstance(document.value, dict):
        raise document.wrong((), "a claims file has the keys 'sources' and 'claims'")
    try:
        file = _File.model_validate(document.value)
    except ValidationError as error:
        raise _wrong(document, error.errors()[0]) from None
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(file.claims):
        if entry.id in claims:
            first = document.at("claims", list(claims).index(entry.id)).split(":")[-2]
            raise document.wrong(("claims", number, "id"), f"id {entry.id} is taken (line {first})")
        claims[entry.id] = _claim(document, ("claims", number), entry, file)
    return Claims(file.sources, tuple(claims.values()), file.experiments, file.facts)


def _wrong(document: Document, error: Any) -> UserError:
    """What pydantic found, at its place, with the name of the claim or experiment that it is in."""
    keys: Keys = tuple(key for key in error["loc"] if key != "[key]")
    known: list[str] = []
    if error["type"] == "extra_forbidden":
        known = list(_MODELS[str(keys[0]) if len(keys) > 1 else "", len(keys) - 1].model_fields)
    name = str(keys[1]) if len(keys) > 1 else ""
    if keys[0] == "claims" and name:
        raw, name = document.value["claims"][int(name)], str(int(name) + 1)
        name = str(raw.get("id", name)) if isinstance(raw, dict) else name
    where = f"{str(keys[0]).removesuffix('s')} {name}: " if name else ""
    inner = f"input '{keys[3]}': " if keys[2:3] == ("inputs",) and len(keys) > 3 else ""
    key = "" if inner or error["type"] == "extra_forbidden" or len(keys) == 2 else f"{keys[-1]}: "
    return document.wrong(keys, f"{where}{inner}{key}{complaint(error, known)}")


def _claim(document: Document, where: Keys, entry: _Entry, file: _File) -> Claim:
    """The claim, once what it names exists and its formula is one."""

    def wrong(what: str, *keys: str, offset: int = 0) -> UserError:
        return document.wrong((*where, *keys), f"claim {entry.id}: {what}", offset)

    for key, known in (("source", file.sources), ("experiment", file.experiments), ("rests_on", file.facts)):
        if (name := getattr(entry, key)) and name not in known:
            raise wrong(f"unknown {key} '{name}'{suggestion(name, known)}", key)
    if bool(entry.missing) == (entry.computation is not None):
        raise wrong("give either a 'computation' or what is 'missing'")
    for name, one in entry.inputs.items():
        if entry.source == OURS and isinstance(one, Mapping) and "price" in one and "as_of" not in one:
            what = f"input '{name}': a price of a claim of ours needs its date, 'as_of'"
            raise wrong(what, "inputs", name)
    at = {key: document.at(*where, key) for key in ("computation", "verdict")}
    at |= {f"inputs {name}": document.at(*where, "inputs", name) for name in entry.inputs}
    check = None if entry.computation is None else _check(entry, entry.computation, wrong)
    values = {key: getattr(entry, key) for key in _Entry.model_fields}
    for key in ("computation", "stated", "tolerance"):
        del values[key]
    return Claim(**values, check=check, at=at)


def _check(entry: _Entry, text: str, wrong: Callable[..., UserError]) -> Check:
    if entry.stated is None or entry.tolerance is None:
        raise wrong(f"'{'stated' if entry.stated is None else 'tolerance'}' is missing; add it")
    try:
        formula = Formula(text, entry.inputs)
    except FormulaError as error:
        raise wrong(f"computation '{text}': {error}", "computation", offset=error.offset) from None
    try:
        return Check(formula, entry.stated, _tolerance(entry.tolerance, entry.stated))
    except ValueError as error:
        raise wrong(f"tolerance '{entry.tolerance}': {error}", "tolerance") from None


def _tolerance(text: str, stated: Stated) -> float:
    """An absolute tolerance from a number or a percentage of what is stated."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError("write a number, or a percentage of what is stated")
    if not text.endswith("%"):
        return number
    if abs(stated.low) == float("inf") or abs(stated.high) == float("inf"):
        raise ValueError("a percentage needs a stated number or range")
    return number / 100 * max(abs(stated.low), abs(stated.high))
