"""The examples of the statistics run, and what a stranger calls has one."""

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

from cxrbench import statistics

NAMES = [module.name for module in pkgutil.iter_modules(statistics.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_examples_give_what_they_say_and_public_functions_have_one(name: str) -> None:
    module = import_module(f"cxrbench.statistics.{name}")
    assert doctest.testmod(module, verbose=False).failed == 0
    tests = doctest.DocTestFinder(exclude_empty=True).find(module)
    shown = {test.name.rpartition(".")[2] for test in tests if test.examples}
    functions = {
        of
        for of, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    assert not {of for of in functions if not of.startswith("_")} - shown, "write an example"
