import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.results.pairs import CONTRAST_COLUMNS as COLUMNS
from cxrbench.results.pairs import contrasts
from cxrbench.study.config import parse_study, read_study
from synthetic import draw_predictions, estimated, network_of

STUDY = read_study(ROOT / "config/config.yaml").model_dump(mode="json", exclude_unset=True)
NIH = {name: STUDY["datasets"][name] for name in ("nih128-64px", "nih128-64px-bf16", "nih128-32px")}
IMAGES = draw_predictions(3, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))


def study_of(datasets: dict, seeds: int = 3):
    each = {"architectures": ["resnet18"], "platforms": ["cpu"], "seeds": list(range(seeds))}
    blocks = [{"dataset": name, **each} for name in datasets]
    return parse_study(STUDY | {"datasets": datasets, "cells": blocks, "run": []})


def cells_of(*skills: tuple[str, float], seeds: int = 3, images=IMAGES) -> dict:
    return {
        f"{dataset}/resnet18/cpu/seed{seed}": network_of(images, seed + 10 * number, 0.05, skill)
        for number, (dataset, skill) in enumerate(skills)
        for seed in range(seeds)
    }


def test_each_pair_of_settings_has_its_difference_and_what_they_differ_in():
    cells = cells_of(("nih128-64px", 1.0), ("nih128-64px-bf16", 1.0), ("nih128-32px", 0.0))
    whole = contrasts(estimated(cells), study_of(NIH))
    assert list(whole.columns) == COLUMNS
    assert whole.loc[whole["verdict"] != "", "differs"].unique().tolist() == ["precision"]
    judged = whole.query("label == 'endpoint' and differs == 'precision'").iloc[0]
    inside = -judged["margin"] < judged["ci90_low"] and judged["ci90_high"] < judged["margin"]
    assert (judged["verdict"] == "equivalent") == inside and judged["margin"] == 0.01
    table = whole.query("label == 'macro' and metric == 'auroc'")
    assert table[["dataset_a", "dataset_b", "differs"]].to_numpy().tolist() == [
        ["nih128-64px", "nih128-64px-bf16", "precision"],
        ["nih128-64px", "nih128-32px", "pixels"],
        ["nih128-64px-bf16", "nih128-32px", "pixels, precision"],
    ]
    assert table["difference"].to_numpy() == pytest.approx(table["mean_a"] - table["mean_b"])
    assert (table["ci_low"] > 0).tolist() == [False, True, True]
    assert (table["ci_low"] <= table["difference"]).all() and (table["ci_high"] >= table["difference"]).all()


def test_settings_in_another_order_give_the_opposite_differences():
    cells = estimated(cells_of(("nih128-64px", 0.3), ("nih128-32px", 0.0)))
    one, other = (
        contrasts(cells, study_of({name: NIH[name] for name in names}))
        for names in (("nih128-64px", "nih128-32px"), ("nih128-32px", "nih128-64px"))
    )
    assert one["difference"].to_numpy() == pytest.approx(-other["difference"])
    assert one["ci_low"].to_numpy() == pytest.approx(-other["ci_high"])


def test_shared_seeds_are_compared_and_others_left_out():
    pair = ("nih128-64px", 0.3), ("nih128-32px", 0.0)
    cells = cells_of(*pair)
    more = cells | {"nih128-64px/resnet18/cpu/seed3": network_of(IMAGES, 99, 0.05, 2.0)}
    whole, same = (contrasts(estimated(some), study_of(NIH, 4)) for some in (more, cells))
    pd.testing.assert_frame_equal(whole, same)
    assert whole["seeds_a"].unique() == ["0,1,2"]


def test_a_score_that_is_undefined_says_so_and_not_that_an_interval_holds_zero():
    only_test = IMAGES[IMAGES["split"] == "test"]  # nothing to tune a threshold on, so no F1
    cells = cells_of(("nih128-64px", 1.0), ("nih128-64px-bf16", 1.0), images=only_test)
    whole = contrasts(estimated(cells), study_of(NIH)).query("differs == 'precision'")
    undefined = whole["difference"].isna()
    assert undefined.any() and not undefined.all()
    assert whole["reason"][undefined].str.startswith("undefined: a run has no value (F1 has none").all()
    assert not whole["reason"][~undefined].str.contains("undefined").any()


def test_nothing_is_said_of_other_images_two_seeds_or_another_split():
    pair = ("nih128-64px", 0.3), ("nih128-32px", 0.0)
    assert len(contrasts(estimated(cells_of(*pair, seeds=2)), study_of(NIH, 2))) == 0
    fewer = cells_of(pair[0]) | cells_of(pair[1], images=IMAGES.iloc[:-1])
    assert len(contrasts(estimated(fewer), study_of(NIH))) == 0
    official = NIH | {"nih128-32px": NIH["nih128-32px"] | {"split": "official"}}
    assert len(contrasts(estimated(cells_of(*pair)), study_of(official))) == 0
