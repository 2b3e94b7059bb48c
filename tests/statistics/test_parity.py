from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from columns import SCORES
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.statistics.components import SPREAD_COLUMNS, patient_sampling_variance, spread
from cxrbench.statistics.metrics import EVERY
from cxrbench.statistics.parity import COLUMNS, Cause, Margins, family, holm, parity
from synthetic import draw_predictions, estimated, network_of

WIDE = Margins(auroc_macro=0.2, auroc_label=0.4)


@pytest.fixture(scope="module")
def images() -> pd.DataFrame:
    return draw_predictions(5, {"val": 300, "test": 300}, np.linspace(0.08, 0.3, 14))


def compared(cells, margins=None) -> pd.DataFrame:
    return parity(estimated(cells), margins or Margins())


def cells(images, noise=0.05, **shifts):
    """Three seeds on each platform named in ``shifts``, with that much more skill."""
    return {
        f"phantom/net/{platform}/seed{seed}": network_of(images, 10 * number + seed, noise, shift)
        for number, (platform, shift) in enumerate(shifts.items())
        for seed in range(3)
    }


@pytest.fixture(scope="module")
def table(images):
    return compared(cells(images, cpu=0.0, cuda=0.0, neuron=-1.0))


def pick(table, a, b, label="macro", metric="auroc"):
    rows = table[(table["platform_a"] == a) & (table["platform_b"] == b)]
    (row,) = rows[(rows["label"] == label) & (rows["metric"] == metric)].to_dict("records")
    return row


def test_every_pair_and_every_platform_against_itself(table):
    assert list(table.columns) == COLUMNS
    pairs = table[["kind", "platform_a", "platform_b"]].drop_duplicates().to_numpy().tolist()
    assert pairs == [
        *(["platforms", "cpu", "cuda"], ["platforms", "cpu", "neuron"], ["platforms", "cuda", "neuron"]),
        *(["noise floor", name, name] for name in ("cpu", "cuda", "neuron")),
    ]
    assert (table.groupby(["kind", "platform_a", "platform_b"]).size() == len(FINDINGS) + 5).all()


def test_same_skill_is_equivalent_and_less_skill_different(table):
    same, worse = pick(table, "cpu", "cuda"), pick(table, "cpu", "neuron")
    assert same["verdict"] == "equivalent" and same["ci90_low"] > -0.01 and same["ci90_high"] < 0.01
    assert worse["verdict"] == "different" and worse["ci_low"] > 0.01
    assert worse["difference"] == pytest.approx(worse["mean_a"] - worse["mean_b"])
    assert pick(table, "cpu", "cpu")["seeds_a"] == "0" and pick(table, "cpu", "cpu")["seeds_b"] == "1,2"
    assert same["p_tost_seeds"] < 0.05 < worse["p_tost_seeds"]


@pytest.mark.slow
def test_shared_seeds_are_compared_one_by_one_and_others_left_out(images):
    some = cells(images, noise=3.0, cpu=0.0, cuda=0.0)
    whole = pick(compared(some), "cpu", "cuda")
    more = some | {"phantom/net/cuda/seed7": network_of(images, 99, 3.0)}
    row = pick(compared(more), "cpu", "cuda")
    assert (row["seeds_a"], row["seeds_b"]) == ("0,1,2", "0,1,2")
    same = ("mean_b", "difference", "ci_low")
    assert [row[name] for name in same] == [whole[name] for name in same]
    renamed = {name.replace("cuda/seed", "cuda/seed1"): one for name, one in some.items()}
    apart = pick(compared(renamed), "cpu", "cuda")
    assert apart["seeds_b"] == "10,11,12" and apart["difference"] == pytest.approx(whole["difference"])
    assert apart["freedom"] != whole["freedom"]


def test_reasons_name_a_difference_inside_the_margin_and_the_smallest_margin(images):
    row = pick(compared(cells(images, cpu=0.0, neuron=-0.5), WIDE), "cpu", "neuron")
    assert row["verdict"] == "equivalent" and "differs from zero" in row["reason"]
    row = pick(compared(cells(images, noise=3.0, cpu=0.0, cuda=0.0)), "cpu", "cuda")
    assert row["verdict"] == "inconclusive" and f"{row['smallest_margin']:.3f}" in row["reason"]


