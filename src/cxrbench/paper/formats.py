"""How every kind of value is printed: as plain text first, then for LaTeX or for prose.

A value is a number, several numbers in one of the shapes below, or a word in a number's place.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

UNDEFINED = "undefined"
_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
# What LaTeX sets with the paper's fonts and input encoding, beyond ASCII: tried sign by sign.
_SET = {chr(code) for code in range(0xA1, 0x17F)} - set("\u00adĦħĸĿŀŉŦŧ")
_SET |= set("ǍǎǏǐǑǒǓǔǦǧǨǩǪǫǰǴǵȘșȚțẞ‐‑‒–—―‘’‚“”„†‡•…‰‹›€№™←↑→↓")
_MINUS = re.compile(r"(?<![\w.){])-(?=\d)")


class Range(NamedTuple):
    """The lowest and the highest value; of two values there is nothing between them."""

    low: float
    high: float
    note: str = ""
    two: bool = False


class WithInterval(NamedTuple):
    """A value with its interval, or a note that says why it has none."""

    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""


class PlusMinus(NamedTuple):
    """A value with its deviation; NaN where a single one was measured."""

    value: float
    deviation: float


class Parts(NamedTuple):
    """Values side by side, such as ``3 of 4``."""

    values: tuple[Any, ...]
    between: str


class Judgement(NamedTuple):
    """A verdict, its reason and notes, and the margin and interval that it rests on where they are said."""

    word: str
    margin: float = math.nan
    interval: Range = Range(math.nan, math.nan)
    reason: str = ""
    note: str = ""
    starred: bool = False


@dataclass(frozen=True)
class Kind:
    """How a kind of value is printed: by a format, by one that follows from the value, or by a function."""

    form: str | Callable[[Any], str] = ""
    number: Callable[[float], str] | None = None
    side: str = "r"
    none: str = ""  # in place of a missing value
    unit: str = ""
    alone: str = ""  # after a Spread of a single value
    endless: str = "never"  # for infinity


def _finest(value: Any) -> str:
    """The format of a difference: two digits of its interval's half-width, four decimals at least and five
    at most, because its ends are held against a margin."""
    half = (value.high - value.low) / 2 if isinstance(value, WithInterval) else math.nan
    return f"+.{4 if missing(half) else min(max(4, decimals(half)), 5)}f"


def decimals(half_width: float) -> int:
    """The decimals that show two digits of an interval's half-width, three at least."""
    return max(3, 1 - math.floor(math.log10(half_width))) if half_width > 0 else 3


def _dollars(value: Any) -> str:
    """The format of dollars: four digits, from a thousand on whole; with a spread three digits."""
    if isinstance(value, PlusMinus):
        size = abs(value.value)
        return f",.{max(0, 2 - math.floor(math.log10(size))) if size else 2}f"
    return ",.0f" if abs(value) >= 1000 else ".4g"


def scientific(value: float, decimals: int = 0) -> str:
    """``2·10^-6``, or 0."""
    digits, _, exponent = f"{value:.{decimals}e}".partition("e")
    return f"{digits}·10^{int(exponent)}" if value else "0"


_LEAST_P = 0.001  # smaller ones say no more


def _three_digits(value: float) -> str:
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def _digits(value: float, count: int) -> str:
    """A value with so many significant digits, larger ones whole."""
    return f"{value:,.0f}" if 10**count <= abs(value) < 1e15 else f"{value:,.{count}g}"


