"""The registry of tables and figures: one entry of items.toml for each.

Graph, LaTeX source, HTML page, CSV and Markdown files take names, titles and captions from it.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module, resources
from typing import Any


@dataclass(frozen=True)
class Item:
    """A table or figure: how it is made and what it is called."""

    name: str
    title: str
    caption: str  # LaTeX
    function: str  # module:function below this package, of the Results
    group: str = ""  # heading of the table on the HTML page
    alt: str = ""  # a figure in words
    in_paper: bool = True  # else on the HTML page and, a table, as CSV and Markdown only

    @property
    def make(self) -> Callable[..., Any]:
        """Import and return the function that makes the item."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
        return function


@cache
def _items(kind: str) -> dict[str, Item]:
    text = resources.files(__package__).joinpath("items.toml").read_text(encoding="utf-8")
    return {name: Item(name=name, **entry) for name, entry in tomllib.loads(text)[kind].items()}


# By name, in the order of the HTML page.
tables, figures = partial(_items, "tables"), partial(_items, "figures")


def printed(items: dict[str, Item]) -> list[Item]:
    """Return the tables or figures that the PDF has."""
    return [item for item in items.values() if item.in_paper]
