"""A mean over seeds has the interval of that mean, and says which seeds it lacks."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from cxrbench.paper.results import Results, mean_of_seeds, with_interval

GROUP = ("nih", "resnet18", "cpu")
NAMES = dict(zip(("dataset", "architecture", "platform"), GROUP, strict=True))


def read_with(values: list[float], bounds: tuple[float, float]) -> Results:
    """One group whose networks have these values, and the interval of their mean."""
    key = NAMES | {"metric": "auroc", "label": "macro"}
    metrics = [key | {"value": value, "ci_low": 0.1, "ci_high": 0.9} for value in values]
    mean = key | {"mean": sum(values) / len(values), "ci_low": bounds[0], "ci_high": bounds[1]}
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(Results))
    tables = {"metrics": pd.DataFrame(metrics), "spread": pd.DataFrame([mean])}
    return Results(**nothing | tables)  # type: ignore[arg-type]


def test_ends_are_of_the_mean_and_not_means_of_ends() -> None:
    read = read_with([0.70, 0.72, 0.74], (0.65, 0.79))
    assert read.mean(GROUP, "auroc", "macro") == "0.720 (0.650 to 0.790)"
    assert read.mean(GROUP, "auroc", "Mass") == "undefined"


def test_one_seed_has_the_interval_of_its_network() -> None:
    assert read_with([0.7], (0.6, 0.8)).mean(GROUP, "auroc", "macro") == "0.700 (0.100 to 0.900)"


def test_a_seed_without_a_value_is_said() -> None:
    read = read_with([0.70, float("nan"), 0.74], (0.65, 0.79))
    assert read.mean(GROUP, "auroc", "macro") == "0.720 (2 of 3 seeds)"
    assert mean_of_seeds(pd.Series([float("nan")] * 3)) == "undefined"


def test_networks_are_not_averaged_with_their_intervals() -> None:
    with pytest.raises(ValueError):
        with_interval(read_with([0.7, 0.8], (0.6, 0.8)).metrics)
