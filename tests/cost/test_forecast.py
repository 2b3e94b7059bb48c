"""What a study would take before it runs."""

import json
import math
import re
from pathlib import Path

import pytest

from conftest import ROOT, SIZES, must_work
from cxrbench.cost.forecast import by_dataset, forecast
from cxrbench.cost.prices import read_prices
from cxrbench.evidence.store import EvidenceStore
from cxrbench.neuron.audit import read_audit
from cxrbench.study.config import Study, parse_study, read_study
from cxrbench.training.plan import Plan

RECORDED = ROOT / "data/recorded"
STUDY = read_study(ROOT / "config/config.yaml")


def changed(**values) -> Study:
    return parse_study(STUDY.model_dump(mode="json", exclude_unset=True) | values)


def block(dataset: str, architecture: str, platform: str, *seeds: int) -> dict:
    parts = {"architectures": [architecture], "platforms": [platform], "seeds": list(seeds)}
    return {"dataset": dataset, **parts}


def rows(study: Study) -> dict[tuple[str, str, str], dict]:
    prices = read_prices(ROOT / "data/prices.csv")
    table = forecast(Plan(study, EvidenceStore(RECORDED), Path("nowhere")), prices)
    return {tuple(row[:3]): dict(zip(table, row, strict=True)) for row in table.to_numpy()}


def test_a_seed_more_takes_what_the_recorded_seeds_took():
    key = "nih128-64px", "resnet18", "cpu"
    (row,) = rows(changed(cells=[block(*key, 0, 1, 2, 3, 4)])).values()
    records = EvidenceStore(RECORDED).records()
    same = [run for cell, run in records.items() if (cell.dataset, cell.architecture, cell.platform) == key]
    hours = [run.timing.total_seconds / 3600 for run in same]
    assert (row["cells"], row["recorded"], row["to_run"]) == (5, 3, 2)
    assert row["hours_low"] == pytest.approx(2 * min(hours), rel=1e-6)
    assert row["hours_high"] == pytest.approx(2 * max(hours), rel=1e-6)
    assert row["kind"] == "proxy" and row["rests_on"].startswith("3 recorded seeds, ")
    assert row["usd_low"] == pytest.approx(row["hours_low"] * 0.10264)


def test_every_processor_of_the_recorded_seeds_is_named():
    key = "nih128-32px", "convnext_pico", "cpu"
    (three,), (one,) = (rows(changed(cells=[block(*key, *seeds)])).values() for seeds in ((0, 1, 2), (2,)))
    assert three["rests_on"] == "3 recorded seeds, AMD EPYC and Intel Xeon"
    assert one["rests_on"] == "1 recorded seed, AMD EPYC"


def test_a_longer_recipe_takes_its_images_over_the_speed_recorded_with_this_network():
    def hours(epochs: int) -> float:
        recipes = {name: recipe.model_dump(mode="json") for name, recipe in STUDY.recipes.items()}
        recipes["reference-fp32"]["epochs"] = epochs
        (row,) = rows(changed(recipes=recipes, cells=[block("nih128-64px", "resnet18", "cpu", 0)])).values()
        assert row["to_run"] == 1 and row["kind"] == "proxy" and row["rests_on"].startswith("recorded on ")
        return row["hours_low"]

    evaluated = (7077 * 50 + (938 * 51 + 1985) / 3) / (7077 * 5 + (938 * 6 + 1985) / 3)
    assert hours(50) / hours(5) == pytest.approx(evaluated)


@pytest.mark.slow
def test_what_is_not_known_has_a_reason_and_no_hours():
    planned = rows(STUDY)
    neuron, cuda = (planned["nih128-64px", "convnext_pico", platform] for platform in ("neuron", "cuda"))
    assert math.isnan(neuron["hours_at_least"]), "it would leave out compilation"
    assert math.isnan(neuron["hours_low"]) and "was measured on Trainium" in neuron["why_not"]
    assert "no Neuron device" in neuron["not_here"]
    assert cuda["hours_at_least"] > 0 and math.isnan(cuda["hours_low"]) and cuda["instance"] == "g5.xlarge"
    mnist = {"mnist": {"source": "chestmnist", "pixels": 64, "recipe": "reference-fp32"}}
    (row,) = rows(changed(datasets=mnist, cells=[block("mnist", "resnet18", "cpu", 0)])).values()
    assert "how many images mnist has is not known" in row["why_not"]
    assert "the images of mnist are not on this machine" in row["not_here"]


