"""The recorded simulation is what the code simulates, meets what is promised, and is what the docs say."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import ROOT
from cxrbench.metrics import coverage, threshold_spread, verdicts
from cxrbench.metrics.auroc import auroc
from cxrbench.metrics.studies import Archive, auroc_of, noise, scored, skill_of
from cxrbench.report import simulated

RECORDED = ROOT / "data/recorded"


@pytest.fixture(scope="module")
def archive() -> Archive:
    return Archive.read()


@pytest.fixture(scope="module")
def recorded():
    return simulated.read_simulated(RECORDED, coverage).set_index(["what", "positive_patients"])


def test_studies_have_nihs_patients(archive):
    study = archive.draw(np.random.default_rng(0), 20_000)
    assert study.n_clusters == len(np.unique(study.clusters)) == 20_000
    assert study.n_images / study.n_clusters == pytest.approx(112_120 / 30_805, rel=0.05)
    assert study.labels.mean(axis=0) == pytest.approx(archive.labels.mean(axis=0), abs=0.02)


def test_networks_have_the_auroc_that_their_skill_says(archive):
    rng = np.random.default_rng(0)
    study = archive.draw(rng, 8_000)
    areas = auroc(scored(study, skill_of(0.8), noise(rng, study)))
    assert areas.value[:-1] == pytest.approx(0.8, abs=0.04)
    drawn = skill_of(0.8, 0.5) + 0.5 * rng.normal(size=100_000)
    assert auroc_of(drawn).mean() == pytest.approx(0.8, abs=0.002)


def test_recorded_coverage_keeps_what_is_promised(recorded):
    for band in ("15 to 29", "30 to 99", "100 or more"):
        assert recorded.loc[(coverage.FINDING, band), "rate"].between(0.94, 0.97).all()
    assert recorded.loc[(coverage.MACRO, ""), "rate"].between(0.94, 0.97).all()
    assert recorded.loc[(coverage.FINDING, "10 to 14"), "rate"].ge(0.93).all()
    assert recorded.loc[(coverage.FINDING_BY_IMAGE, "30 to 99"), "rate"].le(0.85).all()


def test_recorded_verdicts_err_in_one_of_twenty_studies():
    """Three Monte-Carlo errors are given."""
    rows = simulated.read_simulated(RECORDED, verdicts)
    errors = rows[rows["what"].isin(verdicts.ERRORS)]
    assert set(errors["seeds"]) == {3, 5} and set(errors["platform_share"]) == {0.2, 0.5, 1.0}
    assert (errors["rate"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / errors["cases"])).all()
    means = rows[rows["what"] == verdicts.MEAN_HOLDS]
    assert means["rate"].ge(0.94).all()


def test_choosing_thresholds_adds_to_the_uncertainty_of_f1():
    fixed, chosen = simulated.read_simulated(RECORDED, threshold_spread)["rate"]
    assert 0.93 <= fixed <= 0.97 and chosen < fixed


@pytest.mark.slow
def test_simulating_thresholds_again_gives_the_recorded_table():
    again = threshold_spread.simulate_thresholds().to_csv(index=False)
    assert again == (RECORDED / threshold_spread.FILE).read_text()


@pytest.mark.slow
def test_simulating_verdicts_again_gives_the_recorded_table():
    assert verdicts.simulate_verdicts().to_csv(index=False) == (RECORDED / verdicts.FILE).read_text()


@pytest.mark.slow
def test_simulating_again_gives_the_recorded_table():
    assert coverage.simulate().to_csv(index=False) == (RECORDED / coverage.FILE).read_text()


def test_docs_print_the_recorded_tables():
    text = (ROOT / "docs/statistics.md").read_text()
    assert all(block in text for block in simulated.blocks(RECORDED).values())
