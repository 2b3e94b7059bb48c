"""`evaluate`: what a mean over findings leaves out, and that one number has one interval."""

import numpy as np
import pandas as pd
import pytest

from cxrbench.statistics import compare_runs
from cxrbench.statistics.evaluate import Evaluation, evaluate

IMAGES = 60


def scored(**positives: int) -> pd.DataFrame:
    """Test images of as many patients, with so many positive ones of each finding."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {"image": [f"i{k}" for k in range(IMAGES)], "patient": range(IMAGES), "split": "test"}
    )
    for name, count in positives.items():
        truth = np.isin(np.arange(IMAGES), rng.choice(IMAGES, count, replace=False)).astype(int)
        table[f"label_{name}"], table[f"score_{name}"] = truth, 0.3 * truth + 0.7 * rng.random(IMAGES)
    return table


def interval(found: Evaluation, label: str, method: str = "delong-patient") -> list[float]:
    rows = found.table.query("label == @label and metric == 'auroc' and ci_method == @method")
    return rows[["value", "ci_low", "ci_high"]].iloc[0].tolist()


@pytest.mark.parametrize("method", ["delong-patient", "delong-image"])
def test_a_mean_over_one_finding_has_its_interval(method: str) -> None:
    single = evaluate(scored(Mass=1, Edema=12), replicates=2)
    expected = interval(single, "Edema", method)
    assert expected[1] < expected[0] < expected[2]
    assert interval(single, "macro", method) == interval(single, "endpoint", method) == expected
    two = evaluate(scored(Mass=11, Edema=12), replicates=2)
    assert interval(two, "macro", method) not in (interval(two, name, method) for name in ("Mass", "Edema"))


def test_a_mean_over_one_finding_with_too_few_patients_has_no_interval() -> None:
    found = evaluate(scored(Mass=1, Edema=4), replicates=2, least=2)
    assert np.isnan(interval(found, "Edema")[1:] + interval(found, "macro")[1:]).all()
    assert "fewer than 5 patients" in found.table.query("label == 'endpoint'")["note"].iloc[0]


def test_a_mean_says_which_findings_it_leaves_out_and_why() -> None:
    notes = evaluate(scored(Mass=1, Nodule=3, Edema=12), replicates=2).notes
    (macro,) = (note for note in notes if note.startswith("macro AUROC, "))
    assert "macro average precision" in macro and macro.endswith(
        "without Mass (one class has a single patient)"
    )
    assert (
        "main endpoint: 1 label, without those of fewer than 10 positive test patients: "
        "Mass (1), Nodule (3)" in notes
    )
    whole = evaluate(scored(Mass=11, Edema=12), replicates=2).notes
    assert not any("without" in note for note in whole)


def test_scores_without_an_error_have_a_note() -> None:
    table = scored(Mass=12, Edema=12, Nodule=12)
    table["score_Mass"], table["score_Edema"] = 0.5, table["label_Edema"] * 0.8
    notes = evaluate(table, replicates=2).notes
    certain = ": an AUROC without an error has no interval, and means take it as known exactly"
    assert f"all scores of Mass are equal{certain}" in notes and f"the AUROC of Edema is 1{certain}" in notes
    assert not any(certain in note for note in evaluate(scored(Mass=12), replicates=2).notes)


def test_a_finding_that_the_mean_leaves_out_is_not_said_to_be_taken_as_exact() -> None:
    table = scored(Mass=1, Edema=12)
    table["score_Mass"] = table["label_Mass"] * 0.8
    assert not any("known exactly" in note for note in evaluate(table, replicates=2).notes)
    runs = {run: table.assign(score_Edema=table["score_Edema"] * (1 - run / 10)) for run in range(3)}
    assert not any("known exactly" in note for note in compare_runs(runs, runs).notes)


def test_comparison_and_evaluation_agree_on_who_has_an_interval() -> None:
    """A finding with four positive patients has none in either, one with five has one in both."""
    table = scored(Mass=4, Edema=5, Nodule=15)
    rng = np.random.default_rng(1)
    runs = [
        {
            seed: table.assign(
                **{n: table[n] + 0.1 * rng.random(IMAGES) for n in table if n.startswith("score_")}
            )
            for seed in range(3)
        }
        for _ in range(2)
    ]
    runs = [{s: t.assign(**(t.filter(like="score_") / 1.2)) for s, t in side.items()} for side in runs]
    found = evaluate(runs[0][0], replicates=2)
    compared = {row["label"]: row for row in compare_runs(*runs).rows if row["metric"] == "auroc"}
    for name in ("Mass", "Edema", "Nodule", "macro", "endpoint"):
        assert np.isnan(interval(found, name)[1]) == (compared[name]["ci95_low"] is None), name
    assert compared["Mass"]["ci95_low"] is None and compared["Edema"]["ci95_low"] is not None