def test_a_dataset_of_unstated_size_is_forecast_once_it_is_packed(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(packed)
    mine = {"mine": {"source": "chestmnist", "pixels": 64, "recipe": "reference-fp32"}}
    datasets = STUDY.model_dump(mode="json", exclude_unset=True)["datasets"] | mine
    study = changed(datasets=datasets, cells=[block("mine", "resnet18", "cpu", 0)])
    plan = Plan(study, EvidenceStore(RECORDED), tmp_path)
    (row,) = forecast(plan, read_prices(ROOT / "data/prices.csv")).to_dict("records")
    assert row["packed_gib"] == pytest.approx(sum(SIZES.values()) * 64**2 / 2**30)
    assert row["kind"] == "proxy" and row["hours_low"] > 0


def test_memory_of_a_step_is_that_of_the_audit_at_its_batch():
    audit = read_audit(RECORDED).query("pixels == 64 and batch == 64 and part == 'step'")
    audit = audit.set_index(["architecture", "precision"])["step_gib"]
    for dataset, precision in (("nih128-64px", "fp32"), ("nih128-64px-bf16", "bf16")):
        (row,) = rows(changed(cells=[block(dataset, "resnet50", "cuda", 0)])).values()
        counted = audit["resnet50", precision]  # two digits are kept
        assert row["device_gib"] == pytest.approx(counted, abs=0.005)


def test_a_plan_without_recorded_evidence_is_a_plan(tmp_path: Path) -> None:
    assert "phantom-32px" in must_work("plan", "--recorded", tmp_path / "none", cwd=ROOT).stdout


@pytest.mark.slow
def test_the_summary_counts_every_cell_once():
    table = forecast(Plan(STUDY, EvidenceStore(RECORDED)), read_prices(ROOT / "data/prices.csv"))
    added = by_dataset(table)
    assert added["cells"].sum() == len(STUDY.all_cells())
    (neuron,) = added.query("platform == 'neuron' and dataset == 'nih128-64px'").to_dict("records")
    assert neuron["unknown"] == neuron["to_run"] > 0 and math.isnan(neuron["hours_low"])


def test_the_whole_study_has_a_plan_here():
    found = rows(read_study(ROOT / "config/full.yaml"))
    assert {platform for _, _, platform in found} == {"cuda", "neuron", "torchneuron"}
    pico = found["nih-224px", "convnext_pico", "cuda"]
    images = 75488 * 10 + (11036 * 11 + 25596) / 3
    assert pico["cells"] == 16 and pico["packed_gib"] == pytest.approx(112120 * 224**2 / 2**30)
    flop = 16 * images * 1.37 * 6e9
    assert pico["hours_at_least"] == pytest.approx(flop / 70e12 / 3600, rel=0.02)
    assert (pico["instance"], pico["region"], pico["as_of"]) == ("g5.xlarge", "us-east-1", "2026-07-20")
    assert "was measured on Trainium2" in found["nih-224px", "convnext_pico", "torchneuron"]["why_not"]


@pytest.mark.slow
def test_the_plan_is_printed_before_anything_starts():
    done = must_work("plan")
    assert (
        "nan" not in done.stdout
        and "is known once one such cell has been timed; plan a day for that" in done.stdout
    )
    assert "0.0024" not in done.stdout and "phantom-32px  " in done.stdout and " 0.01 " in done.stdout
    shown = " ".join(done.stdout.split())
    for platform in ("cuda", "neuron"):
        assert re.search(rf"nih002-224px +{platform} +12 of 12", done.stdout)
    archive = "images_002.tar.gz (4.0 GB from nihcc.box.com) into data/raw/nih002"
    assert f"Download for nih002-224px: {archive}; `cxrbench data get nih002-224px`." in shown
    assert "the images of" not in shown, "the download says it"
    assert len(done.stdout.splitlines()) <= 70
    assert "Not trained on this machine" in shown and "Unknown time" in shown
    assert shown.count("no NVIDIA driver") <= 1, "a reason stands once"
    assert "neuron as trn1.2xlarge (us-east-1, on demand, 2026-07-20)" in shown
    assert "an image is taken to last a third as long in scoring as in training" in shown
    done = must_work("plan", "--study", "config/full.yaml")
    twelve = "images_001.tar.gz and 11 more (45.1 GB from nihcc.box.com) into data/raw/nih; "
    twelve += "`cxrbench data get nih-224px`."
    assert f"Download for nih-224px: {twelve}" in " ".join(done.stdout.split())
    assert {row["platform"] for row in json.loads(must_work("plan", "--json").stdout)} >= {"cpu", "neuron"}
