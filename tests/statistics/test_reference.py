"""One run against a reference of several: inside where it is one of them, outside where it is worse."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from columns import SCORES
from conftest import ROOT
from cxrbench.statistics import compare_runs
from cxrbench.statistics.auroc import Estimate, auroc
from cxrbench.statistics.components import from_reference
from cxrbench.statistics.errors import UserError
from cxrbench.statistics.predictions import load_predictions
from cxrbench.statistics.sample import sample_of

TEN = ROOT / "data/recorded/nih128-32px-fp32/resnet18/cpu"
PATIENTS = 200


@cache
def of_seed(seed: int) -> pd.DataFrame:
    table, _ = load_predictions(TEN / f"seed{seed}/predictions.parquet")
    return table[table["split"] == "test"]


def recorded(seeds=range(10)) -> dict[int, pd.DataFrame]:
    return {seed: of_seed(seed) for seed in seeds}


def outside(run: Estimate, reference: list[Estimate]) -> bool:
    (low,), (high,) = from_reference(run, reference).interval(0.95)
    return not low <= 0 <= high


def drawn_run(rng: np.random.Generator, of_patients: float, of_run: float, shift: float = 0.0) -> Estimate:
    """A run whose score is a mean over patients, each with a part of this run, plus a part of the run."""
    values = of_patients * rng.normal(size=PATIENTS)
    influence = (values - values.mean())[:, None] / np.sqrt(PATIENTS * (PATIENTS - 1))
    value = np.array([values.mean() + of_run * rng.normal() + shift])
    return Estimate(value, influence, np.array([PATIENTS - 1.0]))


@pytest.mark.parametrize(
    ("of_patients", "of_run", "runs"), [(0.05, 0.0, 10), (0.05, 0.004, 5), (0.01, 0.004, 10)]
)
def test_false_alarms_are_one_in_twenty_and_what_is_noticed_is_noticed(of_patients, of_run, runs) -> None:
    rng, alarms, noticed = np.random.default_rng(2), [], []
    error = np.sqrt((of_patients**2 / PATIENTS + of_run**2) * (1 + 1 / runs))
    for _ in range(500):
        reference = [drawn_run(rng, of_patients, of_run) for _ in range(runs)]
        alarms.append(outside(drawn_run(rng, of_patients, of_run), reference))
        new = drawn_run(rng, of_patients, of_run)
        (reach,) = from_reference(new, reference).noticeable()
        shifted = Estimate(new.value - reach, new.influence, new.freedom)
        noticed.append(outside(shifted, reference))
        assert reach > 2 * error * 0.2
    assert 0.02 < np.mean(alarms) < 0.075
    assert 0.7 < np.mean(noticed) < 0.95


def test_each_recorded_run_against_the_nine_others() -> None:
    """docs/compare.md has the figures of all ten-run settings."""
    means = {}
    for seed, table in recorded().items():
        sample = sample_of(table)
        many = sample.positive_clusters(sample.labels) >= 10
        means[seed] = auroc(sample).mean(many)
    alarms = [outside(means[s], [run for other, run in means.items() if other != s]) for s in means]
    assert sum(alarms) <= 2
    worse = [Estimate(run.value - 0.03, run.influence, run.freedom) for run in means.values()]
    assert all(outside(run, [other for other in means.values() if other is not run]) for run in worse)


def test_a_degraded_run_is_outside_and_a_sound_one_inside() -> None:
    runs = recorded(range(7))
    new = runs.pop(6)
    sound = compare_runs({6: new}, runs, reference=True)
    row = sound.main
    assert sound.verdict == "inside" and sound.reference
    assert (row["runs_a"], row["runs_b"], row["paired"], row["margin"]) == (1, 6, False, None)
    assert row["value_a"] - row["value_b"] == pytest.approx(row["difference"])
    rng = np.random.default_rng(0)
    noisy = {
        name: (new[name].rank(pct=True) + rng.normal(0, 0.4, len(new))).rank(pct=True) for name in SCORES
    }
    broken = compare_runs({6: new.assign(**noisy)}, runs, reference=True)
    assert broken.verdict == "outside" and broken.main["ci95_high"] < 0
    assert -broken.main["difference"] > broken.main["noticeable"]
    assert {row["verdict"] for row in broken.rows} <= {"inside", "outside", "cannot_tell"}


def test_a_run_that_is_one_of_the_reference_or_too_few_are_an_error(tmp_path: Path) -> None:
    runs = recorded(range(3))
    with pytest.raises(UserError, match="compares one run with several; A has 2"):
        compare_runs({0: runs[0], 1: runs[1]}, runs, reference=True)
    with pytest.raises(UserError, match="a reference takes 3 runs, better ten; B has 2"):
        compare_runs({0: runs[0]}, {1: runs[1], 2: runs[2]}, reference=True)
    with pytest.raises(UserError, match="run 0 of A is run 0 of B too"):
        compare_runs(TEN / "seed0", str(TEN / "seed[0-2]"), reference=True)
