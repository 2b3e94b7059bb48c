"""The recorded simulation is what the code simulates, meets what is promised, and is what the docs say."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import ROOT
from cxrbench.analysis import coverage, mean_coverage, verdicts
from cxrbench.analysis.auroc import auroc, average_precision
from cxrbench.analysis.f1 import samples_f1
from cxrbench.analysis.studies import Archive, auroc_of, noise, scored, skill_of
from cxrbench.paper import simulated

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


def test_recorded_means_cover_and_f1_only_with_its_thresholds_chosen_anew():
    """Within three Monte-Carlo errors; F1 and average precision may be too wide, never much too narrow."""
    rows = simulated.read_simulated(RECORDED, mean_coverage)
    whole = rows[rows["positive_patients"] == ""].set_index(["what", "metric"])["rate"]
    assert whole[[mean_coverage.ONE, mean_coverage.MEAN]].between(0.93, 0.985).all()
    f1 = [metric for metric in mean_coverage.METRICS.values() if metric.startswith("F1,")]
    assert (whole[mean_coverage.ONE][f1] > whole[mean_coverage.ONE + mean_coverage.FIXED][f1] + 0.015).all()


def test_true_f1_of_samples_is_that_of_many_images(archive):
    rng = np.random.default_rng(0)
    skill, cuts = np.full(14, 1.2), np.where(np.arange(14) == 3, np.nan, 1.0)
    study = archive.draw(rng, 20_000)
    network, tuned = scored(study, skill, noise(rng, study)), np.isfinite(cuts)
    per_image, _ = samples_f1(network.labels[:, tuned], network.scores[:, tuned] >= cuts[tuned])
    assert mean_coverage._samples_f1(skill, cuts) == pytest.approx(per_image.mean(), abs=0.01)


def test_true_average_precision_is_that_of_many_images(archive):
    rng, prevalence = np.random.default_rng(0), archive.labels.mean(axis=0)
    study = archive.draw(rng, 20_000)
    ours = average_precision(scored(study, 1.2, noise(rng, study)))
    truth, _ = mean_coverage._of_skill(np.array([[1.2 - 1e-9], [1.2 + 1e-9]]) * np.ones(14), prevalence)
    assert (np.abs(ours.value - truth[0]) < 4 * ours.error).all()


@pytest.mark.slow
def test_simulating_means_again_gives_the_recorded_studies():
    """A few of them, of the same statements: all take two minutes on two cores."""
    few = mean_coverage.simulate_means(20)
    assert list(few["what"]) == list(simulated.read_simulated(RECORDED, mean_coverage)["what"])
    assert few.loc[few["positive_patients"] == "", "rate"].ge(0.7).all()


@pytest.mark.slow
def test_simulating_verdicts_again_gives_the_recorded_table():
    assert verdicts.simulate_verdicts().to_csv(index=False) == (RECORDED / verdicts.FILE).read_text()


@pytest.mark.slow
def test_simulating_again_gives_the_recorded_table():
    assert coverage.simulate().to_csv(index=False) == (RECORDED / coverage.FILE).read_text()


def test_docs_print_the_recorded_tables():
    text = (ROOT / "docs/statistics.md").read_text()
    assert all(block in text for block in simulated.blocks(RECORDED).values())
