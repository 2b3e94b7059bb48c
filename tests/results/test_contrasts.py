from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.results.comparisons import blocks_of_settings, of_whole_blocks, with_last
from cxrbench.results.pairs import CONTRAST_COLUMNS as COLUMNS
from cxrbench.results.pairs import arithmetic, contrasts, powers
from cxrbench.statistics.pilot import needs, variance_parts
from cxrbench.study.config import parse_study, read_study
from synthetic import draw_predictions, estimated, network_of

STUDY = read_study(ROOT / "config/config.yaml").model_dump(mode="json", exclude_unset=True)
NIH = {name: STUDY["datasets"][name] for name in ("nih128-64px", "nih128-64px-bf16", "nih128-32px")}
IMAGES = draw_predictions(3, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))


def study_of(datasets: dict, seeds: int = 3):
    each = {"architectures": ["resnet18"], "platforms": ["cpu"], "seeds": list(range(seeds))}
    blocks = [{"dataset": name, **each} for name in datasets]
    return parse_study(STUDY | {"datasets": datasets, "cells": blocks, "run": []})


def contrasts_of(cells: dict, datasets: dict, seeds: int = 3, **elsewhere: str) -> pd.DataFrame:
    """Contrasts of ``cells``, all on processor A but for those of a dataset in ``elsewhere``."""
    ran_on = {str(cell): elsewhere.get(cell.dataset, "A") for cell in cells}
    return contrasts(cells, study_of(datasets, seeds), ran_on)


def cells_of(*skills: tuple[str, float], seeds: int = 3, images=IMAGES) -> dict:
    return {
        f"{dataset}/resnet18/cpu/seed{seed}": network_of(images, seed + 10 * number, 0.05, skill)
        for number, (dataset, skill) in enumerate(skills)
        for seed in range(seeds)
    }


def test_each_pair_of_settings_has_its_difference_and_what_they_differ_in():
    cells = cells_of(("nih128-64px", 1.0), ("nih128-64px-bf16", 1.0), ("nih128-32px", 0.0))
    whole = contrasts_of(estimated(cells), NIH)
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
        contrasts_of(cells, {name: NIH[name] for name in names})
        for names in (("nih128-64px", "nih128-32px"), ("nih128-32px", "nih128-64px"))
    )
    assert one["difference"].to_numpy() == pytest.approx(-other["difference"])
    assert one["ci_low"].to_numpy() == pytest.approx(-other["ci_high"])


def test_shared_seeds_are_compared_and_others_left_out():
    pair = ("nih128-64px", 0.3), ("nih128-32px", 0.0)
    cells = cells_of(*pair)
    more = cells | {"nih128-64px/resnet18/cpu/seed3": network_of(IMAGES, 99, 0.05, 2.0)}
    whole, same = (contrasts_of(estimated(some), NIH, 4) for some in (more, cells))
    pd.testing.assert_frame_equal(whole, same)
    assert whole["seeds_a"].unique() == ["0,1,2"]


def test_a_score_that_is_undefined_says_so_and_not_that_an_interval_holds_zero():
    only_test = IMAGES[IMAGES["split"] == "test"]  # nothing to tune a threshold on, so no F1
    cells = cells_of(("nih128-64px", 1.0), ("nih128-64px-bf16", 1.0), images=only_test)
    whole = contrasts_of(estimated(cells), NIH).query("differs == 'precision'")
    undefined = whole["difference"].isna()
    assert undefined.any() and not undefined.all()
    assert whole["reason"][undefined].str.startswith("undefined: a run has no value").all()
    assert not whole["reason"][~undefined].str.contains("undefined").any()


def test_nothing_is_said_of_other_images_two_seeds_or_another_split():
    pair = ("nih128-64px", 0.3), ("nih128-32px", 0.0)
    assert len(contrasts_of(estimated(cells_of(*pair, seeds=2)), NIH, 2)) == 0
    fewer = cells_of(pair[0]) | cells_of(pair[1], images=IMAGES.iloc[:-1])
    assert len(contrasts_of(estimated(fewer), NIH)) == 0
    official = NIH | {"nih128-32px": NIH["nih128-32px"] | {"split": "official"}}
    assert len(contrasts_of(estimated(cells_of(*pair)), official)) == 0


def test_arithmetic_is_judged_within_blocks_of_one_processor_and_corrected_over_the_family() -> None:
    arms = [f"nih128-32px-arith-{arm}" for arm in ("fp32", "matmult", "tf32")]
    datasets = {arm: STUDY["datasets"][arm] for arm in arms}
    cells = estimated(cells_of((arms[0], 0.0), (arms[1], 0.0), (arms[2], 2.0), seeds=4))
    whole = contrasts_of(cells, datasets, 4).query("label == 'endpoint'")
    assert (whole["differs"] == "arithmetic").all() and len(whole) == 3
    assert whole["verdict"].tolist() == ["equivalent", "different", "different"]
    tested = [*whole["p_equivalent"][:1], *whole["p_different"][1:]]
    assert whole["p_family"].to_numpy(float) == pytest.approx(multipletests(tested))
    assert contrasts_of(cells, datasets, 4, **{arms[1]: "B"})["dataset_b"].unique() == [arms[2]]
    ran_on = {str(cell): "B" if cell.dataset == arms[1] and cell.seed == 2 else "A" for cell in cells}
    moved = contrasts(cells, study_of(datasets, 4), ran_on).query("dataset_b == @arms[1]")
    assert moved["seeds_a"].unique() == ["0,1,3"]


