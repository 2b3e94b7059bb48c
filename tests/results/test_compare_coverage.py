"""The recorded simulation of comparisons keeps what is promised, and its truth is what it claims."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.compare_coverage import IMAGE, SCORED, SKILL, base, shifts
from benchmarks.compare_recorded import _equivalent, _estimates
from conftest import ROOT
from cxrbench.results import simulated
from cxrbench.statistics.pilot import power, variance_parts
from cxrbench.statistics.power import Design

RECORDED = ROOT / "data/recorded"


def broken(table: pd.DataFrame) -> list[str]:
    """The statements that err more often than promised, each plus twice its Monte-Carlo error."""
    slack, rate = 2 * table["monte_carlo_error"], table["rate"]
    said, apart = table["what"], table["difference"]
    bad = {
        "false different": (said == simulated.SAID_DIFFERENT) & (apart == 0) & (rate > 0.05 + slack),
        "false equivalent": (said == simulated.SAID_EQUIVALENT) & (apart >= 0.01) & (rate > 0.05 + slack),
        "coverage": (said == simulated.HOLDS) & ((rate < 0.94 - slack) | (rate > 0.97 + slack)),
    }
    return [name for name, rows in bad.items() if rows.any()]


def test_recorded_comparisons_keep_what_is_promised() -> None:
    recorded = simulated.COMPARISONS.read(RECORDED)
    assert set(recorded["what"]) == set(simulated.STATEMENTS)
    assert set(recorded["difference"]) == {0, 0.005, 0.01, 0.02} and set(recorded["runs"]) == {3, 5, 10}
    assert broken(recorded) == []
    for statement, difference, name in (
        (simulated.SAID_DIFFERENT, 0, "false different"),
        (simulated.SAID_EQUIVALENT, 0.01, "false equivalent"),
        (simulated.HOLDS, 0.02, "coverage"),
    ):
        worse = recorded.copy()
        here = (worse["what"] == statement) & (worse["difference"] == difference)
        worse.loc[here, "rate"] = 0.2
        assert broken(worse) == [name]


def far_off(pilots: pd.DataFrame) -> pd.DataFrame:
    """Rows whose power is more than ten points from how often simulated studies said "equivalent"."""
    return pilots[(pilots["power_said"] - pilots["rate"]).abs() > 0.1]


def test_power_from_recorded_pilots_is_within_ten_points_of_simulated_studies() -> None:
    pilots = simulated.PILOTS.read(RECORDED)
    assert set(pilots["pilot_runs"]) == {3, 5, 10} and set(pilots["network"]) == {"resnet18", "convnext_pico"}
    assert far_off(pilots).empty
    assert len(far_off(pilots.assign(power_said=1.0))) > 2


def test_a_recorded_pilot_and_its_study_are_recomputed() -> None:
    recorded = simulated.PILOTS.read(RECORDED)
    a, b = (_estimates(RECORDED, f"nih128-32px-{name}/resnet18/cpu") for name in ("fp32", "bf16"))
    a, b = ({seed: side[seed] for seed in range(3)} for side in (a, b))
    variance = variance_parts(a, b, 0, 510, paired=True)
    row = recorded.query("network == 'resnet18' and pilot_runs == 3 and runs == 3").iloc[0]
    assert power(variance, Design(510, 3), 0.01) == pytest.approx(row["power_said"], abs=1e-4)
    rng = np.random.default_rng(1)
    rate = np.mean([_equivalent(rng, a, b, variance, 3) for _ in range(100)])
    assert rate == pytest.approx(row["rate"], abs=0.15)


def alarms(references: pd.DataFrame) -> pd.DataFrame:
    """Rows with more false alarms than one in twenty, plus twice their error."""
    return references[references["rate"] > 0.05 + 2 * references["monte_carlo_error"]]


def test_a_recorded_run_is_rarely_outside_its_nine_fellows() -> None:
    references = simulated.REFERENCES.read(RECORDED)
    assert list(references["what"]) == [*simulated.OF_RUNS] and alarms(references).empty
    assert len(alarms(references.assign(rate=0.2))) == 3


def test_the_second_platform_is_worse_by_the_difference() -> None:
    """Over all images of a network, with the noise of many runs."""
    network = RECORDED / SCORED[0]
    of, rng = base(network), np.random.default_rng(0)
    k = 2
    lower, positive = shifts(network, 0.02)[k], of.labels[:, k]

    def area(shift: float) -> float:
        noise = IMAGE * rng.normal(size=len(positive)) + SKILL * rng.normal() * positive
        ranks = pd.Series(of.scores[:, k] - shift * positive + noise).rank()
        n = positive.sum()
        return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (~positive).sum()))

    apart = np.mean([area(0) for _ in range(150)]) - np.mean([area(lower) for _ in range(150)])
    assert apart == pytest.approx(0.02, abs=0.003)