KINDS = {
    "name": Kind(side="l"),
    "text": Kind(side="l"),
    "verdict": Kind(side="l"),
    "count": Kind(",.0f"),
    "auroc": Kind(".3f", side="c", none=UNDEFINED),  # and other scores between zero and one
    "score": Kind(".3f", none=UNDEFINED),
    "fine": Kind(".4f"),  # standard deviations and differences of scores
    "difference": Kind(_finest),
    "signed": Kind("+.4f"),
    "f1_given": Kind(".2f"),  # as published
    "reach": Kind(".3f", none=UNDEFINED),  # of a margin that could be shown, of scores that lie apart
    "margin": Kind(lambda value: f".{decimals(value)}f"),
    "given": Kind("g"),  # as it was set
    "hours": Kind(".3f"),
    "seconds": Kind(".1f"),
    "speed": Kind(".0f"),
    "speed_given": Kind(",.1f"),  # images/s, as published
    "ratio": Kind(".2f"),
    "share": Kind(number=lambda value: f"{100 * value:.0f} %"),
    "gain": Kind("+.1%"),
    "rate": Kind(".1f", unit=" %"),
    "size": Kind(number=scientific),
    "scientific": Kind(number=partial(scientific, decimals=1)),
    "p": Kind(number=lambda value: f"{value:.2g}" if value >= _LEAST_P else f"<{_LEAST_P:g}"),
    "one": Kind(".1f"),
    "exact": Kind(".10g"),
    "usd": Kind(_dollars, none="none", alone=" (1 seed)"),
    "usd_hour": Kind(".4g"),
    "usd_hours": Kind(".3g"),  # two of them in a cell
    "usd_given": Kind(",.0f"),  # whole, as it was set
    "usd_run": Kind(".3f"),  # of one training
    "usd_day": Kind(".2f"),
    "gib": Kind(".1f"),
    "gib_given": Kind(".0f"),
    "mib": Kind(".0f"),
    "gmac": Kind(".2f"),
    "months": Kind(".1f"),
    "minutes": Kind(".1f"),
    "usd_or_blank": Kind(_dollars),
    "runs": Kind("g", unit=" runs"),
    "thousands": Kind(number=lambda value: f"{value / 1000:,.0f} k"),
    "claimed": Kind(number=_three_digits),
    "power": Kind(number=scientific),
    "needed": Kind(",.0f", none="none"),
    "about": Kind(number=lambda value: f"{round(value, -3):,.0f}"),  # of patients
    "plain": Kind(".0f"),
    "measured": Kind(".6g"),
    "seen": Kind(number=partial(_digits, count=4), none="-", endless="infinite"),  # on a terminal
    "short": Kind(number=partial(_digits, count=2), none="-", endless="infinite"),
}


@dataclass(frozen=True)
class Value:
    """A number, or several in one of the shapes above, and its kind."""

    value: Any
    kind: str

    def __str__(self) -> str:
        return text(self.value, self.kind)


Values = Mapping[str, int | str | Value]  # counts, texts with `code`, and other numbers


def missing(value: Any) -> bool:
    """Whether there is no value: None, NaN or pandas' NA."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def text(value: Any, kind: str = "text") -> str:
    """A value as plain text; a word in a number's place stays as it is."""
    how = KINDS[kind]
    if missing(value):
        return how.none
    if isinstance(value, str):
        return value
    if isinstance(value, Judgement):
        return _judgement_in_words(value)
    if isinstance(value, Parts):
        return value.between.join(text(part, kind) for part in value.values)
    if missing(value[0] if isinstance(value, tuple) else value):
        return how.none

    def number(part: float) -> str:
        if math.isinf(part):
            return how.endless
        if how.number:
            return how.number(part)
        whole = value if isinstance(value, WithInterval | PlusMinus) else part
        return f"{part:{how.form(whole) if callable(how.form) else how.form}}{how.unit}"

    if isinstance(value, Range):
        shown = ends(number(value.low), number(value.high), between=" and " if value.two else " to ")
    elif isinstance(value, WithInterval):
        interval = "" if missing(value.low) else f" ({number(value.low)} to {number(value.high)})"
        shown = number(value.value) + interval
    elif isinstance(value, PlusMinus):
        shown = number(value.value) + (
            how.alone if missing(value.deviation) else f" ± {number(value.deviation)}"
        )
    else:
        shown = number(value)
    return f"{shown} ({note})" if (note := getattr(value, "note", "")) else shown


def _judgement_in_words(value: Judgement) -> str:
    shown = value.word
    if not missing(value.margin):
        low, high = value.interval[:2]
        shown += f" within {value.margin:g}: {low:+.4f} to {high:+.4f}"
    shown += f": {value.reason}" if value.reason else ""
    shown += f"; {value.note}" if value.note else ""
    return f"{shown} *" if value.starred else shown


def first_number(value: Any) -> float | None:
    """The number by which a value is sorted; None for a word."""
    while isinstance(value, tuple):
        value = value[0]
    return None if isinstance(value, str) or missing(value) else float(value)


def ends(*limits: str, between: str = " to ") -> str:
    """``a to b``, or the only text where both are alike."""
    return between.join(dict.fromkeys(limits))


