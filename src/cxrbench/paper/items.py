"""The registry of tables and figures, one entry of items.toml for each, and how a caption is filled in.

Graph, LaTeX source, HTML page, CSV and Markdown files take names, titles and captions from it. A caption, as
other sentences, is plain text with ``{key}`` for values and ``{tab:name}`` for items. Sentences outside of
the PDF may choose words by a count, as Jinja does: ``{% if count("key") %}``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any

from cxrbench.evidence.expected import NOT_RUN

if TYPE_CHECKING:  # Snakemake reads this module, and pandas takes half a second
    from cxrbench.paper.formats import Values

_PLACE = re.compile(r"\{([^{}]+)\}")
_CHOICE = re.compile(r"\{%.*?%\}")
_COUNT = re.compile(r'count\("([^"]+)"\)')
_ITEM = re.compile("(tab|fig|sec):(.*)")
_MARK = "\u00a4"  # of a place while the rest becomes LaTeX


@dataclass(frozen=True)
class Item:
    """A table or figure: how it is made and what it is called."""

    name: str
    title: str
    caption: str
    function: str  # module:function below this package, of the Results
    group: str = ""  # heading of the table on the HTML page
    alt: str = ""  # a figure in words
    folded: bool = False  # under an answer, that says it shorter, a figure opens on demand
    in_paper: bool = True  # else on the HTML page and, a table, as CSV and Markdown only

    @property
    def make(self) -> Callable[..., Any]:
        """Import and return the function that makes the item."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
        return function


@cache
def _registered(kind: str) -> dict[str, Item]:
    text = resources.files(__package__).joinpath("items.toml").read_text(encoding="utf-8")
    return {name: Item(name=name, **entry) for name, entry in tomllib.loads(text)[kind].items()}


# By name, in the order of the HTML page.
tables, figures = partial(_registered, "tables"), partial(_registered, "figures")


def printed(items: dict[str, Item]) -> list[Item]:
    """The tables or figures that the PDF has."""
    return [item for item in items.values() if item.in_paper]


def keys_of(template: str) -> set[str]:
    """The keys of the values that a sentence names, those by which it chooses words included."""
    places = _PLACE.findall(_CHOICE.sub("", template))
    return {key for key in places if not _ITEM.match(key)} | set(_COUNT.findall(template))


def chosen(template: str, values: Values) -> str:
    """A sentence with the words that ``{% if count("key") %}`` chooses; an unknown count is zero."""
    if "{%" not in template:
        return template
    from jinja2 import Environment

    def count(key: str) -> int:
        value = values.get(key, 0)
        assert isinstance(value, int), f"{key} is no count"
        return value

    return Environment().from_string(template).render(count=count)


def as_text(template: str, values: Values) -> str:
    """A sentence with its values, and titles for the items that it names."""
    from cxrbench.paper.formats import plain

    def shown(place: re.Match[str]) -> str:
        if not (item := _ITEM.match(place[1])):
            return str(values.get(place[1], NOT_RUN))
        named = {"tab": tables(), "fig": figures()}.get(item[1], {}).get(item[2])
        return f"\u201c{named.title}\u201d" if named else "the paper"

    return plain(_PLACE.sub(shown, chosen(template, values)))


def as_latex(template: str) -> str:
    r"""A sentence as LaTeX, which puts in the values by ``\val``."""
    from cxrbench.paper.formats import latex

    sentence = latex(" ".join(_PLACE.sub(_MARK, template).split()))
    for key in _PLACE.findall(template):
        command = "autoref" if _ITEM.match(key) else "val"
        sentence = sentence.replace(_MARK, rf"\{command}{{{key}}}", 1)
    return sentence
