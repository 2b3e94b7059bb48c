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

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from cxrbench.cells import Cell
from cxrbench.claims.evidence import KINDS, OPTIONS, number_or_range, show
from cxrbench.claims.formula import Formula, FormulaError
from cxrbench.claims.model import OURS, Check, Claim, Claims, Experiment, Measured, Source, Stated
from cxrbench.claims.place import Document, Keys
from cxrbench.cost.prices import UNDATED
from cxrbench.errors import UserError, suggestion

_REQUIRED = ("id", "source", "where", "says")
_OPTIONAL = (
    "inputs", "computation", "stated", "tolerance", "unit", "verdict", "note", "striking", "missing",
    "experiment", "rests_on", "assumes",
)  # fmt: skip
_OPTIONAL_TEXTS = ("unit", "verdict", "note", "missing", "experiment", "rests_on", "assumes")
_EXPERIMENT_TEXTS = ("title", "command", "expect")
_MEASURED_KEYS = ("seconds", "disk_mib", "where", "date")
_SOURCE_KEYS = ("author", "title", "where", "interest")


def read_claims(path: Path | str) -> Claims:
    """The claims in ``path``; UserError with file, line and column for the first thing that is wrong."""
    document = Document(path)
    return _Reader(document).claims(document.value)


class _Reader:
    """Checks the plain values against the schema."""

    def __init__(self, document: Document) -> None:
        self.at, self.wrong = document.at, document.wrong

    def claims(self, raw: Any) -> Claims:
        if not isinstance(raw, dict) or set(raw) - {"experiments", "facts"} != {"sources", "claims"}:
            raise self.wrong(
                (),
                "a claims file has two keys, 'sources' and 'claims', and may have 'experiments' and 'facts'",
            )
        if not isinstance(raw["claims"], list) or not isinstance(raw["sources"], dict):
            raise self.wrong((), "'sources' is a mapping and 'claims' a list")
        sources = {key: self._source(key, value) for key, value in raw["sources"].items()}
        experiments, facts = self._experiments(raw.get("experiments", {})), self._facts(raw.get("facts", {}))
        claims: dict[str, Claim] = {}
        for number, entry in enumerate(raw["claims"]):
            claim = self._claim(number, entry, sources)
            for key, name, known in (
                ("experiment", claim.experiment, experiments),
                ("rests_on", claim.rests_on, facts),
            ):
                if name and name not in known:
                    what = f"claim {claim.id}: unknown {key} '{name}'{suggestion(name, known)}"
                    raise self.wrong(("claims", number, key), what)
            if claim.id in claims:
                first = self.at("claims", list(claims).index(claim.id)).split(":")[-2]
                what = f"id {claim.id} is taken (line {first}); use another"
                raise self.wrong(("claims", number, "id"), what)
            claims[claim.id] = claim
        return Claims(sources, tuple(claims.values()), experiments, facts)

    def _source(self, key: str, value: Any) -> Source:
        where = ("sources", key)
        if not isinstance(value, dict) or any(not isinstance(text, str) for text in value.values()):
            raise self.wrong(where, f"source {key} is a mapping of texts: {', '.join(_SOURCE_KEYS)}")
        self._known_keys(where, value, _SOURCE_KEYS)
        for needed in _SOURCE_KEYS[:3]:
            if needed not in value:
                raise self.wrong(where, f"source {key}: key '{needed}' is missing")
        return Source(**value)

    def _facts(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or any(not isinstance(fact, str) for fact in value.values()):
            raise self.wrong(("facts",), "'facts' is a mapping of names to sentences")
        return value

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

    def _measured(self, where: Keys, entry: Mapping[str, Any]) -> Measured | None:
        if "measured" not in entry:
            return None
        found, here = entry["measured"], (*where, "measured")
        if not isinstance(found, dict) or set(found) != set(_MEASURED_KEYS):
            raise self.wrong(here, f"measured is a mapping with {', '.join(_MEASURED_KEYS)}")
        amounts = {key: self._amount((*here, key), found[key]) for key in _MEASURED_KEYS[:2]}
        return Measured(**amounts, where=str(found["where"]), date=str(found["date"]))

    def _amount(self, where: Keys, value: Any) -> float:
        if isinstance(number := self._number(where, value), tuple) or number < 0:
            raise self.wrong(where, f"'{value}': a number that is not negative")
        return number

    def _known_keys(self, where: Keys, value: Mapping, known: tuple[str, ...]) -> None:
        for key in value:
            if key not in known:
                hint = suggestion(str(key), known)
                raise self.wrong((*where, key), f"unknown key '{key}'{hint}")

    def _claim(self, number: int, entry: Any, sources: Mapping[str, Source]) -> Claim:
        where = ("claims", number)
        self._claim_texts(where, entry, number)
        name = entry["id"]
        if entry["source"] not in sources:
            hint = suggestion(entry["source"], sources)
            raise self.wrong((*where, "source"), f"claim {name}: unknown source '{entry['source']}'{hint}")
        if ("missing" in entry) == ("computation" in entry):
            raise self.wrong(where, f"claim {name}: give either a 'computation' or what is 'missing'")
        common = {key: entry[key] for key in _REQUIRED}
        common |= {key: str(entry.get(key, "")) for key in _OPTIONAL_TEXTS}
        common |= {"striking": bool(entry.get("striking", False))}
        at = {key: self.at(*where, key) for key in ("computation", "verdict")}
        if "missing" in entry:
            return Claim(**common, at=at)
        inputs = self._inputs((*where, "inputs"), entry.get("inputs", {}), entry["source"] == OURS)
        at |= {f"inputs {key}": self.at(*where, "inputs", key) for key in inputs}
        return Claim(**common, at=at, inputs=inputs, check=self._check(where, entry))

    def _claim_texts(self, where: Keys, entry: Any, number: int) -> None:
        if not isinstance(entry, dict):
            raise self.wrong(where, "a claim is a mapping with id, source, where, says, ...")
        self._known_keys(where, entry, (*_REQUIRED, *_OPTIONAL))
        for key in _REQUIRED:
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                name = entry.get("id", number + 1)
                raise self.wrong((*where, key), f"claim {name}: '{key}' must be a text")

    def _check(self, where: Keys, entry: Mapping[str, Any]) -> Check:
        for key in ("stated", "tolerance"):
            if key not in entry:
                raise self.wrong(where, f"claim {entry['id']}: '{key}' is missing")
        stated = self._stated((*where, "stated"), entry["stated"])
        tolerance = self._tolerance((*where, "tolerance"), entry["tolerance"], stated)
        return Check(self._formula(where, entry), stated, tolerance)

    def _inputs(self, where: Keys, value: Any, ours: bool) -> dict[str, Any]:
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
            if kinds[0] == "price":
                self._price_date(here, name, entry, ours)
        return value

    def _price_date(self, where: Keys, name: str, entry: Mapping[str, Any], ours: bool) -> None:
        if "as_of" not in entry:
            if ours:
                raise self.wrong(where, f"input '{name}': a price of a claim of ours needs its date, 'as_of'")
            return
        try:
            date.fromisoformat("2000-01-01" if entry["as_of"] == UNDATED else str(entry["as_of"]))
        except ValueError:
            what = f"'{entry['as_of']}' is not a date such as 2026-07-20, nor '{UNDATED}'"
            raise self.wrong((*where, "as_of"), f"input '{name}': {what}") from None

    def _number(self, where: Keys, value: Any) -> float | tuple[float, float]:
        try:
            return number_or_range(value)
        except UserError as error:
            raise self.wrong(where, str(error)) from None

    def _formula(self, where: Keys, entry: Mapping[str, Any]) -> Formula:
        text = str(entry["computation"])
        try:
            return Formula(text, entry.get("inputs", {}))
        except FormulaError as error:
            raise self.wrong(
                (*where, "computation"),
                f"claim {entry['id']}: computation '{text}': {error}",
                error.offset,
            ) from None

    def _stated(self, where: Keys, value: Any) -> Stated:
        if isinstance(value, bool):
            return Stated(float(value), float(value), show(float(value), yes_no=True), yes_no=True)
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
        raise self.wrong(where, f"stated '{value}': a number, [low, high], {{above: x}}, {{below: x}} or yes")

    def _tolerance(self, where: Keys, value: Any, stated: Stated) -> float:
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
