"""The examples of the statistics run, and what a stranger calls has one."""

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

from cxrbench import statistics

NAMES = [module.name for module in pkgutil.iter_modules(statistics.__path__)]
WITHOUT = {  # public functions that have no example yet: tables of a study, and inner steps
    "auroc": {"adjusted", "average_precision", "mean_influence", "variance_of"},
    "columns": {"read_columns"},
    "comparison": {"judged"},
    "components": {"spread"},
    "estimates": {"areas_with_ends"},
    "evaluate": {"require_controls"},
    "f1_search": {"crossing", "f1_search", "nearest_definition", "values_by_prevalence"},
    "measures": {
        *("both_classes", "calibration_by_chance", "calls_at", "f1_measures", "patient_sums", "samples_f1"),
        *("per_label_measures", "threshold_measures", "totals_at", "totals_of", "tuned_parts"),
    },
    "parity": {"family", "family_counts", "parity", "verdict_on"},
    "power": {
        *(
            "answers",
            "fixed_patients",
            "patients_by_definition",
            "power_table",
        ),
        *("power_different", "recorded_spreads", "smallest_margin", "sufficient_seeds", "upper_seeds"),
    },
    "predictions": {"load_predictions", "read_checked"},
    "runs": {"find_files", "same_files"},
    "sample": {"refitted"},
    "sources": {"halved_scores", "sources"},
}


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
    lacking = {of for of in functions if not of.startswith("_")} - shown
    assert lacking == WITHOUT.get(name, set()), "write an example, or strike one that has it off the list"