def words(name: Any) -> str:
    """A name with spaces; empty for none."""
    return "" if missing(name) else str(name).replace("_", " ")


def first_of(names: Sequence[str]) -> str:
    """``a`` or ``a and 2 others``."""
    others = len(names) - 1
    return names[0] + (f" and {others} other{'s' * (others > 1)}" if others else "")


def listed(values: Iterable[Any]) -> str:
    """The different values in order, joined."""
    return ", ".join(dict.fromkeys(str(value) for value in values if not missing(value)))


# -- outputs ---------------------------------------------------------------------------------------


def escape(text: object, longest: int = 10_000) -> str:
    """``text`` as LaTeX that prints it literally, on one line, cut after ``longest`` characters."""
    line = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", str(text)))[:longest]
    # A sign that the paper's fonts lack would end LaTeX; a user's findings and machines may have any.
    latex = "".join(_SPECIAL.get(c, c if c.isascii() or c in _SET else "?") for c in line)
    return re.sub("-(?=-)", "-{}", latex)  # else the font joins them


def latex(text: str) -> str:
    r"""Plain text with \`code\` as LaTeX, with signs as the paper sets them."""
    code = re.sub(r"`([^`]*)`", r"\\code{\1}", escape(text))
    power = re.sub(r"(\d)·10\\textasciicircum\{\}(-?\d+)", r"$\1\\cdot10^{\2}$", code)
    return re.sub(r"(?<=\d) \\%", r"\\,\\%", _MINUS.sub("$-$", power))


def plain(text: str) -> str:
    r"""Plain text with \`code\` as a page or a README has it, with signs of minus."""
    return " ".join(_MINUS.sub("\u2212", text.replace("`", "")).split())


# -- tables ----------------------------------------------------------------------------------------

Fields = dict[str, Any]  # head of a column: value
# Head of a column: ``field``, ``field:kind``, or a kind and a function of the row; without a kind, a name.
Columns = Mapping[str, str | tuple[str, Callable[[Any], Any]]]
_Maker = Callable[[Any], "Table"]


@dataclass(frozen=True)
class Table:
    """Values in rows, the kinds of columns (text where none is named), and rows of words below them."""

    rows: pd.DataFrame
    kinds: Mapping[str, str] = field(default_factory=dict)
    foot: pd.DataFrame = field(default_factory=pd.DataFrame)

    def kind(self, head: str) -> str:
        """The kind of a column."""
        return self.kinds.get(head, "text")

    def side(self, head: str) -> str:
        """The alignment of a column: l, c or r."""
        return KINDS[self.kind(head)].side

    @property
    def texts(self) -> pd.DataFrame:
        """Every value as plain text, and the rows below."""
        shown = {head: [text(value, self.kind(head)) for value in self.rows[head]] for head in self.rows}
        return pd.concat([pd.DataFrame(shown, dtype=object), self.foot], ignore_index=True)


def of_kinds(kinds: Mapping[str, str] | None = None) -> Callable[[Callable[[Any], Iterable[Fields]]], _Maker]:
    """Decorate a function of the Results that returns or yields the rows of a table of these kinds."""

    def decorate(rows: Callable[[Any], Iterable[Fields]]) -> _Maker:
        def made(read: Any) -> Table:
            return Table(pd.DataFrame(list(rows(read))), kinds or {})

        return made

    return decorate


def csv_table(name: str, columns: Columns) -> _Maker:
    """The function that makes a table of a CSV of the graph."""

    def made(read: Any) -> Table:
        return table(read.table(name), columns)

    return made


def table(values: pd.DataFrame, columns: Columns) -> Table:
    """The rows of a frame as a table."""
    return Table(pd.DataFrame([row(value, columns) for value in values.itertuples()]), kinds_of(columns))


def row(value: Any, columns: Columns) -> Fields:
    """The values of one row of itertuples, or of another object."""
    return {
        head: getattr(value, column.partition(":")[0]) if isinstance(column, str) else column[1](value)
        for head, column in columns.items()
    }


def kinds_of(columns: Columns) -> dict[str, str]:
    """The kind of each column."""
    return {
        head: (column.partition(":")[2] or "name") if isinstance(column, str) else column[0]
        for head, column in columns.items()
    }
