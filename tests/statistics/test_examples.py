"""The examples of the statistics run, and what a stranger calls has one."""

import doctest
import pkgutil
from importlib import import_module

import pytest

from cxrbench import statistics

NAMES = [module.name for module in pkgutil.iter_modules(statistics.__path__)]
WITH_EXAMPLE = {
    "auroc": ["auroc", "satterthwaite"],
    "calibration": ["reliability"],
    "components": ["between_networks", "between_platforms", "seed_variance"],
    "estimates": ["estimate_cell", "interval"],
    "evaluate": ["evaluate"],
    "measures": ["f1", "multilabel_f1"],
    "metrics": ["as_title", "findings_among", "in_words"],
    "parity": ["holm", "margin_of"],
    "power": ["fewest", "patients_to_see", "power_equivalent"],
    "predictions": ["findings_of", "predictions_table"],
    "sample": ["sample_of", "weight_blocks"],
    "shares": ["shares"],
}


@pytest.mark.parametrize("name", NAMES)
def test_examples_give_what_they_say(name: str) -> None:
    module = import_module(f"cxrbench.statistics.{name}")
    assert doctest.testmod(module).failed == 0
    tests = doctest.DocTestFinder(exclude_empty=True).find(module)
    shown = {test.name.rpartition(".")[2] for test in tests if test.examples}
    assert [function for function in WITH_EXAMPLE.get(name, []) if function not in shown] == []