def test_verdicts_follow_from_their_numbers(table):
    of_f1 = table["metric"].str.startswith("f1")
    assert (
        of_f1.any() and (table.loc[of_f1, "verdict"] == "").all() and table.loc[of_f1, "margin"].isna().all()
    )
    assert (table.loc[of_f1, "reason"] == "no margin is declared for it").all()
    assert table.loc[of_f1, "ci90_low"].notna().all(), "its interval is there"
    rows = table[(table["label"] != EVERY) & ~of_f1]
    equivalent = (rows["ci90_low"] > -rows["margin"]) & (rows["ci90_high"] < rows["margin"])
    assert ((rows["verdict"] == "equivalent") == equivalent).all()
    assert ((rows["verdict"] == "different") == (~equivalent & (rows["p_holm"] < 0.05))).all()
    assert (rows["reason"].ne("") | rows["verdict"].isin(["equivalent", "different"])).all()


def test_holm_is_over_the_labels_of_a_pair(table):
    rows = table[(table["platform_a"] == "cpu") & (table["platform_b"] == "neuron")]
    labels = rows[rows["label"].isin(FINDINGS)]
    few = labels.assign(freedom=labels["freedom"].clip(upper=2))  # three seeds
    error = np.hypot(few["se_patients"], few["se_seeds"])
    p = 2 * stats.t.sf(few["difference"].abs() / error, few["freedom"])
    np.testing.assert_allclose(labels["p_holm"], holm(p))
    assert (labels["p_holm"] >= labels["p_different"]).all()
    assert pick(table, "cpu", "neuron")["p_holm"] == pick(table, "cpu", "neuron")["p_different"]
    assert holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([0.02, np.nan, 0.5])) == pytest.approx([0.04, np.nan, 0.5], nan_ok=True)


def test_every_label_is_equivalent_only_when_each_is(images, table):
    assert pick(table, "cpu", "neuron", EVERY)["verdict"] == "different"
    wide = compared(cells(images, cpu=0.0, cuda=0.0), WIDE)
    assert pick(wide, "cpu", "cuda", EVERY)["verdict"] == "equivalent"
    changed = {name: one.copy() for name, one in cells(images, cpu=0.0, cuda=0.0).items()}
    for one in changed.values():
        one.loc[one["split"] == "test", "label_Mass"] = 0
    undefined = compared(changed, WIDE)
    row = pick(undefined, "cpu", "cuda", EVERY)
    assert (row["verdict"], row["reason"]) == ("inconclusive", "13 of 14 findings are equivalent")
    assert "only one class" in pick(undefined, "cpu", "cuda", "Mass")["reason"]
    assert pick(undefined, "cpu", "cuda")["verdict"] == "equivalent"


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_tost_on_seeds_is_students(images, shared):
    some = cells(images, cpu=0.0, cuda=0.0)
    if not shared:
        some = {name.replace("cuda/seed", "cuda/seed1"): one for name, one in some.items()}
    estimates = list(estimated(some).values())
    a, b = (np.array([one.estimate.value[14] for one in three]) for three in (estimates[:3], estimates[3:]))
    test = stats.ttest_rel if shared else partial(stats.ttest_ind, equal_var=False)
    above = test(a + 0.01, b, alternative="greater").pvalue
    below = test(a - 0.01, b, alternative="less").pvalue
    assert pick(compared(some), "cpu", "cuda")["p_tost_seeds"] == pytest.approx(max(above, below))


def test_fewer_than_three_seeds_have_no_verdict_and_one_still_shows_the_difference(images):
    some = cells(images, cpu=0.0, cuda=0.0)
    del some["phantom/net/cuda/seed1"], some["phantom/net/cuda/seed2"]
    table = compared(some)
    row = pick(table, "cpu", "cuda")
    assert row["verdict"] == "inconclusive" and row["cause"] is Cause.SEEDS
    assert row["reason"] == "3 seeds of cpu and 1 seed of cuda: a verdict needs 3 seeds of each"
    assert np.isfinite(row["difference"]) and row["se_patients"] > 0 and np.isnan(row["ci_low"])
    assert pick(table, "cuda", "cuda")["reason"].startswith("1 seed of cuda: ")
    assert pick(table, "cpu", "cuda", EVERY)["reason"] == row["reason"]
    two = {name: cell for name, cell in cells(images, cpu=0.0, cuda=-1.0).items() if "seed2" not in name}
    row = pick(compared(two, WIDE), "cpu", "cuda")
    assert (row["verdict"], row["cause"]) == ("inconclusive", Cause.SEEDS) and np.isnan(row["ci_low"])
    shared = cells(images, cpu=0.0, cuda=-1.0)
    shared["phantom/net/cuda/seed7"] = shared.pop("phantom/net/cuda/seed2")
    row = pick(compared(shared, WIDE), "cpu", "cuda")
    assert row["verdict"] == "different" and (row["seeds_a"], row["seeds_b"]) == ("0,1,2", "0,1,7")