def test_an_arm_of_a_block_is_left_out_until_all_its_declared_seeds_are_scored() -> None:
    """A look at fewer seeds could decide when to stop (docs/arithmetic.md)."""
    names = [f"nih128-32px-{name}" for name in ("fp32", "arith-fp32", "arith-tf32")]
    study = study_of({name: STUDY["datasets"][name] for name in names}, 4)
    cells = estimated(cells_of(*((name, 0.0) for name in names), seeds=4))
    assert of_whole_blocks(cells, study) == cells
    fewer = {cell: of for cell, of in cells.items() if cell.seed < 3}  # of a setting outside of blocks too
    assert {cell.dataset for cell in of_whole_blocks(fewer, study)} == {names[0]}
    lost = {cell: of for cell, of in cells.items() if (cell.dataset, cell.seed) != (names[2], 1)}
    assert {cell.dataset for cell in of_whole_blocks(lost, study)} == {*names[:2]}


def test_last_weights_stand_beside_averaged_ones_where_the_same_seeds_kept_them() -> None:
    arms = [f"nih128-32px-arith-{arm}" for arm in ("fp32", "matmult", "tf32")]
    datasets = {arm: STUDY["datasets"][arm] for arm in arms}
    averaged = estimated(cells_of((arms[0], 0.0), (arms[1], 0.0), (arms[2], 0.2), seeds=4))
    last = estimated(cells_of((arms[0], 0.5), (arms[1], 0.0), (arms[2], 0.2), seeds=4))
    lost = {cell: of for cell, of in last.items() if (cell.dataset, cell.seed) != (arms[2], 1)}
    of_averaged, of_last = (contrasts_of(cells, datasets, 4) for cells in (averaged, last))
    table = with_last(of_averaged, contrasts_of(lost, datasets, 4))
    pd.testing.assert_frame_equal(table[of_averaged.columns], of_averaged)
    both = table["dataset_b"] == arms[1]  # of the third arm one run lacks them
    assert table.loc[~both, "last_difference"].isna().all() and both.sum() == 3
    for name in ("difference", "ci90_low", "ci90_high"):
        assert table.loc[both, f"last_{name}"].to_numpy() == pytest.approx(of_last.loc[both, name].to_numpy())
    assert (table.loc[both, "last_difference"] - table.loc[both, "difference"]).abs().max() > 0.01


def test_arithmetic_of_platforms_is_held_against_another_order_of_sums_seed_by_seed() -> None:
    names = [f"nih128-32px-arith-{arm}" for arm in ("matmult", "tf32", "reordered", "fp32")]
    datasets = {name: STUDY["datasets"][name] for name in names}
    cells = estimated(cells_of(*zip(names, (0.4, 0.0, 0.0, 0.0), strict=True), seeds=5))
    ran_on = {str(cell): "B" if cell.seed == 2 and "tf32" in cell.dataset else "A" for cell in cells}
    (row,) = arithmetic(cells, study_of(datasets, 5), ran_on).to_dict("records")
    assert row["seeds"] == "0,1,3,4"  # of the third two arms ran elsewhere
    assert row["n_patients"] == IMAGES.loc[IMAGES["split"] == "test", "patient"].nunique()
    k = next(iter(cells.values())).keys.index(("endpoint", "auroc"))
    of = {(cell.dataset, cell.seed): scores.estimate.value[k] for cell, scores in cells.items()}
    seeds = (0, 1, 3, 4)
    platforms, orders = (np.array([of[a, s] - of[b, s] for s in seeds]) for a, b in (names[:2], names[2:]))
    assert (row["difference"], row["difference_of_orders"]) == pytest.approx(
        (platforms.mean(), orders.mean())
    )
    assert (row["seed_sd"], row["seed_sd_of_orders"]) == pytest.approx(
        (platforms.std(ddof=1), orders.std(ddof=1))
    )
    assert row["beyond"] == pytest.approx((platforms - orders).mean())
    assert 0 < row["ci_low"] < row["beyond"] < row["ci_high"]  # the first arm has more skill
    other = {"nih128-32px-fold1": STUDY["datasets"]["nih128-32px-fold1"]}  # of another block, in fp32 too
    pd.testing.assert_frame_equal(
        arithmetic(cells, study_of(datasets | other, 5), ran_on), pd.DataFrame([row], columns=list(row))
    )
    alike = estimated(cells_of(*zip(names, (0.0, 0.0, 0.0, 0.0), strict=True), seeds=5))
    (same,) = arithmetic(alike, study_of(datasets, 5), ran_on).to_dict("records")
    assert same["ci_low"] < 0 < same["ci_high"]
    three = {cell: scores for cell, scores in cells.items() if cell.dataset != names[2]}
    assert arithmetic(three, study_of(datasets, 5), ran_on).empty


