"""The power of a study sized from a pilot, against simulated studies and recorded runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conftest import ROOT, must_fail, must_work
from cxrbench.statistics.auroc import Estimate
from cxrbench.statistics.compare_words import settle
from cxrbench.statistics.comparison import difference_of
from cxrbench.statistics.components import Verdict, verdict_of
from cxrbench.statistics.pilot import VarianceParts, needs, power, variance_parts
from cxrbench.statistics.power import Design

PATIENTS, MARGIN = 300, 0.01
RECORDED = [f"nih128-32px-{precision}/resnet18/cpu" for precision in ("fp32", "bf16")]


def study(
    rng: np.random.Generator, runs: int, patients: int, of_patients: float, of_run: float, paired: bool
) -> tuple[dict[int, Estimate], dict[int, Estimate]]:
    """Two equal platforms: a run's score is the mean of its patients, with deviations ``of_patients`` of each
    patient and run, plus the run's own deviation ``of_run``. Half of both is common to runs of one number, if
    ``paired``."""

    def made(scale: float, size) -> list[np.ndarray]:
        common, one, two = (scale * np.sqrt(0.5) * rng.normal(size=size) for _ in range(3))
        return [common + one, (common if paired else scale * np.sqrt(0.5) * rng.normal(size=size)) + two]

    sides: list[dict[int, Estimate]] = [{}, {}]
    shared = 5 * of_patients * rng.normal(size=patients)  # common to all runs: it cancels
    for number in range(runs):
        for side, values, own in zip(sides, made(of_patients, patients), made(of_run, 1), strict=True):
            values = shared + values
            influence = (values - values.mean())[:, None] / np.sqrt(patients * (patients - 1))
            key = number if paired or side is sides[0] else runs + number
            side[key] = Estimate(np.array([values.mean() + own[0]]), influence, np.array([patients - 1.0]))
    return sides[0], sides[1]


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("of_patients", "of_run"), [(0.12, 0.002), (0.04, 0.006)])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_power_from_pilots_is_what_simulated_studies_have(paired, of_patients, of_run, runs) -> None:
    """Within ten points, sized from a pilot of 200 runs and half as many patients: a pilot of three runs
    knows its spread to a factor of two."""
    rng = np.random.default_rng(1)
    half = PATIENTS // 2
    pilot = variance_parts(*study(rng, 200, half, of_patients, of_run, paired), 0, half, paired)
    said = []
    for _ in range(400):
        found = difference_of(*study(rng, runs, PATIENTS, of_patients, of_run, paired))
        ends = [float(end[0]) for level in (0.9, 0.95) for end in found.interval(level)]
        said.append(verdict_of(ends, MARGIN) is Verdict.EQUIVALENT)
    assert power(pilot, Design(PATIENTS, runs), MARGIN) == pytest.approx(np.mean(said), abs=0.1)


def test_what_is_needed_is_the_fewest_with_eighty_percent() -> None:
    variance = VarianceParts((0, 2e-6, 1e-6), 0, 2e-5, 1e-5, True, 10, 500, 400.0, (4e-5, 2e-5))
    need = needs(variance, MARGIN, runs=3)
    for case, count in (
        (variance, need.runs_needed_as_measured),
        (variance.at_worst(), need.runs_needed_at_worst),
    ):
        assert count and power(case, Design(500, count), MARGIN) >= 0.8 > power(
            case, Design(500, count - 1), MARGIN
        )
    patients = need.patients_needed_as_measured
    assert patients and power(variance, Design(patients, 3), MARGIN) >= 0.8
    assert need.power_at_worst < need.power_as_measured
    never = needs(replace(variance, run=1e-3), MARGIN, runs=3)
    assert never.patients_needed_as_measured is None and never.both_needed is None


def test_where_neither_runs_nor_patients_suffice_alone_both_do_together() -> None:
    """Found by a reader of `compare`: "no number is enough" twice is no advice."""
    variance = VarianceParts((4e-5, 2e-6, 1e-5), 4e-5, 2e-5, 1e-4, True, 3, 500, 400.0, (4e-5, 2e-4))
    need = needs(variance, MARGIN)
    assert need.runs_needed_as_measured is need.patients_needed_as_measured is None
    assert need.both_needed
    runs, patients = need.both_needed
    assert (
        power(variance, Design(patients, runs), MARGIN)
        >= 0.8
        > power(variance, Design(patients - 2, runs), MARGIN)
    )
    assert f"{runs} runs and {patients:,} patients together are enough." in settle(need, "inconclusive")


def test_a_recorded_pilot_has_the_power_that_its_seeds_showed() -> None:
    """Estimated elsewhere for ResNet-18 at three seeds: 49 to 97 %, 68 % with new patients."""
    (row,) = json.loads(must_work("power", *RECORDED, "--seeds", 3, "--json", cwd=ROOT).stdout)
    assert row["power_as_measured"] == pytest.approx(0.68, abs=0.1)
    assert row["power_at_worst"] < row["power_as_measured"]
    assert row["runs_needed_as_measured"] <= row["runs_needed_at_worst"]
    assert "with 10 runs each and 510 patients" in must_work("power", *RECORDED, cwd=ROOT).stdout, "its own"


def test_a_pilot_of_one_run_says_nothing() -> None:
    alone = [f"data/recorded/{side}/seed0" for side in RECORDED]
    assert "a pilot takes two runs on each side" in must_fail("power", *alone, cwd=ROOT)
