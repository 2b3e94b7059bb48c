"""The registry of tables and figures: each is complete, and the PDF has those that it says."""

import re
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

import pytest

from conftest import ROOT
from cxrbench import paper
from cxrbench.paper.formats import Table
from cxrbench.paper.items import Item, figures, printed, tables

ITEMS = [*tables().values(), *figures().values()]
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "paper/sections").glob("*.tex")))


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.function)
def test_an_item_is_complete(item: Item) -> None:
    assert callable(item.make) and item.title and item.caption.strip().endswith((".", "}"))
    assert bool(item.group) != bool(item.alt), "tables have a group, figures a text"
    assert len(signature(item.make).parameters) == 1


def test_the_paper_has_each_printed_item_once_and_nothing_else() -> None:
    shown = re.findall(r"\\paper(table|figure)\{(\w+)\}", SOURCE)
    registered = {"table": printed(tables()), "figure": printed(figures())}
    assert sorted(shown) == sorted((kind, item.name) for kind, some in registered.items() for item in some)


def test_the_paper_refers_only_to_what_it_prints() -> None:
    printed_items = {"tab": printed(tables()), "fig": printed(figures())}
    captions = "".join(item.caption for printed_ones in printed_items.values() for item in printed_ones)
    places = {f"{kind}:{item.name}" for kind, some in printed_items.items() for item in some}
    places |= set(re.findall(r"\\label\{([^}]*)\}", SOURCE))
    named = re.findall(r"\\autoref\{([^}]*)\}", SOURCE) + re.findall(r"\{((?:tab|fig|sec):\w+)\}", captions)
    assert set(named) <= places


def test_every_function_that_makes_a_table_is_registered() -> None:
    registered = [item.make for item in tables().values()]
    for found in iter_modules(paper.__path__):
        for name, value in vars(import_module(f"{paper.__name__}.{found.name}")).items():
            types = getattr(value, "__annotations__", {})
            makes_a_table = "read" in types and types.get("return") in (Table, "Table")
            assert name.startswith("_") or not makes_a_table or value in registered, f"{found.name}:{name}"
