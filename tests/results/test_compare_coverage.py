"""The recorded simulation of comparisons keeps what is promised, and its truth is what it claims."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.compare_coverage import IMAGE, SCORED, SKILL, base, shifts
from conftest import ROOT
from cxrbench.results import simulated

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