def test_the_fp32_run_of_a_block_is_compared_with_no_cell_outside_of_it() -> None:
    """Four blocks brought a row of bf16 against their fp32 runs, which the declaration rules out."""
    names = ["nih128-32px-fp32", "nih128-32px-bf16", "nih128-32px-arith-fp32", "nih128-32px-arith-tf32"]
    datasets = {name: STUDY["datasets"][name] for name in names}
    cells = estimated(cells_of(*((name, 0.0) for name in names), seeds=4))
    for on in "AB":  # a block is declared: cells of other datasets do not join it on its own processor
        ran_on = {str(cell): "A" if cell.dataset in names[2:] else on for cell in cells}
        rows = contrasts(cells, study_of(datasets, 4), ran_on)
        pairs = {*zip(rows["dataset_a"], rows["dataset_b"], strict=True)}
        assert pairs == {(names[0], names[1]), (names[2], names[3])}


def multipletests(p: list[float]) -> list[float]:
    """Holm's p values, from their definition."""
    steps = {k: (len(p) - rank) * p[k] for rank, k in enumerate(sorted(range(len(p)), key=p.__getitem__))}
    return [min(1.0, max(step for j, step in steps.items() if p[j] <= p[k])) for k in range(len(p))]


def test_power_by_seeds_is_that_of_the_pilot_and_subsets_are_counted() -> None:
    images = draw_predictions(5, {"test": 60}, np.array([0.3, 0.4] + 12 * [0.0]))
    datasets = {name: NIH[name] for name in ("nih128-64px", "nih128-64px-bf16")}
    cells = estimated(cells_of(*((name, 0.0) for name in datasets), seeds=10, images=images))
    judged = contrasts_of(cells, datasets, 10)
    table = powers(cells, judged).set_index("seeds")
    sides = [{c.seed: e.estimate for c, e in cells.items() if c.dataset == name} for name in datasets]
    first = next(iter(cells.values()))
    variance = variance_parts(
        *sides, first.keys.index(("endpoint", "auroc")), first.sample.n_clusters, paired=True
    )
    for seeds in (3, 8):
        pilot = needs(variance, 0.01, runs=seeds)
        row = table.loc[seeds]
        assert (row["as_measured"], row["at_worst"]) == (pilot.power_as_measured, pilot.power_at_worst)
    verdicts = []
    for left_out in combinations(range(10), 3):
        some = {cell: of for cell, of in cells.items() if cell.seed not in left_out}
        verdicts.append(contrasts_of(some, datasets, 10)["verdict"][0] == "equivalent")
    assert table.loc[7, "subsets"] == np.mean(verdicts) and table.loc[8:, "subsets"].isna().all()
    fewer = {cell: of for cell, of in cells.items() if cell.seed < 9}
    assert powers(fewer, contrasts_of(fewer, datasets, 10)).empty


def test_of_very_many_choices_of_seeds_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 37 seeds there are too many choices of twelve: a build of a thousand cells never ended."""
    images = draw_predictions(5, {"test": 60}, np.array([0.3, 0.4] + 12 * [0.0]))
    datasets = {name: NIH[name] for name in ("nih128-64px", "nih128-64px-bf16")}
    cells = estimated(cells_of(*((name, 0.0) for name in datasets), seeds=10, images=images))
    judged = contrasts_of(cells, datasets, 10)
    reach = judged.loc[judged["label"] == "endpoint", ["ci90_low", "ci90_high"]].abs().to_numpy().max()
    judged = judged.assign(margin=1.2 * reach)  # so that choices of fewer seeds differ in their verdict
    whole = powers(cells, judged)["subsets"]
    monkeypatch.setattr("cxrbench.results.pairs.MOST_CHOICES", 100)  # of 120 to 252
    some = powers(cells, judged)["subsets"]
    assert (some.isna() == whole.isna()).all() and whole.dropna().between(0.1, 0.9).any()
    assert (some - whole).abs().max() < 5 * 0.5 / np.sqrt(100)


def test_a_block_has_one_processor_seed_by_seed() -> None:
    study, ten = parse_study(STUDY | {"run": []}), set(range(10))
    datasets = [
        f"nih128-32px-{name}" for name in ("fp32", "bf16", "arith-fp32", "arith-matmult", "arith-tf32")
    ]
    seeds = {f"{name}/resnet18/cpu": ten for name in datasets}
    ran_on = {f"{of}/seed{seed}": "B" if "arith" in of else "A" for of in seeds for seed in ten}
    fp32, bf16, control, matmult, tf32 = seeds
    precision = {("precision", "resnet18"): [fp32, bf16]}
    found = blocks_of_settings(seeds, study, ran_on)
    assert found == precision | {("arithmetic", "resnet18"): [control, matmult, tf32]}
    found = blocks_of_settings(seeds, study, ran_on | {f"{tf32}/seed3": "A"})
    assert found == precision | {("arithmetic", "resnet18"): [control, matmult]}
    assert blocks_of_settings({fp32: ten, bf16: {0, 1}}, study, ran_on) == {}
