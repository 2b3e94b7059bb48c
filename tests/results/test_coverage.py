"""The recorded simulation is what the code simulates, meets what is promised, and is what the docs say."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage import (
    AUROCS,
    SEEDS,
    SHARES,
    archive,
    draw,
    noise,
    scored,
    simulate_intervals,
    simulate_verdicts,
    skill_of,
)
from benchmarks.mean_coverage import of_skill, samples_f1, simulate_means
from conftest import ROOT
from cxrbench.results import simulated
from cxrbench.statistics.auroc import auroc, average_precision
from cxrbench.statistics.measures import samples_f1 as f1_of_samples
from cxrbench.statistics.metrics import MACRO

RECORDED = ROOT / "data/recorded"


def test_studies_have_nihs_patients_and_networks_the_auroc_of_their_skill():
    study = draw(np.random.default_rng(0), 20_000)
    assert study.n_clusters == len(np.unique(study.clusters)) == 20_000
    assert study.n_images / study.n_clusters == pytest.approx(112_120 / 30_805, rel=0.05)
    assert study.labels.mean(axis=0) == pytest.approx(archive().labels.mean(axis=0), abs=0.02)
    areas = auroc(scored(study, skill_of(0.8), noise(np.random.default_rng(0), study)))
    assert areas.value[:-1] == pytest.approx(0.8, abs=0.04)


def test_recorded_coverage_and_width_keep_what_is_promised():
    """Drawn scores meet it in every band. Real ones do where a finding's heaviest patient is in the study: no
    interval can know of a patient who is not."""
    recorded = simulated.COVERAGE.read(RECORDED)
    assert set(recorded["auroc"]) == {*map(str, AUROCS), simulated.REAL}
    by_kind = recorded.set_index(["what", "positive_patients"]).sort_index()
    many = recorded[recorded["positive_patients"].isin(["15 to 29", "30 to 99", "100 or more"])]
    moderated = many[many["what"] == simulated.FINDING]
    drawn = moderated["auroc"] != simulated.REAL
    assert moderated["rate"][drawn].between(0.94, 0.97).all()
    assert moderated["rate"][~drawn].between(0.925, 0.97).all()
    for kind, low, high in ((simulated.FINDING_WITH, 0.95, 0.99), (simulated.FINDING_WITHOUT, 0.9, 0.94)):
        assert many["rate"][many["what"] == kind].between(low, high).all()
    assert (moderated["wide"] <= 0.01).all()
    assert by_kind.loc[(simulated.FINDING, "5 to 14"), "rate"].ge(0.94).all()
    assert by_kind.loc[(MACRO, ""), "rate"].between(0.93, 0.97).all()
    assert by_kind.loc[(simulated.FINDING_BY_IMAGE, "30 to 99"), "rate"].le(0.87).all()


def test_moderated_intervals_are_a_quarter_narrower():
    recorded = simulated.COVERAGE.read(RECORDED)
    many = recorded[recorded["positive_patients"] != "5 to 14"].assign(
        total=lambda rows: rows["cases"] * rows["mean_width"]
    )
    sums = many.groupby(["what", "auroc"])[["total", "cases"]].sum()
    width = sums["total"] / sums["cases"]
    ratio = width[simulated.FINDING] / width[simulated.FINDING_OWN]
    assert (ratio.drop(simulated.REAL) <= 0.75).all() and ratio[simulated.REAL] < 0.78


def test_recorded_verdicts_err_in_one_of_twenty_studies():
    """Three Monte-Carlo errors are given."""
    rows = simulated.VERDICT_RATES.read(RECORDED)
    errors = rows[rows["what"].isin(simulated.ERRORS)]
    assert set(errors["seeds"]) == {3, 5} and set(errors["platform_share"]) == {0.2, 0.5, 1.0}
    assert (errors["rate"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / errors["cases"])).all()
    assert rows.loc[rows["what"] == simulated.MEAN_HOLDS, "rate"].ge(0.94).all()


def test_recorded_means_cover_and_f1_only_with_its_thresholds_chosen_anew():
    """Within three Monte-Carlo errors; F1 and average precision may be too wide, never much too narrow."""
    rows = simulated.MEAN_COVERAGE.read(RECORDED)
    whole = rows[rows["positive_patients"] == ""].set_index(["what", "metric"])["rate"]
    refit, fixed = (whole[kind] for kind in (simulated.ONE, simulated.ONE + simulated.FIXED))
    assert pd.concat([refit, whole[simulated.MEAN]]).between(0.9, 0.99).all()
    f1 = list(simulated.F1_WHOLE.values())
    assert (refit[f1] > fixed[f1]).all()


def test_true_values_are_those_of_many_images():
    rng = np.random.default_rng(0)
    skill, cuts = np.full(14, 1.2), np.where(np.arange(14) == 3, np.nan, 1.0)
    study = draw(rng, 20_000)
    network, tuned = scored(study, skill, noise(rng, study)), np.isfinite(cuts)
    per_image, _ = f1_of_samples(network.labels[:, tuned], network.scores[:, tuned] >= cuts[tuned])
    assert samples_f1(skill, cuts) == pytest.approx(per_image.mean(), abs=0.01)
    ours = average_precision(network)
    skills = np.array([[1.2 - 1e-9], [1.2 + 1e-9]]) * np.ones(14)
    truth, _ = of_skill(skills, archive().labels.mean(axis=0))
    assert (np.abs(ours.value - truth[0]) < 4 * ours.error).all()


@pytest.mark.slow
def test_simulating_means_again_gives_the_recorded_table():
    again = simulate_means()
    assert again.to_csv(index=False) == simulated.MEAN_COVERAGE.read(RECORDED).to_csv(index=False)


@pytest.mark.slow
def test_simulating_again_gives_the_recorded_table():
    """At one skill of four, and one share of three with three seeds: the others take minutes of a core."""
    rows = simulated.COVERAGE.read(RECORDED)
    again = simulate_intervals(RECORDED, skills=AUROCS[:1])
    assert again.to_csv(index=False) == rows[rows["auroc"] == str(AUROCS[0])].to_csv(index=False)
    rows = simulated.VERDICT_RATES.read(RECORDED)
    again = simulate_verdicts(shares=SHARES[:1], seeds=SEEDS[:1])
    same = (rows["platform_share"] == SHARES[0]) & (rows["seeds"] == SEEDS[0])
    assert again.to_csv(index=False) == rows[same].to_csv(index=False)
