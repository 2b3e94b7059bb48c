"""What three paired runs can show at all: the figures on docs/statistics-methods.md."""

import re

import pytest

from benchmarks.three_runs import VARIANCE, most_power, rates
from conftest import ROOT
from cxrbench.results import simulated


def test_no_interval_of_three_runs_finds_two_thirds_and_ours_is_what_was_simulated() -> None:
    found, errs, _ = rates(VARIANCE)
    recorded = simulated.COMPARISONS.read(ROOT / "data/recorded").query(
        "runs == 3 and paired and patients == 500"
    )
    rows = recorded[recorded["what"] == simulated.SAID_EQUIVALENT].set_index("difference")["rate"]
    assert found == pytest.approx(rows[0.0], abs=0.03) and errs == pytest.approx(rows[0.01], abs=0.02)
    most = most_power()
    assert found < most < 2 / 3
    assert rates(4.0)[2] == pytest.approx(0.926, abs=5e-4)
    assert most_power(alpha=0.08, cells=50, widths=40) > 0.75  # what a rule that errs more often would find
    text = (ROOT / "docs/statistics-methods.md").read_text()
    assert re.search(rf"at most\s+{100 * most:.1f} %", text)
