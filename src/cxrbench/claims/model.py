"""What a claim is: where it was said, what it states, how it is tested, and who can see that for himself.

Plain values; :mod:`cxrbench.claims.file` reads and checks them, :mod:`cxrbench.claims.ledger` computes the
verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from cxrbench.claims.evidence import KINDS, Context, Value, number_or_range, own_value
from cxrbench.claims.formula import Formula
from cxrbench.study.cells import Cell
from cxrbench.study.config import Strict
from cxrbench.study.errors import UserError
from cxrbench.study.readers import Text

OURS = "ours"


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float | date) else value


def _cell(value: Any) -> Cell:
    try:
        return Cell.parse(str(value))
    except UserError as error:
        raise ValueError(str(error)) from None


Plain = Annotated[str, BeforeValidator(_as_text)]  # a text that YAML may have read as a number or a date
_Amount = Annotated[float, Field(ge=0)]


class Source(Strict):
    """Where claims are from: author, title, where to find it, and what its author sells, if anything."""

    author: Text
    title: Text
    where: Text
    interest: str = ""


@dataclass(frozen=True)
class Stated:
    """What a claim states: between ``low`` and ``high``; infinite ends for above and below."""

    low: float
    high: float
    shown: str
    yes_no: bool = False  # a claim that is true or not: 1 is yes, 0 is no, and people are shown the words

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
    rests_on: str = ""  # a key of the file's facts: claims that rest on one fact are one finding
    assumes: str = ""  # what its test needs and its source does not say
    at: Mapping[str, str] = field(default_factory=dict)  # key, or "inputs NAME" -> file:line:column

    def value_of(self, name: str, context: Context) -> Value:
        """The input called ``name``; NotHere when there is no evidence, UserError when it is wrong."""
        entry = self.inputs[name]
        if not isinstance(entry, Mapping):
            return own_value(number_or_range(entry))
        kind = next(key for key in entry if key in KINDS)
        try:
            return KINDS[kind](entry, context)
        except UserError as error:
            at = self.at[f"inputs {name}"]
            raise UserError(f"{at}: claim {self.id}: input '{name}': {error}") from None


class Measured(Strict):
    """What one run of an experiment took: wall seconds, MiB written, on which machine, when."""

    seconds: _Amount
    disk_mib: _Amount
    where: Text
    date: Plain


class Experiment(Strict):
    """How a reviewer sees claims: one command. ``cell`` or ``measured`` give its cost, where known."""

    title: Text
    command: Text
    human_minutes: _Amount
    expect: Text
    cell: Annotated[Cell | None, BeforeValidator(_cell)] = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Claims:
    """All claims of a file; by key their sources, the experiments that show ours, and shared facts."""

    sources: Mapping[str, Source]
    claims: tuple[Claim, ...]
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> tuple[Claim, ...]:
        """Our own claims, in the file's order."""
        return tuple(claim for claim in self.claims if claim.source == OURS)
