"""Power against simulation and against formulas of others."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import nct, norm, t

from conftest import ROOT, must_fail, must_work
from cxrbench.statistics.auroc import Estimate
from cxrbench.statistics.components import between_platforms
from cxrbench.statistics.power import (
    DIFFERENCE,
    PREPRINT,
    SHARES,
    Design,
    SeedSpread,
    answers,
    fewest,
    patients_by_definition,
    patients_to_see,
    power_different,
    power_equivalent,
    recorded_spreads,
    smallest_margin,
)
from cxrbench.study.config import read_study

RECORDED = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.006)


def simulated(design: Design, margin: float, difference: float, runs: int = 5000) -> tuple[float, float]:
    """Shares of "equivalent" and of p < 5 % among comparisons drawn and judged as the parity table does."""
    rng = np.random.default_rng(7)
    luck, skill = (part * design.seeds for part in design.parts(RECORDED))  # of one seed's difference
    values = rng.normal(difference, np.sqrt(luck + skill), (design.seeds, runs))
    patients = 40  # of each seed, which has patients of its own: luck is not shared
    seeds, nobody = {}, np.zeros((design.seeds * patients, runs))
    for seed, value in enumerate(values):
        influence = nobody.copy()
        influence[seed * patients : (seed + 1) * patients] = np.sqrt(luck / patients)
        seeds[seed] = Estimate(value, influence, np.full(runs, design.patients - 1.0))
    other = {seed: Estimate(nobody[0], nobody, np.full(runs, np.inf)) for seed in seeds}
    found = between_platforms(seeds, other)
    equivalent = found.p_equivalent(np.full(runs, margin)) < 0.05
    return equivalent.mean(), (found.p_different() < 0.05).mean()


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("seeds", "difference"), [(3, 0.0), (3, 0.01), (8, 0.0), (8, 0.004)])
def test_power_is_how_often_the_verdict_falls(share: float, seeds: int, difference: float) -> None:
    design = Design(600, seeds, share)
    equivalent, different = simulated(design, 0.01, difference)
    assert power_equivalent(RECORDED, design, 0.01, difference) == pytest.approx(equivalent, abs=0.03)
    if difference:
        assert power_different(RECORDED, design, difference) == pytest.approx(different, abs=0.03)


def test_power_is_that_of_known_formulas() -> None:
    """The paired t test without patients, the normal formulas with many seeds and for patients at best."""
    design, spread = Design(100, 6), SeedSpread(0, 100, 0.01)
    shift, reach = 0.02 / (0.01 * np.sqrt(2 / 6)), t.ppf(0.975, 5)
    exact = nct.sf(reach, 5, shift) + nct.cdf(-reach, 5, shift)
    assert power_different(spread, design, 0.02) == pytest.approx(exact, abs=1e-3)
    many, margin = Design(100, 2000), (norm.ppf(0.95) + norm.ppf(0.9)) * 0.01 * np.sqrt(2 / 2000)
    assert power_equivalent(spread, many, margin) == pytest.approx(0.8, abs=2e-3)
    assert smallest_margin(spread, many) == pytest.approx(margin, rel=2e-3)
    of_three_seeds = SeedSpread(0.0036 * np.sqrt(3 / 2), 510, 0)
    assert patients_to_see(of_three_seeds, Design(510, 3), 0.002) == pytest.approx(13_000, rel=0.01)
    assert patients_to_see(RECORDED, Design(510, 3), 0.002) is None
    for share in SHARES:  # a true difference of the margin
        assert power_equivalent(SeedSpread(0.001, 500, 0.003), Design(500, 10, share), 0.01, 0.01) < 0.07


def test_what_is_needed_suffices_and_less_does_not() -> None:
    def shown(design: Design) -> float:
        return power_equivalent(RECORDED, design, 0.01)

    seeds = fewest("seeds", shown, Design(500, 3))
    assert shown(Design(500, seeds - 1)) < 0.8 <= shown(Design(500, seeds))
    patients = fewest("patients", shown, Design(500, 3, 0.0))
    assert shown(Design(int(patients * 0.99), 3, 0.0)) < 0.8 <= shown(Design(patients, 3, 0.0))
    assert fewest("patients", shown, Design(500, 3)) is None, "seeds alone hide it"


def test_the_command_answers_from_given_numbers_and_names_what_is_wrong(tmp_path: Path) -> None:
    given = ["power", "--patient-se", "0.004", "--measured-on", "500", "--seed-sd", "0.006"]
    (row,) = json.loads(must_work(*given, "--share", "1", "--difference", "0.002", "--json").stdout)
    expected = answers(RECORDED, Design(500, 3), 0.01, 0.002)
    assert list(row) == list(expected) and (row["patients_needed"], row["patients_to_see"]) == (None, None)
    known = {name: value for name, value in expected.items() if value is not None}
    assert {name: row[name] for name in known} == pytest.approx(known, rel=1e-6)
    shown = must_work(*given, "--share", "1").stdout
    assert "none suffices" in shown and max(map(len, shown.splitlines())) <= 100
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier/spread.csv").write_text("dataset,metric\n")
    for words, message in [
        (["power", "--tables", str(tmp_path)], "make paper-from-evidence"),
        (["power", "--tables", str(tmp_path / "earlier")], "an earlier version wrote it; run `make"),
        (["power", "--patient-se", "0.004"], "--measured-on"),
        ([*given, "--metric", "f1_micra"], "there is no spread of it; did you mean 'f1_micro'"),
        ([*given, "--patient-se", "0"], "--patient-se above 0"),  # sharing all, such runs never vary
        ([*given, "--seed-sd", "inf"], "are below 1"),
        (["power", "a", "b", "--seed-sd", "0.5"], "leave out --share, --patient-se, --seed-sd"),
    ]:
        assert message in must_fail(*words)
    (tmp_path / "phantom").mkdir()
    assert "a pilot takes two sets of runs" in must_fail("power", tmp_path / "phantom")
    large = ("power", "--patient-se", "0.01", "--measured-on", "100", "--difference", "1", "--json")
    assert {row["patients_to_see"] for row in json.loads(must_work(*large).stdout)} == {2}
    wrong = {
        "--margin": 0,
        "--seeds": 2,
        "--difference": "inf",
        "--measured-on": 1,
        "--share": 1.5,
        "--seed-sd": "nan",
    }
    for option, value in wrong.items():
        assert f"Invalid value for '{option}'" in must_fail(*given, option, value, code=2)


def test_the_preprints_difference_is_that_of_its_claim() -> None:
    claims = yaml.safe_load((ROOT / "data/claims.yaml").read_text())["claims"]
    (claim,) = (claim for claim in claims if claim["id"] == "P02")
    assert claim["inputs"] == PREPRINT and DIFFERENCE == 0.002


@pytest.mark.slow
def test_every_definition_of_f1_is_sized_with_thresholds_anew_and_fixed(from_all_evidence: Path) -> None:
    spread = pd.read_csv(from_all_evidence / "results/tables/spread.csv")
    spread = spread[~spread["dataset"].str.contains("phantom|-arith-|-fold")]  # blocks grow with every record
    definitions = {name for name in spread["metric"] if name.startswith("f1_")}
    anew, fixed = (patients_by_definition(spread, given).set_index("metric") for given in (False, True))
    assert set(anew.index) == definitions == set(fixed.index)
    ends = anew["patients"].astype(float).groupby("metric").agg(["min", "max"])
    assert ends.loc["f1_macro"].round(-3).tolist() == [29_000, 99_000]
    assert ends.loc["f1_micro"].round(-3).tolist() == [87_000, 228_000]


def test_the_variance_of_skill_is_pooled_over_recipes() -> None:
    """Three recipes of three seeds; in one the seeds lie closer together than luck alone would have them."""
    row = {"platform": "cpu", "label": "macro", "metric": "f1_macro", "n_seeds": 3, "n_patients": 500}
    row |= {"patient_se": 0.005, "patient_se_of_mean": 0.004}
    spreads = {"a": 0.003, "b": 0.006, "c": 0.009}
    luck = 1.5 * (0.005**2 - 0.004**2)
    rows = [
        row
        | {"dataset": "real", "architecture": name, "seed_sd": sd, "drawn": False}
        | {"seed_sd_beyond_patients": max(sd**2 - luck, 0) ** 0.5}
        for name, sd in spreads.items()
    ]
    drawn = row | {"dataset": "other", "architecture": "a", "drawn": True}
    drawn |= {"seed_sd": 0.5, "seed_sd_beyond_patients": 0.5}
    found = recorded_spreads(pd.DataFrame([*rows, drawn]), ["f1_macro"])
    skill = np.mean([sd**2 for sd in spreads.values()]) - luck
    for _, known, seeds in found[:3]:
        assert (known.seed_sd, known.patient_se) == pytest.approx((skill**0.5, luck**0.5))
        assert (known.freedom, seeds) == (6, 3)
    assert found[3][1].freedom == 2 and found[3][1].seed_sd == pytest.approx(0.5, rel=1e-3)


def test_the_command_and_the_table_of_the_paper_say_the_same(from_evidence: Path) -> None:
    words = ["power", "nih128-64px", "--metric", "f1_macro", "--difference", "0.002", "--json"]
    table = pd.read_csv(from_evidence / "results/tables/power.csv")
    table = table[(table["dataset"] == "nih128-64px") & (table["metric"] == "f1_macro")]
    of_margin = ["margin", "power_at_zero", "seeds_needed", "patients_needed"]  # the study has none of F1
    assert table[of_margin].isna().all(axis=None)
    said = pd.DataFrame(json.loads(must_work(*words, cwd=from_evidence).stdout)).drop(columns="drawn")
    said, ours = (
        of.drop(columns=of_margin)
        for of in (said, table.drop(columns="measured_seeds").reset_index(drop=True))
    )
    pd.testing.assert_frame_equal(said, ours, check_dtype=False, rtol=1e-5)


def test_the_command_begins_with_the_verdict_and_fits_a_screen(from_evidence: Path) -> None:
    shown = must_work("power", cwd=from_evidence).stdout
    assert shown.startswith(("Enough: ", "Too few: ", "It depends on the run: "))
    assert len(shown.splitlines()) <= 24 and "nih128-64px " in shown and "phantom-" not in shown
    asked = must_work("power", "nih128-64px/resnet18/cpu", cwd=from_evidence).stdout.splitlines()
    assert asked[0] == "nih128-64px/resnet18/cpu" and asked[1].startswith(("Enough", "Too few", "It depends"))


@pytest.mark.slow
def test_the_study_plans_the_seeds_that_a_verdict_needs(from_all_evidence: Path) -> None:
    study = read_study(ROOT / "config/config.yaml")
    power = pd.read_csv(from_all_evidence / "results/tables/power.csv")
    power = power.query("dataset == 'nih128-64px' and metric == 'auroc' and share == 1")
    needed = power.groupby("architecture")["seeds_needed"].max().dropna().astype(int)
    assert len(needed) > 1
    cells = [cell for cell in study.all_cells() if cell.dataset == "nih128-64px"]
    planned = Counter((cell.architecture, cell.platform) for cell in cells)
    powers = pd.read_csv(from_all_evidence / "results/tables/powers.csv").query("at_worst >= 0.8")
    of_pairs = powers.groupby(["architecture", "dataset_a", "dataset_b"])["seeds"].min()
    at_worst = of_pairs.groupby("architecture").max()
    for network, seeds in needed.items():
        seeds = max(seeds, at_worst.get(network, 0))
        for platform in ("cuda", "neuron"):
            assert planned[network, platform] >= seeds, f"{network}: plan {seeds} seeds on {platform}"
