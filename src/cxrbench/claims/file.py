"""``data/claims.yaml``: its schema, and reading it so that every complaint names line and column."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError

from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.claims.inputs import Plain, PriceOf, read_input, read_number, show
from cxrbench.common.errors import UserError, suggestion
from cxrbench.common.readers import Document, Keys, Text, complaint
from cxrbench.study.config import Strict
from cxrbench.study.names import Cell

OURS = "ours"
_Amount = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Stated:
    """What a claim states: between ``low`` and ``high``; infinite ends for above and below."""

    low: float
    high: float
    shown: str
    yes_no: bool = False  # 1 is yes, 0 is no, and people are shown the words

    @property
    def is_finite(self) -> bool:
        return max(abs(self.low), abs(self.high)) < float("inf")


class Check(NamedTuple):
    """How a claim is tested: the formula agrees with what is stated up to an absolute ``tolerance``."""

    computation: Formula
    stated: Stated
    tolerance: float


def _cell(value: Any) -> Cell:
    try:
        return Cell.parse(str(value))
    except UserError as error:
        raise ValueError(str(error)) from None


def _stated(value: Any) -> Stated:
    if isinstance(value, bool):
        return Stated(float(value), float(value), "yes" if value else "no", yes_no=True)
    if isinstance(value, Mapping):
        side, bound = next(iter(value.items()), ("", None))
        low, high = read_number(bound)
        if len(value) > 1 or side not in ("above", "below") or low != high:
            raise ValueError(f"'{value}': write a number, [low, high], {{above: x}}, {{below: x}} or yes")
        ends = (low, float("inf")) if side == "above" else (float("-inf"), high)
        return Stated(*ends, f"{side} {show((low, high))}")
    return Stated(*read_number(value), show(read_number(value)))


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"'{name}' is not a name that a formula can use")
    return name


class Citation(Strict):
    """Where claims are from: author, title, where to find it, and what its author sells, if anything."""

    author: Text
    title: Text
    where: Text
    interest: str = ""


class Measured(Strict):
    """What one run of an experiment took: wall seconds, MiB written, on which machine, when."""

    seconds: _Amount
    disk_mib: _Amount
    where: Text
    date: Plain


class Experiment(Strict):
    """How a reviewer sees claims, by commands. ``cell`` or ``measured`` give its cost, where known.

    With ``beside`` two cells are trained again: what is said is in doubt if their mean AUROC differs by more
    than ``within``, or without it by more than recorded pairs foretell.
    """

    title: Text
    command: Text
    human_minutes: _Amount  # an estimate
    expect: Text  # what is seen at the end
    cell: Annotated[Cell | None, BeforeValidator(_cell)] = None  # its recorded evidence gives hours and money
    beside: Annotated[Cell | None, BeforeValidator(_cell)] = None
    within: _Amount | None = None
    bears_on: Plain = ""  # the id of a claim that a run of it can speak against
    measured: Measured | None = None


class Claim(Strict):
    """A sentence with a number: where it was said, what it states, and how it is tested."""

    id: Text
    source: Text  # a key of the file's sources
    where: Text
    says: Text  # in our words
    inputs: dict[Annotated[str, AfterValidator(_name)], Annotated[Any, AfterValidator(read_input)]] = Field(
        {}
    )
    computation: Plain | None = None
    stated: Annotated[Stated | None, BeforeValidator(_stated)] = None
    tolerance: Plain | None = None  # absolute, or a percentage of what is stated
    unit: Plain = ""
    verdict: Plain = ""  # of the last review: another computed one is drift; never shown as the verdict
    note: Plain = ""
    missing: Plain = ""  # instead of a computation: what a test would need that is not here
    experiment: Plain = ""  # a key of the file's experiments: how a reviewer sees the claim
    rests_on: Plain = ""  # a key of the file's facts: claims that rest on one fact are one finding
    main: bool = False  # ours: what the paper stands on, first in ARTIFACT.md
    refuted: Plain = ""  # by what, of a main claim
    assumes: Plain = ""  # what its test needs and its source does not say: the claim is conditional
    _check: Check | None = PrivateAttr(None)
    _wrong: Callable[..., UserError] = PrivateAttr()

    @property
    def check(self) -> Check | None:
        """How the claim is tested; None exactly when ``missing`` says why."""
        return self._check

    def wrong(self, fault: str, *keys: str, offset: int = 0) -> UserError:
        """The complaint ``fault`` with the place of the value below ``keys`` of the claim."""
        return self._wrong(keys, f"claim {self.id}: {fault}", offset)


class Claims(Strict):
    """All claims of a file; by key their sources, the experiments that show ours, and shared facts."""

    sources: dict[str, Citation]
    claims: tuple[Claim, ...]
    experiments: dict[str, Experiment] = Field({})
    facts: dict[str, Text] = Field({})

    @property
    def ours(self) -> tuple[Claim, ...]:
        """Our own claims, in the file's order."""
        return tuple(claim for claim in self.claims if claim.source == OURS)