@pytest.mark.slow
@pytest.mark.parametrize("column", ["row", "image", "patient", "label_Mass"])
def test_other_images_patients_or_labels_cannot_be_paired(images, column):
    some = cells(images, cpu=0.0, cuda=0.0)
    other = some["phantom/net/cuda/seed1"]
    if column == "row":
        some["phantom/net/cuda/seed1"] = other.iloc[:-1]
    elif column == "image":
        other[column] = "x" + other[column]
    else:  # the last test row joins its predecessor's patient, or loses or gains a finding
        other.loc[other.index[-1], column] = (
            other[column].iloc[0] if column == "patient" else 1 - other[column].iloc[-1]
        )
    row = pick(compared(some), "cpu", "cuda")
    assert row["verdict"] == "inconclusive" and "different images" in row["reason"]


def test_networks_that_rank_alike_are_equivalent(images):
    table = compared({f"a/b/{p}/seed{k}": images for p in ("cpu", "cuda") for k in range(3)})
    row = pick(table, "cpu", "cuda")
    assert (row["difference"], row["ci_low"], row["ci_high"]) == (0, 0, 0)
    assert (row["verdict"], row["reason"]) == ("equivalent", "the same for every seed and patient")
    assert pick(table, "cpu", "cuda", EVERY)["verdict"] == "equivalent"


@pytest.mark.parametrize("perfect", [False, True])
def test_scores_without_spread_do_not_hide_a_difference(images, perfect):
    """One platform scores every image alike, or ranks one finding without an error in one seed."""
    some = cells(images, cpu=0.0, cuda=0.0)
    for seed, network in enumerate(some[f"phantom/net/cuda/seed{seed}"] for seed in range(3)):
        if not perfect:
            network[SCORES] = 0.5
        elif seed == 0:
            network["score_Mass"] = network["label_Mass"] * 0.5 + 0.25
    table = compared(some)
    label = "Mass" if perfect else "macro"
    row = pick(table, "cpu", "cuda", label)
    assert row["verdict"] != "equivalent" and np.isfinite(row["p_different"])
    assert pick(table, "cpu", "cuda", EVERY)["verdict"] != "equivalent"
    assert np.isfinite(family(table)["p_family"]).all()


def test_without_val_rows_f1_says_why(images):
    test_only = images[images["split"] == "test"]
    row = pick(compared(cells(test_only, cpu=0.0, cuda=0.0)), "cpu", "cuda", "all", "f1_micro")
    assert row["verdict"] == "" and "threshold" in row["reason"]


def test_other_datasets_and_architectures_are_not_compared(images):
    names = ("a/net/cpu/seed0", "b/net/cuda/seed0", "a/other/cuda/seed0")
    assert set(compared(dict.fromkeys(names, images))["kind"]) == {"noise floor"}
    assert compared({}).empty


def test_spread_keeps_seeds_and_patients_apart(images):
    some = estimated(cells(images, noise=0.5, cpu=0.0))
    table = spread(some)
    assert list(table.columns) == SPREAD_COLUMNS
    row = table[(table["label"] == "macro") & (table["metric"] == "auroc")].iloc[0]
    values = [one.estimate.value[14] for one in some.values()]
    assert row["seed_sd"] == pytest.approx(np.std(values, ddof=1)) and row["n_seeds"] == 3
    luck = patient_sampling_variance([one.estimate for one in some.values()])[14]
    assert row["seed_sd_beyond_patients"] == pytest.approx(np.sqrt(max(np.var(values, ddof=1) - luck, 0)))
    assert luck > 0 and row["seed_sd"] < row["patient_se"]
    assert row["patient_se_of_mean"] < row["patient_se"]
    both = np.hypot(row["patient_se_of_mean"], row["seed_sd_beyond_patients"] / np.sqrt(3))
    assert 2 * 1.9 * both < row["ci_high"] - row["ci_low"] < 2 * 4.4 * both


def test_the_interval_of_a_mean_is_wider_than_its_patients_alone_and_needs_three_seeds(images):
    some = estimated(cells(images, noise=3.0, cpu=0.0))
    three, two, one = (
        spread(dict(list(some.items())[:count])).query("label == 'macro' and metric == 'auroc'").iloc[0]
        for count in (3, 2, 1)
    )
    assert three["ci_low"] < three["mean"] - 1.96 * three["patient_se_of_mean"] and three["note"] == ""
    assert np.isnan(two["ci_low"]) and two["note"].startswith("2 seeds: too few")
    assert one["note"].startswith("one seed") and np.isnan(one["seed_sd"]) and one["patient_se"] > 0
