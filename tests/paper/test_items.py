"""The registry of the paper's items: each is complete and in the paper, and no table is outside it."""

import re
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

import pytest

from conftest import ROOT
from cxrbench import paper
from cxrbench.paper import fmt
from cxrbench.paper.items import Item, figures, tables

ITEMS = [*tables().values(), *figures().values()]
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "paper/sections").glob("*.tex")))


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.function)
def test_an_item_is_complete(item: Item) -> None:
    assert callable(item.make) and item.title and item.caption.strip().endswith((".", "}"))
    assert bool(item.group) != bool(item.alt), "tables have a group, figures a text"
    assert len(signature(item.make).parameters) == 1


def test_every_item_is_in_the_paper_once_and_nothing_else_is() -> None:
    shown = re.findall(r"\\paper(table|figure)\{(\w+)\}", SOURCE)
    registered = {"table": tables(), "figure": figures()}
    assert sorted(shown) == sorted((kind, name) for kind, items in registered.items() for name in items)


def test_every_function_that_makes_a_table_is_registered() -> None:
    registered = [item.make for item in tables().values()]
    for found in iter_modules(paper.__path__):
        for name, value in vars(import_module(f"{paper.__name__}.{found.name}")).items():
            makes_a_table = getattr(value, "__annotations__", {}).get("return") in (fmt.Table, "Table")
            assert name.startswith("_") or not makes_a_table or value in registered, f"{found.name}:{name}"