_PARTS: dict[str, type[Strict]] = {"sources": Citation, "claims": Claim, "experiments": Experiment}


def read_claims(path: Path | str) -> Claims:
    """The claims in ``path``; UserError with file, line and column for the first mistake."""
    document = Document(path)
    if not isinstance(document.value, dict):
        raise document.wrong((), "a claims file has the keys 'sources' and 'claims'")
    try:
        file = Claims.model_validate(document.value)
    except ValidationError as error:
        raise _wrong(document, error.errors()[0]) from None
    ids = [claim.id for claim in file.claims]
    for name, experiment in file.experiments.items():
        if experiment.bears_on and experiment.bears_on not in ids:
            fault = f"experiment {name}: bears_on: unknown claim '{experiment.bears_on}'"
            raise document.wrong(
                ("experiments", name, "bears_on"), fault + suggestion(experiment.bears_on, ids)
            )
    first: dict[str, int] = {}
    for number, claim in enumerate(file.claims):
        if (earlier := first.setdefault(claim.id, number)) != number:
            taken = f"id {claim.id} is taken ({document.at('claims', earlier)})"
            raise document.wrong(("claims", number, "id"), taken)
        _complete(claim, number, document, file)
    return file


def _wrong(document: Document, error: Any) -> UserError:
    """The error that pydantic found, at its place, with the name of the claim or experiment that it is in."""
    keys: Keys = tuple(key for key in error["loc"] if key != "[key]")
    fields: list[str] = []
    if error["type"] == "extra_forbidden":
        part = _PARTS[str(keys[0])] if len(keys) > 1 else Claims
        fields = list((Measured if len(keys) > 3 else part).model_fields)
    name = str(keys[1]) if len(keys) > 1 else ""
    if keys[0] == "claims" and name:
        raw, name = document.value["claims"][int(name)], str(int(name) + 1)
        name = str(raw.get("id", name)) if isinstance(raw, dict) else name
    where = f"{str(keys[0]).removesuffix('s')} {name}: " if name else ""
    inner = f"input '{keys[3]}': " if keys[2:3] == ("inputs",) and len(keys) > 3 else ""
    key = "" if inner or error["type"] == "extra_forbidden" or len(keys) == 2 else f"{keys[-1]}: "
    return document.wrong(keys, f"{where}{inner}{key}{complaint(error, fields)}")


def _complete(claim: Claim, number: int, document: Document, file: Claims) -> None:
    """Check what ``claim`` names, and give it its check and the places of its values."""
    claim._wrong = lambda keys, fault, offset: document.wrong(("claims", number, *keys), fault, offset)
    for key, given in (("source", file.sources), ("experiment", file.experiments), ("rests_on", file.facts)):
        if (name := getattr(claim, key)) and name not in given:
            raise claim.wrong(f"unknown {key} '{name}'{suggestion(name, given)}", key)
    if bool(claim.missing) == (claim.computation is not None):
        raise claim.wrong("give either a 'computation' or what is 'missing'")
    for name, given in claim.inputs.items():
        if claim.source == OURS and isinstance(given, PriceOf) and not given.as_of:
            fault = f"input '{name}': a price of a claim of ours needs its date, 'as_of'"
            raise claim.wrong(fault, "inputs", name)
    if claim.computation is not None:
        claim._check = _check(claim, claim.computation)


def _check(claim: Claim, text: str) -> Check:
    if claim.stated is None or claim.tolerance is None:
        raise claim.wrong(f"'{'stated' if claim.stated is None else 'tolerance'}' is missing; add it")
    try:
        formula = Formula(text, claim.inputs)
        return Check(formula, claim.stated, _tolerance(claim.tolerance, claim.stated))
    except FormulaError as error:
        raise claim.wrong(f"computation '{text}': {error}", "computation", offset=error.offset) from None
    except ValueError as error:
        raise claim.wrong(f"tolerance '{claim.tolerance}': {error}", "tolerance") from None


def _tolerance(text: str, stated: Stated) -> float:
    """An absolute tolerance from a number or a percentage of what is stated."""
    given = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)(%?)", text)
    if given is None:
        raise ValueError("write a number, or a percentage of what is stated")
    if not given[2]:
        return float(given[1])
    if not stated.is_finite:
        raise ValueError("a percentage needs a stated number or range")
    return float(given[1]) / 100 * max(abs(stated.low), abs(stated.high))
